"""The closed list of ways a request can fail, and the HTTP status each maps to.

One list for refusals, errors inside streams, metric labels and documentation: refusals never look
alike, and a counter never grows a label nobody planned.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class RefusalCode(StrEnum):
    """Machine-readable `code` of an OpenAI error object, and the `reason` label of metrics."""

    SLO_INFEASIBLE = "slo_infeasible"
    SATURATED = "saturated"
    SHED = "shed"
    QUOTA_EXCEEDED = "quota_exceeded"
    NO_EXECUTORS = "no_executors"
    SHUTTING_DOWN = "shutting_down"
    DEADLINE_EXPIRED = "deadline_expired"
    ENGINE_FAILED = "engine_failed"
    NOT_RESUMABLE = "not_resumable"
    UNKNOWN_CONTRACT = "unknown_contract"
    MODEL_NOT_FOUND = "model_not_found"
    INVALID_SLO = "invalid_slo"
    INVALID_REQUEST = "invalid_request"
    CONTEXT_LENGTH = "context_length"
    TOO_LARGE = "too_large"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"


HTTP_STATUS: Final[Mapping[RefusalCode, int]] = MappingProxyType(
    {
        RefusalCode.SLO_INFEASIBLE: 425,
        RefusalCode.SATURATED: 429,
        RefusalCode.SHED: 429,
        RefusalCode.QUOTA_EXCEEDED: 429,
        RefusalCode.NO_EXECUTORS: 503,
        RefusalCode.SHUTTING_DOWN: 503,
        RefusalCode.DEADLINE_EXPIRED: 504,
        RefusalCode.ENGINE_FAILED: 502,
        RefusalCode.NOT_RESUMABLE: 502,
        RefusalCode.UNKNOWN_CONTRACT: 404,
        RefusalCode.MODEL_NOT_FOUND: 404,
        RefusalCode.INVALID_SLO: 400,
        RefusalCode.INVALID_REQUEST: 400,
        RefusalCode.CONTEXT_LENGTH: 400,
        RefusalCode.TOO_LARGE: 413,
        RefusalCode.UNAUTHORIZED: 401,
        RefusalCode.FORBIDDEN: 403,
    }
)

COUNTS_AGAINST_AVAILABILITY: Final[frozenset[RefusalCode]] = frozenset(
    {
        RefusalCode.SLO_INFEASIBLE,
        RefusalCode.SATURATED,
        RefusalCode.SHED,
        RefusalCode.NO_EXECUTORS,
        RefusalCode.SHUTTING_DOWN,
        RefusalCode.DEADLINE_EXPIRED,
        RefusalCode.ENGINE_FAILED,
        RefusalCode.NOT_RESUMABLE,
    }
)
"""Bad requests, over-quota and hang-ups count neither way."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request was not served, with what a client needs to ask for something that would be.

    `predicted_ms`, `required_ms` and `tightest_ms` are of `metric`; they are None where no deadline was
    involved. `retry` is False where the very same request must not be sent again. `harm` marks work that is
    refused for others' sake: its own objectives could have been kept.
    """

    code: RefusalCode
    message: str
    param: str | None = None
    metric: str | None = None
    predicted_ms: float | None = None
    required_ms: float | None = None
    tightest_ms: float | None = None
    feasible_when_idle: bool | None = None
    retry_after_ms: float | None = None
    harm: bool = False
    retry: bool = True
