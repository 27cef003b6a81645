"""The cases: what is sent, how much of it, and to whom.

litellm is two orders of magnitude slower, so it gets less of everything; figures are per CPU second, which
that does not change. Pure.
"""

from dataclasses import dataclass
from typing import Any, Final

from superinfer_bench.ingress.load_client import Order
from superinfer_bench.ingress.peers import MODEL
from superinfer_bench.ingress.proxies import Proxy

CHAT: Final = "/v1/chat/completions"
PACE_MS: Final = {1: 5.0, 64: 10.0, 256: 40.0}
"""Streams to milliseconds a token: busy, but nothing saturated, so that every token is a chunk of its own."""
HELD_PACE_MS: Final = 100.0
LATENCY_RATE: Final = 500.0
ANSWER_TOKENS: Final = 1
"""Of an answer that is not streamed: what a token costs is measured by the streams."""
LITELLM_RATE: Final = 15.0


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of everything; a smoke takes little."""

    rounds: int = 3
    requests: int = 6000
    litellm_requests: int = 200
    latency_s: float = 8.0
    tokens: int = 100
    stream_tokens: int = 24_000
    litellm_stream_tokens: int = 4_000
    latency_rate: float = LATENCY_RATE
    held_streams: int = 1000
    held_tokens: int = 60


SMOKE: Final = Scale(
    rounds=1, requests=300, litellm_requests=20, latency_s=1.0, tokens=20, stream_tokens=600,
    litellm_stream_tokens=200, latency_rate=100.0, held_streams=100, held_tokens=10,
)  # fmt: skip


def _body(**more: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": "Say something short, please."}], **more}


def small_requests(proxy: Proxy, scale: Scale) -> Order:
    """As many small answers as it takes, sixteen at a time."""
    count = scale.litellm_requests if proxy.name == "litellm" else scale.requests
    return Order(proxy.url, CHAT, _body(max_tokens=ANSWER_TOKENS), count, proxy.headers, concurrency=16)


def steady(proxy: Proxy, scale: Scale, rate: float) -> Order:
    """Small answers at a steady rate."""
    count = max(10, int(rate * scale.latency_s))
    return Order(proxy.url, CHAT, _body(max_tokens=ANSWER_TOKENS), count, proxy.headers, rate=rate)


def rate_for(proxy: Proxy, scale: Scale) -> float:
    """The asked rate, or what litellm can bear."""
    return min(LITELLM_RATE, scale.latency_rate) if proxy.name == "litellm" else scale.latency_rate


def streams(proxy: Proxy, scale: Scale, count: int) -> Order:
    """`count` streams at a time."""
    tokens = scale.litellm_stream_tokens if proxy.name == "litellm" else scale.stream_tokens
    if count == 1:
        tokens //= 20  # one stream is slow to make tokens
    requests = max(count, tokens // scale.tokens)
    requests -= requests % count
    return Order(
        proxy.url,
        CHAT,
        _stream_body(scale.tokens, PACE_MS[count]),
        requests,
        proxy.headers,
        concurrency=count,
    )


def held_streams(proxy: Proxy, scale: Scale) -> Order:
    """Many streams open at once, slow ones: for memory."""
    count, body = scale.held_streams, _stream_body(scale.held_tokens, HELD_PACE_MS)
    return Order(proxy.url, CHAT, body, count, proxy.headers, concurrency=count)


def _stream_body(tokens: int, pace_ms: float) -> dict[str, Any]:
    return _body(max_tokens=tokens, stream=True, stream_options={"include_usage": True}, seed=int(pace_ms))
