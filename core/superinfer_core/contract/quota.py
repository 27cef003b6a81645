"""A contract's quota: token buckets for requests and tokens, and a count of requests in flight.

Promises: over any interval the requests let through are at most one burst plus rate times interval, the burst
being one second's worth (at least one request) and one minute's worth of tokens. Tokens are reserved by an
estimate when a request starts and settled when it ends; what was underestimated becomes debt that the rate
pays back. Over-quota is decided before anything is queued, and always says when to come back.

`now_ms` is passed in. A QuotaState belongs to one event loop or lock: it is mutable and not thread-safe.
With several ingress replicas each takes its part of the rate (`replicas`), so a contract's total holds to
within one replica's share: parts are rounded up so that nobody's share is zero.
"""

import math
from dataclasses import dataclass
from typing import Final

from superinfer_core.contract.effective import Quota

_MINUTE_MS: Final = 60_000.0
_SECOND_MS: Final = 1_000.0
_DEFAULT_HOLD_MS: Final = 1_000.0
_HOLD_SMOOTHING: Final = 0.1


@dataclass(frozen=True, slots=True)
class QuotaRefusal:
    """Which limit is used up, and in how many milliseconds another try can succeed."""

    limit: str
    allowed: str
    retry_after_ms: float


class _Bucket:
    """Fills at `rate_per_ms` up to `capacity`; may owe."""

    __slots__ = ("capacity", "level", "rate_per_ms", "updated_ms")

    def __init__(self, rate_per_ms: float, capacity: float, now_ms: float) -> None:
        self.rate_per_ms = rate_per_ms
        self.capacity = capacity
        self.level = capacity
        self.updated_ms = now_ms

    def refill(self, now_ms: float) -> None:
        # A clock that steps back must not mint tokens twice.
        if now_ms > self.updated_ms:
            self.level = min(self.capacity, self.level + (now_ms - self.updated_ms) * self.rate_per_ms)
            self.updated_ms = now_ms

    def wait_ms(self, amount: float) -> float:
        """Milliseconds until `amount` is there; 0 if it is."""
        missing = min(amount, self.capacity) - self.level
        return missing / self.rate_per_ms if missing > 1e-9 else 0.0

    def resize(self, rate_per_ms: float, capacity: float) -> None:
        # Keep the share that was left: a change in the number of replicas is no present to anyone.
        self.level = self.level * (capacity / self.capacity) if self.level > 0 else self.level
        self.rate_per_ms, self.capacity = rate_per_ms, capacity


class QuotaState:
    """What one ingress has let through of one contract."""

    __slots__ = ("_hold_ms", "_in_flight", "_quota", "_replicas", "_requests", "_tokens")

    def __init__(self, quota: Quota, *, now_ms: float, replicas: int = 1) -> None:
        self._quota = quota
        self._replicas = max(1, replicas)
        self._in_flight = 0
        self._hold_ms = _DEFAULT_HOLD_MS
        rates = self._rates()
        self._requests = _Bucket(*rates[0], now_ms) if rates[0] else None
        self._tokens = _Bucket(*rates[1], now_ms) if rates[1] else None

    @property
    def in_flight(self) -> int:
        """Requests taken and not finished."""
        return self._in_flight

    def take(self, now_ms: float, *, estimated_tokens: int = 0) -> QuotaRefusal | None:
        """Let one request through (None), or say which limit stops it. A refusal changes nothing."""
        refusals = []
        if self._requests is not None:
            self._requests.refill(now_ms)
            if (wait := self._requests.wait_ms(1.0)) > 0:
                allowed = f"{self._quota.requests_per_second:g} requests per second"
                refusals.append(QuotaRefusal("requestsPerSecond", allowed, wait))
        if self._tokens is not None:
            self._tokens.refill(now_ms)
            if (wait := self._tokens.wait_ms(max(1, estimated_tokens))) > 0:
                allowed = f"{self._quota.tokens_per_minute} tokens per minute"
                refusals.append(QuotaRefusal("tokensPerMinute", allowed, wait))
        limit = self._concurrency()
        if limit is not None and self._in_flight >= limit:
            allowed = f"{self._quota.concurrency} requests at a time"
            refusals.append(QuotaRefusal("concurrency", allowed, self._hold_ms / limit))
        if refusals:
            return max(refusals, key=lambda refusal: refusal.retry_after_ms)
        if self._requests is not None:
            self._requests.level -= 1.0
        if self._tokens is not None:
            self._tokens.level -= max(0, estimated_tokens)
        self._in_flight += 1
        return None

    def finish(
        self, now_ms: float, *, taken_ms: float, estimated_tokens: int = 0, actual_tokens: int = 0
    ) -> None:
        """Settle a request that `take` let through: served, refused later, failed or cancelled.

        Call it exactly once per successful take, with the same estimate. A request that never ran has
        `actual_tokens=0`; its place in requests per second stays spent.
        """
        self._in_flight = max(0, self._in_flight - 1)
        held = max(0.0, now_ms - taken_ms)
        self._hold_ms += (held - self._hold_ms) * _HOLD_SMOOTHING
        if self._tokens is not None:
            self._tokens.refill(now_ms)
            level = self._tokens.level + max(0, estimated_tokens) - max(0, actual_tokens)
            self._tokens.level = min(self._tokens.capacity, level)

    def update(self, now_ms: float, *, quota: Quota | None = None, replicas: int | None = None) -> None:
        """Follow an edited contract or another number of ready ingress replicas; requests in flight stay."""
        self._quota = quota if quota is not None else self._quota
        self._replicas = max(1, replicas) if replicas is not None else self._replicas
        requests, tokens = self._rates()
        self._requests = _resized(self._requests, requests, now_ms)
        self._tokens = _resized(self._tokens, tokens, now_ms)

    def _concurrency(self) -> int | None:
        return (
            None if self._quota.concurrency is None else math.ceil(self._quota.concurrency / self._replicas)
        )

    def _rates(self) -> tuple[tuple[float, float] | None, tuple[float, float] | None]:
        requests, tokens = self._quota.requests_per_second, self._quota.tokens_per_minute
        part = None if requests is None else requests / self._replicas
        minute = None if tokens is None else tokens / self._replicas
        return (
            None if part is None else (part / _SECOND_MS, max(1.0, part)),
            None if minute is None else (minute / _MINUTE_MS, max(1.0, minute)),
        )


def _resized(bucket: _Bucket | None, rates: tuple[float, float] | None, now_ms: float) -> _Bucket | None:
    if rates is None:
        return None
    if bucket is None:
        return _Bucket(*rates, now_ms)
    bucket.refill(now_ms)
    bucket.resize(*rates)
    return bucket
