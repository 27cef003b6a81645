"""What the engine asks of, and tells to, whoever owns a request.

The owner is one request of the service (serving/stream.py); the engine is given it through a context
variable, because vLLM's serving layer stands between the two.
"""

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class DeliveredGroup:
    """Tokens of one choice that came out of one engine step of an earlier attempt."""

    choice: int
    token_ids: Sequence[int]
    finish_reason: str = ""
    stop_reason: str = ""


class EngineRequest(Protocol):
    """One request as the engine sees it."""

    @property
    def streams(self) -> bool:
        """Whether the serving layer gets every step; else only the whole, while steps are still told."""

    @property
    def interleaved(self) -> bool:
        """Whether several generators of this request are read at once (several prompts)."""

    @property
    def parsed(self) -> bool:
        """Whether a parser stands between generated text and what is sent."""

    @property
    def priority(self) -> int:
        """Lower goes first in the engine; 0 unless its priority policy runs."""

    @property
    def delivered(self) -> Sequence[DeliveredGroup]:
        """Groups to resume from, in delivery order."""

    def extra_args(self) -> Mapping[str, Any]:
        """The promise, as the scheduler reads it, at this moment."""

    def engine_id(self, prompt: int, choice: int) -> str:
        """The id the engine shall use for one choice; unique per attempt."""

    def prompt_number(self) -> int:
        """Called once per generator, in prompt order: the number of its prompt."""

    def told(self, prompt: int, output: Any, *, replayed: bool) -> None:
        """One step's output of one choice, before the serving layer sees it."""

    def settled(self, prompt: int, output: Any) -> None:
        """The serving layer has made everything it makes of that output."""

    def failed(self, error: BaseException) -> None:
        """The engine could not go on with this request."""


CURRENT_REQUEST: ContextVar[EngineRequest | None] = ContextVar("superinfer_current_request", default=None)
