"""Going on: a request whose executor was lost, hung, drains or skipped tokens continues on another.

Promises: the client's answer stays one answer, with one id, and every token once; a request is taken where
`core.failover.choose` says, from the tokens in its ledger; what cannot go on exactly starts over while the
client has nothing of it, and else ends with `not_resumable`; one that engine after engine ends under, without
a new token, is tried where no other such request is, and then given up, as `core.failover.blame` says.
Concurrency: runs on the task of its request; the client's leaving ends it at once.
"""

import logging
from collections.abc import Callable, Sequence
from math import inf
from typing import Final

from superinfer_core.failover.blame import BlamePolicy
from superinfer_core.failover.choice import Candidate, choose, next_deadline_in_ms
from superinfer_core.failover.retry import RetryPolicy
from superinfer_core.refusal import Refusal, RefusalCode
from superinfer_core.slo import RequestSlo
from superinfer_ingress.executors.estimates import prefill_ms, tokens_of
from superinfer_ingress.executors.fleet import Fleet
from superinfer_ingress.executors.link import ExecutorLink
from superinfer_ingress.inflight import InFlight
from superinfer_ingress.interruption import Cause, Interruption, Resume
from superinfer_ingress.journey import Journey, Trials
from superinfer_ingress.placement import ELSEWHERE_MAY_HELP, Placement, Work

_log = logging.getLogger("superinfer.ingress.resumption")

_LOOK_AGAIN_S: Final = 0.5
"""How often a request on an executor that drains looks for another."""
_SUSPECT_MS: Final = 1000.0
"""How long an engine that just failed a request is left alone, even where there is no other."""
_TRIAL_LOOK_S: Final = 0.02
"""How often a suspect looks whether another one's trial is over: that takes as long as a first token."""

Done = Callable[[InFlight], bool]


class Resumption:
    """Takes requests of this ingress elsewhere."""

    def __init__(
        self,
        fleet: Fleet,
        placement: Placement,
        *,
        policy: RetryPolicy,
        blame: BlamePolicy,
        clock_ms: Callable[[], float],
        counted: Callable[[Cause, str], None],
    ) -> None:
        self._fleet = fleet
        self._placement = placement
        self._policy = policy
        self._blame = blame
        self._trials = Trials()
        self._clock_ms = clock_ms
        self._counted = counted

    async def until(self, journey: Journey, done: Done) -> None:
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

    async def _go_on(self, journey: Journey, cut: Interruption) -> None:
        """One new attempt that was taken, or the end of the request."""
        request = journey.request
        if journey.cut(cut) and self._blame.suspicious(journey.blame):
            self._trials.note(journey.engine)
        refusal = self._prepare(request, cut) or self._condemned(journey, cut)
        looks, since_ms, for_trials_ms = 0, cut.at_ms, 0.0
        while refusal is None and request.ending is None:
            now_ms = self._clock_ms()
            if self._policy.gives_up(now_ms - since_ms):
                refusal = self._waited_in_vain(cut, now_ms - since_ms)
                break
            alone = self._blame.alone(journey.blame) and for_trials_ms < self._policy.within_ms
            taken = await self._try(journey, cut, now_ms - since_ms, alone=alone)
            if taken is True:
                self._counted(cut.cause, "resumed" if request.ledger.tokens else "restarted")
                return
            if isinstance(taken, Refusal):
                refusal = taken
                break
            looks += 1
            if alone and self._others_are_on_trial(journey):
                await request.wait(_over, _TRIAL_LOOK_S)
                # An executor is there, so this is no time without one; it has a bound of its own.
                since_ms += self._clock_ms() - now_ms
                for_trials_ms += self._clock_ms() - now_ms
            else:
                await request.wait(_over, self._policy.pause_ms(looks) / 1000.0)
        if request.ending is None and refusal is not None:
            _log.warning("request %s cannot go on: %s", request.request_id, refusal.message)
            self._counted(cut.cause, refusal.code.value)
            request.give_up(refusal)

    def _condemned(self, journey: Journey, cut: Interruption) -> Refusal | None:
        """The refusal of a request that engine after engine ended under."""
        blame = journey.blame
        if not self._blame.condemns(blame, unexplained=journey.unexplained(self._fleet.links, self._trials)):
            return None
        lost = f", and {blame.losses} executors were lost under it" if blame.losses else ""
        return Refusal(
            RefusalCode.ENGINE_FAILED,
            f"{cut.why}; given up: {blame.deaths} engines in a row failed while they had this request and"
            f" before they gave a token of it{lost} (resume.attempts: {self._blame.deaths}). It may be what"
            " brings them down: change it before you ask again",
            retry=False,
        )

    def _waited_in_vain(self, cut: Interruption, waited_ms: float) -> Refusal:
        return Refusal(
            RefusalCode.ENGINE_FAILED,
            f"{cut.why}; given up after {waited_ms / 1000.0:.1f} s in which no executor could take it"
            f" (resume.within: {self._policy.within_ms / 1000.0:g}): ask again",
        )

    def _others_are_on_trial(self, journey: Journey) -> bool:
        """Whether an executor that could take it tries another suspect."""
        links = self._links(journey.work)
        return any(self._trials.busy(link.name) and self._fleet.is_fresh(link) for link in links)

    def _prepare(self, request: InFlight, cut: Interruption) -> Refusal | None:
        """Make sure that going on is exact; the refusal where it cannot be."""
        if self._blame.deaths == 0:
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

    async def _try(
        self, journey: Journey, cut: Interruption, waited_ms: float, *, alone: bool
    ) -> bool | Refusal:
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
        chosen = choose(candidates, self._remaining_ms(request, work, slo, now_ms), alone=alone)
        if chosen is None or chosen.available_in_ms > 0 or (chosen.suspect and waited_ms < _SUSPECT_MS):
            return False
        link = links[chosen.executor]
        addresses = [links[name].settings.address for name in holders if name in links]
        resume = Resume(cut.cause, journey.left, link.name, cut.at_ms, now_ms, request.ledger.tokens, tokens)
        journey.begins(link)
        if alone:
            self._trials.begin(link.name, journey)
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
            on_trial=self._trials.busy(link.name),
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


def _exact(request: InFlight) -> bool:
    """Whether its delivered tokens can be taken up elsewhere."""
    return request.resumable and request.ledger.resumable


def _continues(request: InFlight) -> bool:
    """Whether it can go on without the client noticing: exactly, or from its beginning."""
    return _exact(request) or not request.client_has_something


def _over(request: InFlight) -> bool:
    return request.ending is not None
