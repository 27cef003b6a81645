"""Going on: a request whose executor was lost, hung, drains or skipped tokens continues on another.

Promises: the client's answer stays one answer, with one id, and every token once; a request is taken where
`core.failover.choose` says, from the tokens in its ledger; what cannot go on exactly starts over while the
client has nothing of it, and else ends with `not_resumable`; a request that fails again and again without a
new token is given up, since it may be the cause.
Concurrency: runs on the task of its request; the client's leaving ends it at once.
"""

import logging
from collections.abc import Callable, Sequence
from math import inf
from typing import Final

from superinfer_core.failover.choice import Candidate, choose, next_deadline_in_ms
from superinfer_core.failover.retry import RetryPolicy
from superinfer_core.refusal import Refusal, RefusalCode
from superinfer_core.slo import RequestSlo
from superinfer_ingress.executors.estimates import prefill_ms, tokens_of
from superinfer_ingress.executors.fleet import Fleet
from superinfer_ingress.executors.link import ExecutorLink
from superinfer_ingress.inflight import InFlight
from superinfer_ingress.interruption import Cause, Interruption, Resume
from superinfer_ingress.placement import ELSEWHERE_MAY_HELP, Placement, Work

_log = logging.getLogger("superinfer.ingress.resumption")

_LOOK_AGAIN_S: Final = 0.5
"""How often a request on an executor that drains looks for another."""
_SUSPECT_MS: Final = 1000.0
"""How long an engine that just failed a request is left alone, even where there is no other."""
_MOST_HOLDERS: Final = 8

Done = Callable[[InFlight], bool]


class Resumption:
    """Takes requests of this ingress elsewhere."""

    def __init__(
        self,
        fleet: Fleet,
        placement: Placement,
        *,
        policy: RetryPolicy,
        clock_ms: Callable[[], float],
        counted: Callable[[Cause, str], None],
    ) -> None:
        self._fleet = fleet
        self._placement = placement
        self._policy = policy
        self._clock_ms = clock_ms
        self._counted = counted

    async def until(self, journey: "Journey", done: Done) -> None:
        """Return once `done(request)` or the request has ended, taking it elsewhere as often as needed."""
        request = journey.request
        while request.ending is None:
            if request.interruption is not None:
                await self._go_on(journey, request.interruption)
            elif done(request):
                return
            elif request.leaves and self._leaves(request, journey.work):
                request.interrupt(Cause.HANDED_OVER, "its executor drains", self._clock_ms())
            else:
                await request.wait(_Needs(done, request), _LOOK_AGAIN_S if request.leaves else None)

    def _leaves(self, request: InFlight, work: Work) -> bool:
        """Whether a request on an executor that drains has somewhere to go, and can."""
        links = self._links(work)
        return _continues(request) and any(
            self._fleet.is_fresh(link) for link in links if link is not request.executor
        )

    async def _go_on(self, journey: "Journey", cut: Interruption) -> None:
        """One new attempt that was taken, or the end of the request."""
        request = journey.request
        journey.cut(cut)
        refusal = self._prepare(request, cut)
        looks = 0
        while refusal is None and request.ending is None:
            waited_ms = self._clock_ms() - cut.at_ms
            if self._policy.gives_up(failures_in_a_row=journey.failures, waited_ms=waited_ms):
                refusal = _given_up(cut, journey.failures, waited_ms)
                break
            taken = await self._try(journey, cut, waited_ms)
            if taken is True:
                self._counted(cut.cause, "resumed" if request.ledger.tokens else "restarted")
                return
            if isinstance(taken, Refusal):
                refusal = taken
                break
            looks += 1
            await request.wait(_over, self._policy.pause_ms(looks) / 1000.0)
        if request.ending is None and refusal is not None:
            _log.warning("request %s cannot go on: %s", request.request_id, refusal.message)
            self._counted(cut.cause, refusal.code.value)
            request.give_up(refusal)

    def _prepare(self, request: InFlight, cut: Interruption) -> Refusal | None:
        """Make sure that going on is exact; the refusal where it cannot be."""
        if self._policy.attempts == 0:
            cannot = cut.cause is Cause.CANNOT_RESUME
            return Refusal(RefusalCode.NOT_RESUMABLE if cannot else RefusalCode.ENGINE_FAILED, cut.why)
        if _continues(request) and cut.cause is not Cause.CANNOT_RESUME:
            if not _exact(request):
                request.start_over()
            return None
        if not request.client_has_something:
            request.start_over()
            return None
        return Refusal(
            RefusalCode.NOT_RESUMABLE,
            f"{cut.why}; it cannot go on exactly elsewhere, and part of the answer was sent: ask again",
        )

    async def _try(self, journey: "Journey", cut: Interruption, waited_ms: float) -> bool | Refusal:
        """True: it runs somewhere. False: not yet. A refusal: never."""
        request, work, slo = journey.request, journey.work, journey.slo
        links = {link.name: link for link in self._links(work)}
        tokens = (request.prompt_tokens or tokens_of(len(work.body.raw))) + request.ledger.tokens
        holders = journey.holders(links)
        now_ms = self._clock_ms()
        candidates = [
            self._candidate(
                link,
                tokens,
                holds=link.name in holders and journey.copied_to(link),
                suspect=journey.suspects(link),
                now_ms=now_ms,
            )
            for link in links.values()
        ]
        chosen = choose(candidates, self._remaining_ms(request, work, slo, now_ms))
        if chosen is None or chosen.available_in_ms > 0 or (chosen.suspect and waited_ms < _SUSPECT_MS):
            return False
        link = links[chosen.executor]
        addresses = [links[name].settings.address for name in holders if name in links]
        resume = Resume(cut.cause, journey.left, link.name, cut.at_ms, now_ms, request.ledger.tokens, tokens)
        journey.begins(link)
        request.resumes_with(resume)
        refusal = await self._placement.resume(
            request, work, slo, link, holders=addresses, work_ms=chosen.recompute_ms
        )
        if refusal is None:
            return True
        if refusal.code not in ELSEWHERE_MAY_HELP:
            return refusal
        request.resumes.remove(resume)
        request.interruption = cut
        return False

    def _links(self, work: Work) -> Sequence[ExecutorLink]:
        return self._fleet.serving_model(self._fleet.in_pool(work.pool), work.body.model)

    def _candidate(
        self, link: ExecutorLink, tokens: int, *, holds: bool, suspect: bool, now_ms: float
    ) -> Candidate:
        load = link.load
        away_ms = 0.0
        if not self._fleet.is_fresh(link):
            # A report that is merely late says nothing of how long the next one takes.
            away_ms = link.outages.left_ms(now_ms) or self._policy.longest_pause_ms
            away_ms = inf if load is not None and load.draining else away_ms
        return Candidate(
            executor=link.name,
            available_in_ms=away_ms,
            backlog_ms=0.0 if load is None else load.backlog_ms + link.sent_since_report_ms,
            recompute_ms=prefill_ms(link, tokens),
            holds_checkpoint=holds,
            requests=len(link.requests),
            suspect=suspect,
        )

    @staticmethod
    def _remaining_ms(request: InFlight, work: Work, slo: RequestSlo, now_ms: float) -> float:
        return next_deadline_in_ms(
            now_ms=now_ms,
            arrived_ms=work.arrived_ms,
            first_token_ms=request.ledger.first_ms,
            tokens=max((choice.tokens for choice in request.ledger.choices), default=0),
            ttft_ms=slo.ttft_ms,
            itl_ms=slo.itl_ms,
            e2e_ms=slo.e2e_ms,
        )


class Journey:
    """A request, what it was promised, where it has been, and what speaks against going back there."""

    def __init__(self, request: InFlight, work: Work, slo: RequestSlo) -> None:
        self.request = request
        self.work = work
        self.slo = slo
        self._tokens = -1
        self._failed: dict[str, str] = {}
        self._generation = _generation(request.executor)
        self._holders: list[str] = []
        self._copies: set[str] = set()
        self.failures = 0
        self.left = ""

    def cut(self, cut: Interruption) -> None:
        """It was interrupted on the executor it had."""
        executor = self.request.executor
        assert isinstance(executor, ExecutorLink)
        self.left = executor.name
        if cut.cause not in (Cause.EXECUTOR_LOST, Cause.CANNOT_RESUME):
            self._failed[executor.name] = self._generation
        if cut.cause is not Cause.HANDED_OVER:
            tokens = self.request.ledger.tokens
            self.failures = 1 if tokens > self._tokens else self.failures + 1
            self._tokens = tokens
        # Its own sidecar first: it outlives its engine, and has what was not copied yet.
        latest = list(dict.fromkeys((executor.name, *executor.checkpoint_peers)))
        self._copies.update(latest if executor.checkpoint_peers else ())
        self._holders = [*latest, *(name for name in self._holders if name not in latest)][:_MOST_HOLDERS]

    def begins(self, link: ExecutorLink) -> None:
        """It goes on there."""
        self._generation = _generation(link)

    def suspects(self, link: ExecutorLink) -> bool:
        """Whether it failed this request and is still the same engine."""
        return self._failed.get(link.name) == _generation(link)

    def copied_to(self, link: ExecutorLink) -> bool:
        """Whether it is known to keep checkpoints of the request."""
        return link.name in self._copies

    def holders(self, links: dict[str, ExecutorLink]) -> list[str]:
        """Executors that may hold its blocks and can be asked, the latest first."""
        return [name for name in self._holders if name in links and links[name].connected]


class _Needs:
    """Whether a request that waits has to be looked after."""

    def __init__(self, done: Done, request: InFlight) -> None:
        self._done = done
        self._left = request.leaves

    def __call__(self, request: InFlight) -> bool:
        """See the class."""
        return (
            request.ending is not None
            or request.interruption is not None
            or (request.leaves and not self._left)
            or self._done(request)
        )


def _generation(executor: object) -> str:
    engine = executor.engine if isinstance(executor, ExecutorLink) else None
    return "" if engine is None else engine.generation


def _exact(request: InFlight) -> bool:
    """Whether its delivered tokens can be taken up elsewhere."""
    return request.resumable and request.ledger.resumable


def _continues(request: InFlight) -> bool:
    """Whether it can go on without the client noticing: exactly, or from its beginning."""
    return _exact(request) or not request.client_has_something


def _over(request: InFlight) -> bool:
    return request.ending is not None


def _given_up(cut: Interruption, failures: int, waited_ms: float) -> Refusal:
    return Refusal(
        RefusalCode.ENGINE_FAILED,
        f"{cut.why}; given up after {failures} failures in a row and {waited_ms / 1000.0:.1f} s: ask again",
    )
