"""What a client has received of one request: tokens in their groups, numbered, per choice.

Promises: a token is never written twice and never skipped, whoever sends it; memory is four bytes a
token and eight a group, counted over all requests, bounded by a budget beyond which a request keeps its
numbers but gives up its ids (it can then no longer be resumed).
Concurrency: owned by the event loop; every method is plain and short, one call per engine output.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto


class Verdict(Enum):
    """What to do with one output."""

    DELIVER = auto()
    DUPLICATE = auto()  # the client has it already
    GAP = auto()  # tokens before it never came: it must not be delivered


class LedgerBudget:
    """Tokens held by all ledgers of this process."""

    __slots__ = ("held_tokens", "limit_tokens")

    def __init__(self, limit_tokens: int) -> None:
        self.limit_tokens = limit_tokens
        self.held_tokens = 0


@dataclass(frozen=True, slots=True)
class Group:
    """Tokens of one choice that came out of one engine step."""

    choice: int
    first_token: int
    token_ids: Sequence[int]
    finish_reason: str = ""
    stop_reason: str = ""


class ChoiceLedger:
    """One choice of one request."""

    __slots__ = (
        "finish_reason",
        "first_ms",
        "group_ends",
        "last_ms",
        "max_gap_ms",
        "min_gap_ms",
        "stop_reason",
        "text_end",
        "token_ids",
        "tokens",
        "tool_end",
    )

    def __init__(self) -> None:
        self.tokens = 0
        self.token_ids: array[int] | None = array("I")
        self.group_ends = array("I")
        self.text_end = -1
        self.tool_end = -1
        self.finish_reason = ""
        self.stop_reason = ""
        self.first_ms = 0.0
        self.last_ms = 0.0
        self.min_gap_ms = float("inf")
        self.max_gap_ms = 0.0

    @property
    def jitter_ms(self) -> float | None:
        """Greatest minus least gap between its tokens; None with fewer than two gaps."""
        return self.max_gap_ms - self.min_gap_ms if len(self.group_ends) > 2 else None

    @property
    def itl_ms(self) -> float | None:
        """(last - first token) / (n - 1); None for fewer than two tokens."""
        return (self.last_ms - self.first_ms) / (self.tokens - 1) if self.tokens > 1 else None


class RequestLedger:
    """Every choice of one request."""

    __slots__ = ("_budget", "_choices", "resumable")

    def __init__(self, budget: LedgerBudget) -> None:
        self._budget = budget
        self._choices: dict[int, ChoiceLedger] = {}
        self.resumable = True

    @property
    def choices(self) -> Sequence[ChoiceLedger]:
        """The choices that have spoken so far."""
        return tuple(self._choices.values())

    @property
    def tokens(self) -> int:
        """Tokens delivered, over all choices."""
        return sum(choice.tokens for choice in self._choices.values())

    @property
    def first_ms(self) -> float | None:
        """When the first token of any choice came, on the loop's clock."""
        return min((c.first_ms for c in self._choices.values() if c.tokens), default=None)

    def record_tokens(
        self, choice: int, first_token: int, token_ids: Sequence[int], now_ms: float
    ) -> Verdict:
        """Account for tokens about to be delivered; the hot path, once per engine output."""
        ledger = self._choices.get(choice)
        if ledger is None:
            ledger = self._choices[choice] = ChoiceLedger()
        count = len(token_ids)
        have = ledger.tokens
        if first_token != have:
            return Verdict.DUPLICATE if first_token + count <= have else Verdict.GAP
        if have:
            gap = now_ms - ledger.last_ms
            if gap < ledger.min_gap_ms:
                ledger.min_gap_ms = gap
            if gap > ledger.max_gap_ms:
                ledger.max_gap_ms = gap
        else:
            ledger.first_ms = now_ms
        ledger.last_ms = now_ms
        ledger.tokens = have + count
        ledger.group_ends.append(have + count)
        if ledger.token_ids is not None:
            if count == 1:
                # Nearly every output is one token, and `extend` makes an iterator over protobuf's container.
                ledger.token_ids.append(token_ids[0])
            else:
                ledger.token_ids.extend(token_ids)
            budget = self._budget
            budget.held_tokens += count
            if budget.held_tokens > budget.limit_tokens:
                self._give_up_ids()
        return Verdict.DELIVER

    def record_end(
        self, choice: int, text_end: int, tool_end: int, finish_reason: str, stop_reason: str
    ) -> None:
        """Account for offsets and the end of a choice, after its output was accepted."""
        ledger = self._choices.get(choice)
        if ledger is None:
            ledger = self._choices[choice] = ChoiceLedger()
        if text_end > ledger.text_end:
            ledger.text_end = text_end
        if tool_end > ledger.tool_end:
            ledger.tool_end = tool_end
        if finish_reason:
            ledger.finish_reason = finish_reason
            ledger.stop_reason = stop_reason

    def repeats(self, choice: int, text_end: int, tool_end: int, finish_reason: str) -> bool:
        """Whether a chunk without tokens, sent after a resume, says nothing the client lacks."""
        ledger = self._choices.get(choice)
        if ledger is None:
            return False
        if finish_reason:
            return bool(ledger.finish_reason)
        return text_end <= ledger.text_end and tool_end <= ledger.tool_end

    def groups(self) -> list[Group]:
        """Everything delivered, in its groups, choice by choice: what a resume needs."""
        found: list[Group] = []
        for number, ledger in self._choices.items():
            if ledger.token_ids is None:
                continue
            start = 0
            for end in ledger.group_ends:
                last = end == ledger.tokens
                found.append(
                    Group(
                        choice=number,
                        first_token=start,
                        token_ids=ledger.token_ids[start:end],
                        finish_reason=ledger.finish_reason if last else "",
                        stop_reason=ledger.stop_reason if last else "",
                    )
                )
                start = end
        return found

    def forget(self) -> None:
        """Begin again: what was generated did not reach the client and never will."""
        self.close()
        self._choices.clear()
        self.resumable = True

    def close(self) -> None:
        """Give the memory back; called once, at the end of the request."""
        for ledger in self._choices.values():
            if ledger.token_ids is not None:
                self._budget.held_tokens -= len(ledger.token_ids)
                ledger.token_ids = None

    def _give_up_ids(self) -> None:
        self.resumable = False
        for ledger in self._choices.values():
            if ledger.token_ids is not None:
                self._budget.held_tokens -= len(ledger.token_ids)
                ledger.token_ids = None
