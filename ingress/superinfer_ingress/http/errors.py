"""Refusals as a client sees them: OpenAI error objects with a machine-readable code.

One mapping from the closed list of refusals to status, body and headers; everything that fails goes
through it, so refusals never look alike and no error leaves in another form. Pure.
"""

import math
from collections.abc import Mapping
from typing import Final

import msgspec

from superinfer_core.refusal import HTTP_STATUS, Refusal, RefusalCode

HeaderList = list[tuple[bytes, bytes]]

_TYPES: Final[Mapping[RefusalCode, str]] = {
    RefusalCode.SLO_INFEASIBLE: "slo_error",
    RefusalCode.SATURATED: "rate_limit_error",
    RefusalCode.SHED: "rate_limit_error",
    RefusalCode.QUOTA_EXCEEDED: "rate_limit_error",
    RefusalCode.NO_EXECUTORS: "server_error",
    RefusalCode.SHUTTING_DOWN: "server_error",
    RefusalCode.DEADLINE_EXPIRED: "slo_error",
    RefusalCode.ENGINE_FAILED: "server_error",
    RefusalCode.NOT_RESUMABLE: "server_error",
    RefusalCode.UNAUTHORIZED: "authentication_error",
    RefusalCode.FORBIDDEN: "permission_error",
}

_DEFAULT_RETRY_MS: Final[Mapping[RefusalCode, float]] = {
    RefusalCode.SATURATED: 1000.0,
    RefusalCode.SHED: 1000.0,
    RefusalCode.QUOTA_EXCEEDED: 1000.0,
    RefusalCode.NO_EXECUTORS: 2000.0,
    RefusalCode.SHUTTING_DOWN: 1000.0,
}
"""Where whoever refused could not compute when a retry would help."""

_MAX_RETRY_MS: Final = 3_600_000.0

_encode: Final = msgspec.json.Encoder().encode


class Refused(Exception):
    """A request is not served; carries why. `status` overrides the table where HTTP has a closer one."""

    def __init__(
        self,
        refusal: Refusal,
        *,
        status: int | None = None,
        close: bool = False,
        allow: str | None = None,
        retry_after_ms: float | None = None,
    ) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal
        self.status = status
        self.close = close
        self.allow = allow
        self.retry_after_ms = retry_after_ms
        """Where the code by itself says nothing of retrying."""


def refused(code: RefusalCode, message: str, param: str | None = None) -> Refused:
    """The common case of a refusal without figures."""
    return Refused(Refusal(code, message, param))


def status_of(code: RefusalCode, infeasible_status: int) -> int:
    """HTTP status of a refusal; 425 can be configured away, nothing else can."""
    return infeasible_status if code is RefusalCode.SLO_INFEASIBLE else HTTP_STATUS[code]


def error_object(refusal: Refusal) -> dict[str, object]:
    """The OpenAI error object, with the figures a client needs to ask for something that would pass."""
    error: dict[str, object] = {
        "message": refusal.message,
        "type": _TYPES.get(refusal.code, "invalid_request_error"),
        "param": refusal.param,
        "code": refusal.code.value,
    }
    figures = {
        "metric": refusal.metric,
        "predicted_ms": _rounded(refusal.predicted_ms),
        "required_ms": _rounded(refusal.required_ms),
        "tightest_ms": _rounded_up(refusal.tightest_ms),
        "feasible_when_idle": refusal.feasible_when_idle,
    }
    error.update({name: value for name, value in figures.items() if value is not None})
    if refusal.harm:
        error["harm"] = True
    return {"error": error}


def error_body(refusal: Refusal) -> bytes:
    """The whole body of an error response."""
    return _encode(error_object(refusal))


def error_event(refusal: Refusal) -> bytes:
    """An error inside a stream that has begun. No [DONE] follows: the stream did not finish."""
    return b"data: " + error_body(refusal) + b"\n\n"


def error_headers(refusal: Refusal) -> HeaderList:
    """Headers that tell an SDK whether and when to retry."""
    headers: HeaderList = [(b"content-type", b"application/json")]
    if refusal.code is RefusalCode.SLO_INFEASIBLE or not refusal.retry:
        headers.append((b"x-should-retry", b"false"))
        return headers
    if refusal.code is RefusalCode.UNAUTHORIZED:
        headers.append((b"www-authenticate", b"Bearer"))
    default = _DEFAULT_RETRY_MS.get(refusal.code)
    if default is not None:
        retry_ms = refusal.retry_after_ms
        if retry_ms is None or not retry_ms > 0 or math.isinf(retry_ms):
            retry_ms = default
        retry_ms = min(retry_ms, _MAX_RETRY_MS)
        headers.append((b"retry-after", str(max(1, math.ceil(retry_ms / 1000.0))).encode()))
        headers.append((b"retry-after-ms", str(max(1, math.ceil(retry_ms))).encode()))
    return headers


def _rounded(value: float | None) -> float | None:
    """Milliseconds to a tenth; JSON has no infinity, so what is not finite is left out."""
    return round(value, 1) if value is not None and math.isfinite(value) else None


def _rounded_up(value: float | None) -> float | None:
    """A target that would pass must still pass once it is rounded."""
    return math.ceil(value * 10.0) / 10.0 if value is not None and math.isfinite(value) else None
