"""The aims of bench-ingress are ratios within one run."""

from typing import Any

from superinfer_bench.ingress.aims import aims


def row(proxy: str, streams: int, tokens: float, requests: float, p99: float) -> dict[str, Any]:
    return {
        "proxy": proxy,
        "streams": streams,
        "tokens_per_core_s": tokens,
        "requests_per_core_s": requests,
        "added_ms": {"p50": 1.0, "p99": p99},
    }


def test_ratios_decide() -> None:
    runs = [
        row(proxy, streams, tokens, requests, p99)
        for proxy, tokens, requests, p99 in (
            ("superinfer", 30_000.0, 2_500.0, 4.0),
            ("vllm-router", 20_000.0, 4_700.0, 1.5),
            ("litellm", 670.0, 42.0, 90.0),
        )
        for streams in (1, 64, 256)
    ]
    found = {aim.name: aim for aim in aims(runs, {"sidecar, 256 streams": 60.0})}
    assert found["requests per core-second over vllm-router's"].met
    assert found["tokens per core-second over vllm-router's, 64 streams"].got == 1.5
    assert not found["p99 added at 500 requests/s over vllm-router's"].met
    assert found["sidecar with 256 streams"].met
    assert not found["ingress with 1,000 streams"].met


def test_nothing_measured_meets_no_aim() -> None:
    assert not any(aim.met for aim in aims([], {}))
