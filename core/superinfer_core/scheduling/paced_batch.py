"""The decoding batch of a rollout: everyone at the pace of its promise, and what a step then takes.

Promise: deterministic. Owned by one rollout; not thread-safe.

Whoever pauses decodes just fast enough, so a member is done when its pace says so. Steps are as long as the
tightest pace that can be kept; a member of a slower pace decodes in a share of them. What a member is ahead
of its pace it may rest at first: that time is what a short prefill gets even where the batch is full.
"""

from bisect import bisect_left, insort
from heapq import heappop, heappush
from math import inf

_Member = tuple[float, float, float, float, int]
"""When it is done at its pace, pace, ms a token, tokens everyone had won when it came, places."""


class PacedBatch:
    """Who decodes, and how long a step is while they do.

    Attributes:
        cap_ms: the longest step the plan allows.
        step_ms: length of a step; see `settle`.
        fixed_ms: what of it is decoding.
        places: places taken.
        tokens_ms: what a token of every member adds to a step.
    """

    __slots__ = (
        "_base_ms",
        "_members",
        "_pausing",
        "_resting",
        "_slower",
        "_stale",
        "_won",
        "_work",
        "cap_ms",
        "fixed_ms",
        "places",
        "step_ms",
        "tokens_ms",
    )

    def __init__(self, base_ms: float, *, pausing: bool) -> None:
        self._base_ms = base_ms
        self._pausing = pausing
        self._members: list[_Member] = []
        self._resting: list[tuple[float, float, float]] = []  # (until, pace, ms a token)
        self._work: list[tuple[float, float]] = []  # (pace, ms a token) by pace
        self._slower = 0.0  # sum of ms a token over pace
        self._won = 0.0
        self._stale = True
        self.cap_ms = inf
        self.step_ms = self.fixed_ms = 0.0
        self.places = 0
        self.tokens_ms = 0.0

    def join(
        self,
        now_ms: float,
        tokens: float,
        pace_ms: float,
        token_ms: float,
        places: int,
        rest_ms: float = 0.0,
    ) -> None:
        """Start to decode `tokens`, after a rest; without a pace one comes with every step."""
        if not 0 < pace_ms < inf:
            pace_ms = max(1e-6, self.step_ms or self._base_ms + self.tokens_ms + token_ms)
        until_ms = now_ms + max(0.0, rest_ms)
        heappush(self._members, (until_ms + tokens * pace_ms, pace_ms, token_ms, self._won, places))
        self.tokens_ms += token_ms
        self.places += places
        self._stale = True
        if until_ms > now_ms:
            heappush(self._resting, (until_ms, pace_ms, token_ms))
        else:
            self._decode(pace_ms, token_ms)

    def settle(self) -> None:
        """Find the length of a step and the decoding in it."""
        if not self._stale:
            return
        self._stale = False
        slower, always = self._slower, 0.0
        for pace_ms, token_ms in self._work:
            if pace_ms >= self.cap_ms:
                break
            always += token_ms
            slower -= token_ms / pace_ms
            fixed_ms = self._fixed(always, slower, pace_ms)
            if fixed_ms < pace_ms:
                self.step_ms, self.fixed_ms = pace_ms, fixed_ms
                return
        self.step_ms, self.fixed_ms = self.cap_ms, self._fixed(always, slower, self.cap_ms)

    def _fixed(self, always_ms: float, slower: float, step_ms: float) -> float:
        """Decoding of a step: of whoever needs a token in each, and of the others' shares."""
        if not self._pausing:
            return self._base_ms + self.tokens_ms
        return self._base_ms + always_ms + step_ms * max(0.0, slower)

    def changes_ms(self) -> float:
        """When the first has rested enough or is done at its pace; infinite where nobody decodes."""
        done_ms = self._members[0][0] if self._members else inf
        return min(done_ms, self._resting[0][0]) if self._resting else done_ms

    def change(self) -> bool:
        """Let the first at `changes_ms` go on or leave; whether its places came free."""
        if self._resting and self._resting[0][0] <= self._members[0][0]:
            _, pace_ms, token_ms = heappop(self._resting)
            self._decode(pace_ms, token_ms)
            return False
        self._leave()
        return True

    def hurry(self, now_ms: float) -> float:
        """Everyone decodes in every step until the first is done, who leaves; answers when that is."""
        while self._resting:
            _, pace_ms, token_ms = heappop(self._resting)
            self._decode(pace_ms, token_ms)
        done_ms, pace_ms, _, since, _ = self._members[0]
        step_ms = max(1e-6, self._base_ms + self.tokens_ms)
        left = max(1.0, (done_ms - now_ms) / pace_ms - (self._won - since))
        took = min(left * step_ms, max(step_ms, done_ms - now_ms))
        self._won += max(0.0, took / step_ms - took / pace_ms)
        self._leave()
        return now_ms + took

    def _decode(self, pace_ms: float, token_ms: float) -> None:
        insort(self._work, (pace_ms, token_ms))
        self._slower += token_ms / pace_ms
        self._stale = True

    def _leave(self) -> None:
        _, pace_ms, token_ms, _, places = heappop(self._members)
        del self._work[bisect_left(self._work, (pace_ms, token_ms))]
        self._slower -= token_ms / pace_ms
        self.tokens_ms -= token_ms
        self.places -= places
        self._stale = True
