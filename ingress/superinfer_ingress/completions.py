"""POST /v1/chat/completions and /v1/completions: from the first header to the last token.

The order is: gate, key, headers, body, contract, length, quota, placement, delivery. Everything that can be
refused without an executor is refused before one hears of the request. Each step raises `Refused`; the one
place that turns refusals into answers is `handle`.
Concurrency: one call per request, on its own task; tokens bypass that task (see inflight).
"""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

from superinfer_core.contract.effective import EffectiveContract
from superinfer_core.contract.fulfilment import kept
from superinfer_core.contract.headers import HeaderSlo, parse_slo_headers
from superinfer_core.contract.problems import InvalidSlo
from superinfer_core.contract.request_slo import best_effort_slo, request_slo
from superinfer_core.refusal import Refusal, RefusalCode
from superinfer_core.slo import OnInfeasible, RequestSlo
from superinfer_core.words import shown
from superinfer_ingress.config import Config
from superinfer_ingress.contracts.accounts import Account, Accounts
from superinfer_ingress.contracts.selection import Asker, Directory, select
from superinfer_ingress.executors.fleet import Fleet
from superinfer_ingress.http.body import ClientGone, ParsedBody, check_length, parse_body
from superinfer_ingress.http.errors import HeaderList, Refused, error_event, refused, status_of
from superinfer_ingress.http.exchange import Exchange
from superinfer_ingress.inflight import Ending, InFlight
from superinfer_ingress.journey import Journey
from superinfer_ingress.ledger import LedgerBudget
from superinfer_ingress.placement import Placement, Work
from superinfer_ingress.reach import Reach
from superinfer_ingress.record import Charge, Record, Served
from superinfer_ingress.resumption import Resumption

FindAsker = Callable[[Exchange], Awaitable[Asker]]
"""Who sent a request, by its key; raises Refused where that is not good enough."""

_SSE: Final = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
_JSON: Final = [(b"content-type", b"application/json")]
_BYTES_PER_TOKEN: Final = 4
_LONGEST_FALLBACK_CHAIN: Final = 4


@dataclass(frozen=True, slots=True)
class Clocks:
    """Monotonic milliseconds for every duration; wall clock only for `created` and absolute deadlines."""

    monotonic_ms: Callable[[], float]
    unix_ms: Callable[[], float]


class Completions:
    """Serves completions; one per process."""

    def __init__(
        self,
        config: Config,
        *,
        fleet: Fleet,
        placement: Placement,
        resumption: Resumption,
        accounts: Accounts,
        directory: Callable[[], Directory],
        reach: Reach,
        ledgers: LedgerBudget,
        clocks: Clocks,
        finished: Callable[[Record], None],
    ) -> None:
        self._config = config
        self._fleet = fleet
        self._placement = placement
        self._resumption = resumption
        self._accounts = accounts
        self._directory = directory
        self._reach = reach
        self._ledgers = ledgers
        self._clocks = clocks
        self._finished = finished
        self._in_flight: set[Record] = set()
        self._live: set[InFlight] = set()
        self.draining = False
        self.leaving = False
        """Going to drain: requests are still taken, and nobody should send any."""

    @property
    def in_flight(self) -> int:
        """Requests inside this ingress."""
        return len(self._in_flight)

    def cut(self) -> None:
        """The grace period is over: end whatever still runs, with an error its client can read."""
        for request in list(self._live):
            request.on_shutdown()

    async def handle(self, exchange: Exchange, path: str, find_asker: FindAsker) -> None:
        """Serve one request, or refuse it; never raises."""
        record = Record(
            request_id=exchange.request_id,
            client_id=exchange.client_request_id,
            path=path,
            arrived_ms=self._clocks.monotonic_ms(),
        )
        self._in_flight.add(record)
        try:
            await self._serve(exchange, record, find_asker)
        except Refused as refusal:
            record.code = refusal.refusal.code
            record.status = refusal.status or status_of(record.code, self._config.infeasible_status)
            self._refuse(exchange, record, refusal)
        except (ClientGone, asyncio.CancelledError) as gone:
            record.cancelled = True
            if isinstance(gone, asyncio.CancelledError):
                raise
        except Exception:
            record.code, record.status = RefusalCode.ENGINE_FAILED, 500  # a bug of ours counts against us
            raise
        finally:
            self._in_flight.discard(record)
            self._settle(record)

    def _refuse(self, exchange: Exchange, record: Record, refusal: Refused) -> None:
        exchange.refuse(refusal.refusal, record.status, self._headers(record), close=refusal.close)

    async def _serve(self, exchange: Exchange, record: Record, find_asker: FindAsker) -> None:
        asker = await find_asker(exchange)
        asked = self._slo_headers(exchange)
        self._gate(record, asker, asked)
        body = parse_body(await exchange.body(), self._config.limits)
        record.stream = body.stream
        contract = self._contract(asker, asked, body.model)
        self._note_contract(record, contract)
        pool = contract.pool if contract is not None else self._reach.best_effort_pool(asker, body.model)
        self._check_model(pool, body)
        now_ms = self._clocks.monotonic_ms()
        window = None
        if record.account is not None:
            self._charge(record, record.account, body, now_ms)
            window = record.account.state(now_ms)
        record.slo = request_slo(contract, asked, window)
        request = InFlight(record.request_id, exchange.writer, stream=body.stream, budget=self._ledgers)
        self._live.add(request)
        try:
            work = Work(
                path=record.path,
                body=body,
                pool=pool,
                namespace=contract.namespace if contract is not None else "",
                arrived_ms=record.arrived_ms,
                created_s=int(self._clocks.unix_ms() / 1000.0),
            )
            journey = await self._place(request, work, record)
            await self._deliver(exchange, journey, record)
        finally:
            self._live.discard(request)
            request.stop()
            self._read(record, request)
            request.ledger.close()

    def _gate(self, record: Record, asker: Asker, asked: HeaderSlo) -> None:
        """Refuse before the body is read what this process cannot take; its contract counts it."""
        if not self.draining and len(self._in_flight) <= self._config.limits.in_flight:
            return
        with contextlib.suppress(Refused):
            self._note_contract(record, self._contract(asker, asked, model=None))
        if self.draining:
            raise refused(RefusalCode.SHUTTING_DOWN, "this ingress is shutting down; send the request again")
        raise refused(
            RefusalCode.SATURATED, f"{self._config.limits.in_flight} requests are in flight; try again later"
        )

    def _note_contract(self, record: Record, contract: EffectiveContract | None) -> None:
        record.contract = contract
        if contract is not None:
            record.account = self._accounts.of(contract)

    def _slo_headers(self, exchange: Exchange) -> HeaderSlo:
        try:
            return parse_slo_headers(exchange.fields, self._clocks.unix_ms())
        except InvalidSlo as error:
            raise refused(RefusalCode.INVALID_SLO, str(error), error.field) from None

    def _contract(self, asker: Asker, asked: HeaderSlo, model: str | None) -> EffectiveContract | None:
        default = None
        if model is not None and asked.contract_id is None:
            default = self._reach.default_contract(asker, model)
        return select(
            self._directory(),
            asker,
            contract_id=asked.contract_id,
            pool_default=default,
            best_effort_allowed=self._config.without_contract == "BestEffort",
        )

    def _check_model(self, pool: str | None, body: ParsedBody) -> None:
        links = self._fleet.in_pool(pool)
        announced = [link.engine for link in links if link.engine is not None]
        if not announced:
            where = f"pool {pool}" if pool is not None else "this ingress"
            raise refused(RefusalCode.NO_EXECUTORS, f"{where} has no executor serving yet; try again shortly")
        lengths = [engine.max_model_len for engine in announced if engine.model == body.model]
        if not lengths:
            names = ", ".join(sorted({engine.model for engine in announced})[:5])
            raise refused(
                RefusalCode.MODEL_NOT_FOUND,
                f"model: there is no {shown(body.model)} here; write one of {names}",
                "model",
            )
        check_length(body, max(lengths), self._config.limits)

    def _charge(self, record: Record, account: Account, body: ParsedBody, now_ms: float) -> None:
        estimate = len(body.raw) // _BYTES_PER_TOKEN + (body.max_tokens or 0) * body.choices
        stopped = account.quota.take(now_ms, estimated_tokens=estimate)
        if stopped is not None:
            raise Refused(
                Refusal(
                    RefusalCode.QUOTA_EXCEEDED,
                    f"contract {account.contract.key} is over its quota.{stopped.limit} of {stopped.allowed};"
                    f" try again in {stopped.retry_after_ms / 1000.0:.1f} s",
                    retry_after_ms=stopped.retry_after_ms,
                )
            )
        record.charges.append(Charge(account, now_ms, estimate))

    async def _place(self, request: InFlight, work: Work, record: Record) -> Journey:
        """Find an executor; where the promise cannot be kept, do what the contract says instead."""
        assert record.slo is not None
        refusal = await self._placement.place(request, work, record.slo)
        if refusal is None:
            return Journey(request, work, record.slo)
        if refusal.code is RefusalCode.SLO_INFEASIBLE:
            contract, seen = record.contract, 0
            while contract is not None and seen < _LONGEST_FALLBACK_CHAIN:
                seen += 1
                slo, contract = self._instead(contract, work, record)
                if slo is None:
                    continue
                degraded = record.served is Served.DEGRADED
                there = work if record.served_by is None else replace(work, pool=record.served_by.pool)
                if await self._placement.place(request, there, slo, skip_admission=degraded) is None:
                    return Journey(request, there, slo)
        record.served = Served.AS_ASKED
        raise Refused(refusal)

    def _instead(
        self, contract: EffectiveContract, work: Work, record: Record
    ) -> tuple[RequestSlo | None, EffectiveContract | None]:
        """What to try under `contract`'s onInfeasible, and the contract whose onInfeasible comes after that.

        A fallback is served by the fallback's own targets: the headers tightened the promise that could not
        be kept. Its quota counts; its access does not, since the owner of the contract chose it.
        """
        if contract.on_infeasible is OnInfeasible.DEGRADE:
            record.served, record.served_by = Served.DEGRADED, None
            return best_effort_slo(record.contract), None
        if contract.on_infeasible is OnInfeasible.REJECT or contract.fallback is None:
            return None, None
        fallback = self._directory().by_key.get(contract.fallback)
        if fallback is None:
            return None, None
        account = self._accounts.of(fallback)
        now_ms = self._clocks.monotonic_ms()
        try:
            self._charge(record, account, work.body, now_ms)
        except Refused:
            return None, fallback
        record.served, record.served_by = Served.FALLBACK, fallback
        return request_slo(fallback, window=account.state(now_ms)), fallback

    async def _deliver(self, exchange: Exchange, journey: Journey, record: Record) -> None:
        request = journey.request
        record.admitted = request.decision is not None and request.decision.admitted
        self._note_prediction(record, request)
        await self._resumption.until(journey, _speaks if request.stream else _ended)
        if request.stream and (request.has_output or request.ending is Ending.FINISHED):
            await self._stream(exchange, journey, record)
            return
        if request.ending is Ending.FINISHED:
            record.status = 200
            exchange.answer(200, [*_JSON, *self._headers(record, request)], request.final_body)
            return
        if request.failure is not None:
            raise Refused(request.failure)
        raise ClientGone

    async def _stream(self, exchange: Exchange, journey: Journey, record: Record) -> None:
        request = journey.request
        record.status = 200
        exchange.begin(200, [*_SSE, *self._headers(record, request)])
        if not request.flush():
            request.on_client_too_slow()
        await self._resumption.until(journey, _ended)
        if request.ending is Ending.FINISHED:
            exchange.writer.end(request.final_body)
        elif request.failure is not None:
            record.code = request.failure.code
            exchange.writer.end(error_event(request.failure))
        else:
            if request.ending is Ending.CLIENT_TOO_SLOW:
                exchange.writer.abort()
            raise ClientGone

    def _note_prediction(self, record: Record, request: InFlight) -> None:
        """Of the executor that promised it: later ones go on with what was promised."""
        decision = request.decision
        if request.executor is not None:
            record.executor = request.executor.name
        if decision is not None and decision.admitted:
            record.predicted_ttft_ms = decision.ttft_ms
            record.predicted_e2e_ms = decision.e2e_ms
            record.predicted_slack_ms = decision.slack_ms

    def _headers(self, record: Record, request: InFlight | None = None) -> HeaderList:
        headers: HeaderList = []
        contract = record.served_by or record.contract
        if contract is not None:
            headers.append((b"x-superinfer-contract", contract.key.encode()))
        executor = record.executor if request is None or request.executor is None else request.executor.name
        if executor:
            headers.append((b"x-superinfer-executor", executor.encode()))
        if record.predicted_ttft_ms is not None:
            headers.append((b"x-superinfer-predicted-ttft-ms", b"%.1f" % record.predicted_ttft_ms))
        if record.predicted_e2e_ms is not None:
            headers.append((b"x-superinfer-predicted-e2e-ms", b"%.1f" % record.predicted_e2e_ms))
        if record.predicted_slack_ms is not None and math.isfinite(record.predicted_slack_ms):
            headers.append((b"x-superinfer-slack-ms", b"%.1f" % record.predicted_slack_ms))
        if record.status == 200:
            headers.append((b"x-superinfer-outcome", record.served.value.encode()))
        if request is not None and not (request.resumable and request.ledger.resumable):
            headers.append((b"x-superinfer-resumable", b"false"))
        return headers

    def _read(self, record: Record, request: InFlight) -> None:
        """What the ledger and the engine say about the request, once."""
        ledger = request.ledger
        first_ms = ledger.first_ms
        if first_ms is not None:
            record.ttft_ms = first_ms - record.arrived_ms
        choices = ledger.choices
        record.itl_ms = max((c.itl_ms for c in choices if c.itl_ms is not None), default=None)
        record.jitter_ms = max((c.jitter_ms for c in choices if c.jitter_ms is not None), default=None)
        if request.ending is Ending.FINISHED:
            record.e2e_ms = (
                max((c.last_ms for c in choices), default=0.0) - record.arrived_ms if choices else None
            )
        record.prompt_tokens = request.prompt_tokens
        record.output_tokens = ledger.tokens
        record.preempted = request.preempted
        record.resumes = tuple(request.resumes)
        if request.executor is not None:
            record.executor = request.executor.name
        if request.usage is not None:
            record.cached_tokens = request.usage.cached_tokens
        record.too_slow = request.ending is Ending.CLIENT_TOO_SLOW
        record.cancelled = record.too_slow or request.ending is Ending.CLIENT_LEFT

    def _settle(self, record: Record) -> None:
        now_ms = self._clocks.monotonic_ms()
        used = record.prompt_tokens + record.output_tokens
        for charge in record.charges:
            charge.account.quota.finish(
                now_ms,
                taken_ms=charge.taken_ms,
                estimated_tokens=charge.estimated_tokens,
                actual_tokens=used if charge.account is self._payer(record) else 0,
            )
        if record.account is not None:
            record.kept = record.account.record(now_ms, record.outcome(), record.slo)
            if record.served is Served.FALLBACK and record.served_by is not None:
                self._accounts.of(record.served_by).record(now_ms, record.fallback_outcome())
        elif record.slo is not None:
            record.kept = kept(record.outcome(), record.slo)
        self._finished(record)

    def _payer(self, record: Record) -> Account | None:
        """Whose tokens they were: the contract the request was served under."""
        if record.served is Served.FALLBACK and record.served_by is not None:
            return self._accounts.of(record.served_by)
        return record.account


def _ended(request: InFlight) -> bool:
    return request.ending is not None


def _speaks(request: InFlight) -> bool:
    return request.has_output
