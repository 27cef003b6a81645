"""What is known of one request when it is over: one record for accounts, metrics, access log, request log."""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from superinfer_core.contract.effective import EffectiveContract
from superinfer_core.contract.fulfilment import RequestOutcome
from superinfer_core.refusal import RefusalCode
from superinfer_core.slo import RequestSlo
from superinfer_ingress.contracts.accounts import Account
from superinfer_ingress.interruption import Resume


class Served(StrEnum):
    """Under what a request was served: the value of x-superinfer-outcome."""

    AS_ASKED = "as-asked"
    DEGRADED = "degraded"
    FALLBACK = "fallback"


@dataclass(slots=True, eq=False)
class Record:
    """Filled in as a request goes along; read once at its end."""

    request_id: str
    client_id: str
    path: str
    arrived_ms: float
    contract: EffectiveContract | None = None
    account: Account | None = None
    slo: RequestSlo | None = None
    served: Served = Served.AS_ASKED
    served_by: EffectiveContract | None = None
    executor: str = ""
    stream: bool = False
    status: int = 0
    code: RefusalCode | None = None
    cancelled: bool = False
    too_slow: bool = False
    admitted: bool = False
    predicted_ttft_ms: float | None = None
    predicted_e2e_ms: float | None = None
    predicted_slack_ms: float | None = None
    ttft_ms: float | None = None
    itl_ms: float | None = None
    e2e_ms: float | None = None
    jitter_ms: float | None = None
    prompt_tokens: int = 0
    output_tokens: int = 0
    preempted: int = 0
    cached_tokens: int = 0
    resumes: tuple[Resume, ...] = ()
    kept: bool = False
    charges: list["Charge"] = field(default_factory=list)

    @property
    def contract_key(self) -> str:
        """namespace/serviceID, or "" without a contract."""
        return self.contract.key if self.contract is not None else ""

    @property
    def tier(self) -> str:
        """Gold, Silver, Bronze, or "" without a contract."""
        return self.contract.tier.value if self.contract is not None else ""

    @property
    def recomputed_tokens(self) -> int:
        """What its last executor had to compute again: neither restored from a checkpoint nor cached."""
        return max(0, self.resumes[-1].computed_tokens - self.cached_tokens) if self.resumes else 0

    def outcome(self) -> RequestOutcome:
        """The end of the request as fulfilment counts it."""
        return RequestOutcome(
            contract=self.contract_key,
            admitted=self.admitted and self.served is Served.AS_ASKED,
            ttft_ms=self.ttft_ms,
            itl_ms=self.itl_ms,
            e2e_ms=self.e2e_ms,
            jitter_ms=self.jitter_ms,
            output_tokens=self.output_tokens,
            refusal=self.code,
            cancelled=self.cancelled,
            degraded=self.served is not Served.AS_ASKED,
        )

    def fallback_outcome(self) -> RequestOutcome:
        """The same end, as the contract it fell back to counts it."""
        return replace(self.outcome(), admitted=self.admitted, degraded=False)

    def slack_ms(self) -> float | None:
        """What was left of the tightest objective at the end; negative is by how much it was missed."""
        slo = self.slo
        if slo is None or not self.admitted:
            return None
        left = [
            target - measured
            for target, measured in (
                (slo.ttft_ms, self.ttft_ms),
                (slo.itl_ms, self.itl_ms),
                (slo.e2e_ms, self.e2e_ms),
            )
            if target is not None and measured is not None
        ]
        return min(left, default=None)

    def as_json(self) -> dict[str, Any]:
        """The line of the request log. Holds no text of the client's."""
        return {
            "id": self.client_id or self.request_id,
            "request_id": self.request_id,
            "contract": self.contract_key,
            "tier": self.tier,
            "outcome": self.served.value,
            "executor": self.executor,
            "stream": self.stream,
            "status": self.status,
            "code": self.code.value if self.code is not None else None,
            "cancelled": self.cancelled,
            "predicted_ttft_ms": _rounded(self.predicted_ttft_ms),
            "ttft_ms": _rounded(self.ttft_ms),
            "predicted_e2e_ms": _rounded(self.predicted_e2e_ms),
            "e2e_ms": _rounded(self.e2e_ms),
            "itl_ms": _rounded(self.itl_ms),
            "jitter_ms": _rounded(self.jitter_ms),
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": self.output_tokens,
            "kept": self.kept,
            "preempted": self.preempted,
            "resumes": [
                {
                    "cause": resume.cause.value,
                    "left": resume.left,
                    "taken_by": resume.taken_by,
                    "lost_at_ms": _rounded(resume.lost_at_ms),
                    "decision_ms": _rounded(resume.sent_at_ms - resume.lost_at_ms),
                    "delivered_tokens": resume.delivered_tokens,
                    "gap_ms": _rounded(resume.gap_ms),
                }
                for resume in self.resumes
            ],
            "recomputed_tokens": self.recomputed_tokens,
        }


@dataclass(frozen=True, slots=True)
class Charge:
    """A quota that let this request through and has to be settled when it ends."""

    account: Account
    taken_ms: float
    estimated_tokens: int


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
