"""Where a cut request has been, what speaks against going back there, and what speaks against itself.

Promises: of one ingress, at most one request that may be what brings engines down is tried on an executor
at a time; its trial is over with its first new token, its next loss or its end.
Concurrency: owned by the event loop; a Journey by the task of its request.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final

from superinfer_core.failover.blame import Blame, Fate
from superinfer_core.slo import RequestSlo
from superinfer_ingress.executors.link import ExecutorLink
from superinfer_ingress.inflight import InFlight
from superinfer_ingress.interruption import Cause, Interruption
from superinfer_ingress.placement import Work

_MOST_HOLDERS: Final = 8
_MOST_EXPLAINED: Final = 256

_FATES: Final = {
    Cause.EXECUTOR_LOST: Fate.EXECUTOR,
    Cause.ENGINE_FAILED: Fate.ENGINE,
    Cause.HANDED_OVER: Fate.PLANNED,
    Cause.GAP: Fate.ENGINE,
    Cause.CANNOT_RESUME: Fate.ENGINE,
}


class Journey:
    """A request, what it was promised, where it has been, and what speaks against going back there."""

    def __init__(self, request: InFlight, work: Work, slo: RequestSlo) -> None:
        self.request = request
        self.work = work
        self.slo = slo
        self.blame = Blame()
        self.left = ""
        self._tokens = 0
        """What it had when its attempt began."""
        self._failed: dict[str, str] = {}
        self._generation = _generation(request.executor)
        self._ended: set[str] = set()
        """Engines that speak against it."""
        self._holders: list[str] = []
        self._copies: set[str] = set()

    def cut(self, cut: Interruption) -> bool:
        """It was interrupted on the executor it had; whether that speaks against it."""
        executor = self.request.executor
        assert isinstance(executor, ExecutorLink)
        self.left = executor.name
        if cut.cause not in (Cause.EXECUTOR_LOST, Cause.CANNOT_RESUME):
            self._failed[executor.name] = self._generation
        deaths = self.blame.deaths
        spoke = self.request.ledger.tokens > self._tokens
        self.blame = self.blame.after(_FATES[cut.cause], begun=cut.begun, spoke=spoke, now_ms=cut.at_ms)
        counts = self.blame.deaths > deaths
        if spoke:
            self._ended.clear()
        elif counts:
            self._ended.add(self._generation)
        # Its own sidecar first: it outlives its engine, and has what was not copied yet.
        latest = list(dict.fromkeys((executor.name, *executor.checkpoint_peers)))
        self._copies.update(latest if executor.checkpoint_peers else ())
        self._holders = [*latest, *(name for name in self._holders if name not in latest)][:_MOST_HOLDERS]
        return counts

    def begins(self, link: ExecutorLink) -> None:
        """It goes on there."""
        self._generation = _generation(link)
        self._tokens = self.request.ledger.tokens

    def is_tried_on(self, name: str) -> bool:
        """Whether it runs there and has said nothing new yet."""
        request = self.request
        executor = request.executor
        return (
            executor is not None
            and executor.name == name
            and request.ending is None
            and request.interruption is None
            and request.ledger.tokens <= self._tokens
        )

    def unexplained(self, links: Iterable[ExecutorLink], trials: "Trials") -> int:
        """Engines that ended, since the first that speaks against it, with nobody suspicious aboard."""
        return sum(
            at_ms >= self.blame.since_ms and generation not in self._ended and not trials.explain(generation)
            for link in links
            for at_ms, generation in link.ends.latest
        )

    def suspects(self, link: ExecutorLink) -> bool:
        """Whether it failed this request and is still the same engine."""
        return self._failed.get(link.name) == _generation(link)

    def copied_to(self, link: ExecutorLink) -> bool:
        """Whether it is known to keep checkpoints of the request."""
        return link.name in self._copies

    def holders(self, links: Mapping[str, ExecutorLink]) -> list[str]:
        """Executors that may hold its blocks and can be asked, the latest first."""
        return [name for name in self._holders if name in links and links[name].connected]

    @property
    def engine(self) -> str:
        """Generation of the engine its latest attempt is, or was, on."""
        return self._generation


class Trials:
    """Which executor tries which suspect, and which engines' ends suspects explain."""

    def __init__(self) -> None:
        self._on: dict[str, Journey] = {}
        self._explained: OrderedDict[str, None] = OrderedDict()

    def begin(self, name: str, journey: Journey) -> None:
        """This executor tries this request."""
        for other in tuple(self._on):  # nobody asks about executors that are gone
            self.busy(other)
        self._on[name] = journey

    def busy(self, name: str) -> bool:
        """Whether this executor is trying one."""
        journey = self._on.get(name)
        if journey is not None and not journey.is_tried_on(name):
            del self._on[name]
            return False
        return journey is not None

    def note(self, generation: str) -> None:
        """A suspect was aboard when this engine ended."""
        self._explained[generation] = None
        if len(self._explained) > _MOST_EXPLAINED:
            self._explained.popitem(last=False)

    def explain(self, generation: str) -> bool:
        """Whether one was."""
        return generation in self._explained


def _generation(executor: object) -> str:
    engine = executor.engine if isinstance(executor, ExecutorLink) else None
    return "" if engine is None else engine.generation
