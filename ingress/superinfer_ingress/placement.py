"""Getting one request onto an executor: submit, hear the decision, try at most one more, explain.

Promises: a request has at most one live attempt; a refusal by one executor is final only after one other was
asked (where another could help); of two refusals the client gets the one that tells it more.
Concurrency: one call per request, on its own task; it returns when the request has output, has ended, or is
refused.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from superinfer_core.refusal import Refusal, RefusalCode
from superinfer_core.slo import RequestSlo
from superinfer_ingress.executors.fleet import Fleet
from superinfer_ingress.executors.link import ExecutorLink
from superinfer_ingress.executors.wire import group_messages, slo_message
from superinfer_ingress.http.body import ParsedBody
from superinfer_ingress.inflight import InFlight
from superinfer_proto.v1 import work_pb2

ELSEWHERE_MAY_HELP: Final = frozenset(
    {
        RefusalCode.SLO_INFEASIBLE,
        RefusalCode.SATURATED,
        RefusalCode.SHED,
        RefusalCode.NO_EXECUTORS,
        RefusalCode.SHUTTING_DOWN,
    }
)
_MOST_TELLING: Final = (
    RefusalCode.SATURATED,  # one executor is only full: asking again can help, whatever the other says
    RefusalCode.SHED,
    RefusalCode.SLO_INFEASIBLE,
    RefusalCode.SHUTTING_DOWN,
    RefusalCode.NO_EXECUTORS,
)


@dataclass(frozen=True, slots=True)
class Work:
    """What is submitted, whatever the promise: the same for every attempt of a request."""

    path: str
    body: ParsedBody
    pool: str | None
    namespace: str
    arrived_ms: float
    created_s: int


class Placement:
    """Places requests on the executors of a fleet."""

    def __init__(
        self,
        fleet: Fleet,
        *,
        clock_ms: Callable[[], float],
        decision_timeout_ms: float,
        enforce: bool,
        salt_key: bytes | None = None,
    ) -> None:
        self._fleet = fleet
        self._clock_ms = clock_ms
        self._decision_timeout_s = decision_timeout_ms / 1000.0
        self._mode = work_pb2.ADMISSION_MODE_ENFORCE if enforce else work_pb2.ADMISSION_MODE_SKIP
        self._salt_key = salt_key or secrets.token_bytes(32)
        self._salts: dict[str, str] = {}

    async def place(
        self, request: InFlight, work: Work, slo: RequestSlo, *, skip_admission: bool = False
    ) -> Refusal | None:
        """Returns None once the request has output or has ended; the refusal if nobody takes it."""
        mode = work_pb2.ADMISSION_MODE_SKIP if skip_admission else self._mode
        first, link = await self._attempt(request, work, slo, mode, besides=None)
        if first is None or link is None or first.code not in ELSEWHERE_MAY_HELP:
            return first
        second, _ = await self._attempt(request, work, slo, mode, besides=link)
        return None if second is None else better_of(first, second)

    async def _attempt(
        self,
        request: InFlight,
        work: Work,
        slo: RequestSlo,
        mode: work_pb2.AdmissionMode,
        *,
        besides: ExecutorLink | None,
    ) -> tuple[Refusal | None, ExecutorLink | None]:
        if request.ending is not None:
            return None, None
        waited_ms = self._clock_ms() - work.arrived_ms
        choice = await self._fleet.choose(
            work.pool,
            work.body.model,
            body_bytes=len(work.body.raw),
            within_ms=None if slo.ttft_ms is None else slo.ttft_ms - waited_ms,
            besides=besides,
        )
        if request.ending is not None:
            return None, None
        if choice is None:
            return _nobody(work), None
        link, work_ms = choice
        self._submit(request, work, slo, mode, link, work_ms=work_ms)
        return await self._decided(request, link), link

    async def resume(
        self,
        request: InFlight,
        work: Work,
        slo: RequestSlo,
        link: ExecutorLink,
        *,
        holders: Sequence[str],
        work_ms: float,
    ) -> Refusal | None:
        """Go on with a request on `link`, whatever is predicted there: it has been promised.

        None once it runs there, has ended, or was interrupted again; the refusal if it was not taken.
        """
        mode = work_pb2.ADMISSION_MODE_SKIP
        self._submit(request, work, slo, mode, link, work_ms=work_ms, holders=holders)
        attempt = request.attempt
        if not await request.wait(_decided, self._decision_timeout_s) and request.decision is None:
            link.cancel(request)
            return Refusal(RefusalCode.NO_EXECUTORS, f"executor {link.name} did not answer in time")
        decision = request.decision if request.attempt == attempt else None
        return None if decision is None else decision.refusal

    def _submit(
        self,
        request: InFlight,
        work: Work,
        slo: RequestSlo,
        mode: work_pb2.AdmissionMode,
        link: ExecutorLink,
        *,
        work_ms: float,
        holders: Sequence[str] = (),
    ) -> None:
        now_ms = self._clock_ms()
        first_ms = request.ledger.first_ms
        message = work_pb2.Submit(
            request_id=request.request_id,
            attempt=request.begin_attempt(link),
            path=work.path,
            body=work.body.raw,
            slo=slo_message(
                slo,
                max(0.0, now_ms - work.arrived_ms),
                None if first_ms is None else max(0.0, now_ms - first_ms),
            ),
            admission=mode,
            cache_salt=self._salt(work.namespace),
            created_s=work.created_s,
            checkpoint_holders=holders,
        )
        if request.ledger.tokens:
            message.delivered.extend(group_messages(request.ledger.groups()))
        link.submit(request, message, work_ms=work_ms)

    async def _decided(self, request: InFlight, link: ExecutorLink) -> Refusal | None:
        if not await request.wait(_settled, self._decision_timeout_s):
            if request.decision is None:
                link.cancel(request)
                return Refusal(RefusalCode.NO_EXECUTORS, f"executor {link.name} did not answer in time")
            await request.wait(_settled)
        decision = request.decision
        if decision is not None:
            return decision.refusal
        interruption, request.interruption = request.interruption, None
        if interruption is not None:
            # Lost before it said yes: nothing was promised or delivered, so another one may try.
            return Refusal(RefusalCode.NO_EXECUTORS, interruption.why)
        return None

    def _salt(self, namespace: str) -> str:
        """Keeps the KV blocks of one namespace from ever being found by another."""
        salt = self._salts.get(namespace)
        if salt is None:
            salt = hmac.new(self._salt_key, namespace.encode(), hashlib.sha256).hexdigest()[:32]
            self._salts[namespace] = salt
        return salt


def better_of(first: Refusal, second: Refusal) -> Refusal:
    """The refusal that tells a client more: retryable before final, then the nearer miss."""
    if first.code is not second.code:
        return min(first, second, key=lambda refusal: _telling(refusal.code))
    if first.code is RefusalCode.SLO_INFEASIBLE:
        return min(first, second, key=_miss_ms)
    return min(first, second, key=lambda refusal: refusal.retry_after_ms or float("inf"))


def _telling(code: RefusalCode) -> tuple[int, str]:
    """What is wrong with the request itself comes before what is wrong with the executors."""
    return (_MOST_TELLING.index(code) if code in _MOST_TELLING else -1, code.value)


def _miss_ms(refusal: Refusal) -> float:
    if refusal.predicted_ms is None or refusal.required_ms is None:
        return float("inf")
    return refusal.predicted_ms - refusal.required_ms


def _settled(request: InFlight) -> bool:
    """Nothing more to wait for before the response can begin."""
    decision = request.decision
    return (
        request.ending is not None
        or request.has_output
        or request.interruption is not None
        or (decision is not None and (request.leaves or not decision.admitted))
    )


def _decided(request: InFlight) -> bool:
    """Taken, refused, or nothing to wait for any more."""
    return request.ending is not None or request.interruption is not None or request.decision is not None


def _nobody(work: Work) -> Refusal:
    where = f" in pool {work.pool}" if work.pool is not None else ""
    return Refusal(
        RefusalCode.NO_EXECUTORS, f"no executor{where} is serving {work.body.model} now; try again shortly"
    )
