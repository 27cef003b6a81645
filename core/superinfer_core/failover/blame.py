"""Is a request what brings engines down? What its losses in a row say of it. Pure.

A request can bring down the engine that has it, again and again, and then it must not be handed from one to
the next for ever. One that waits, or whose blocks are being fetched, cannot: no engine has it yet. Nor is it
to blame where more than the engine is gone (its sidecar, its pod, its node), since the sidecar outlives an
engine that crashes. So what counts is an engine that ended while it had the request and had given no token
of it. Where engines end with nobody suspicious aboard as well, that speaks for everybody.
"""

from dataclasses import dataclass
from enum import Enum, auto
from math import inf


class Fate(Enum):
    """What ended an attempt."""

    ENGINE = auto()  # the engine ended or failed the request; its sidecar lives and says so
    EXECUTOR = auto()  # the sidecar went, or the way to it, and perhaps the engine
    PLANNED = auto()  # it was asked to leave


@dataclass(frozen=True, slots=True)
class Blame:
    """What speaks against one request: losses in a row, without one new token.

    Attributes:
        deaths: engines that ended while they had it.
        losses: executors lost while their engine had it.
        since_ms: when the first of the deaths was noticed; infinite while there is none.
    """

    deaths: int = 0
    losses: int = 0
    since_ms: float = inf

    def after(self, fate: Fate, *, begun: bool, spoke: bool, now_ms: float) -> "Blame":
        """What speaks against it once another attempt has ended.

        Args:
            fate: what ended the attempt.
            begun: an engine had been given the attempt.
            spoke: the attempt gave a new token.
            now_ms: of the event.
        """
        if spoke:
            return Blame()
        if not begun or fate is Fate.PLANNED:
            return self
        if fate is Fate.EXECUTOR:
            return Blame(self.deaths, self.losses + 1, self.since_ms)
        return Blame(self.deaths + 1, self.losses, min(self.since_ms, now_ms))


@dataclass(frozen=True, slots=True)
class BlamePolicy:
    """How much of it is too much.

    Attributes:
        deaths: more than so many engines in a row are too many, where no others end.
        excused: at most so many more, one for each engine that ended meanwhile with nobody suspicious aboard.
        losses: more than so many losses of either kind in a row are too many, whatever else is known.
    """

    deaths: int = 4
    excused: int = 4
    losses: int = 16

    @staticmethod
    def of(attempts: int) -> "BlamePolicy":
        """The bounds that go with a setting of so many attempts."""
        return BlamePolicy(deaths=attempts, excused=attempts, losses=4 * attempts)

    def alone(self, blame: Blame) -> bool:
        """Whether it is to be tried with no other suspect beside it.

        Who was beside a request that brings engines down has the same record. Alone it has not; so only a
        request that failed alone, and more than once, is ever given up.
        """
        return blame.deaths >= max(1, self.deaths // 2)

    def suspicious(self, blame: Blame) -> bool:
        """Whether it explains the end of an engine that had it: it was there at another one's end, too."""
        return blame.deaths >= min(2, max(1, self.deaths))

    def condemns(self, blame: Blame, *, unexplained: int) -> bool:
        """Whether it is given up.

        Args:
            blame: what speaks against it.
            unexplained: engines that ended since the first of its deaths with nobody suspicious aboard.
        """
        if blame.deaths + blame.losses > self.losses:
            return True
        return blame.deaths > self.deaths + min(max(0, unexplained), self.excused)
