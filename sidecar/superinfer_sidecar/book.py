"""Every request the sidecar holds, counted where it is and bounded before it enters.

Pure bookkeeping with one owner (the Desk): a request is in exactly one stage, and the counts are those of the
stages. Nothing here decides.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from superinfer_core.failover.hang import Work
from superinfer_core.scheduling.state import Phase
from superinfer_sidecar.tracked import Stage, Tracked

LARGEST_BODY_BYTES: Final = 32 << 20
"""Bodies travel whole, in messages that must stay below gRPC's bound."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What may wait here (rendering or queued), and what may be here at all."""

    requests: int
    body_bytes: int
    total_requests: int = 1 << 14


class Book:
    """The requests of one sidecar."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self.by_id: dict[str, Tracked] = {}
        self.rendering: dict[str, Tracked] = {}
        self.queued: dict[str, Tracked] = {}
        self.dispatched: dict[str, Tracked] = {}
        self.dispatched_places = 0
        self.waiting_bytes = 0

    def __len__(self) -> int:
        return len(self.by_id)

    def fits(self, body_bytes: int) -> bool:
        """Whether a body of this size could ever wait here."""
        return body_bytes <= min(self._bounds.body_bytes, LARGEST_BODY_BYTES)

    def has_room(self, body_bytes: int) -> bool:
        """Whether one more request of this size may wait here."""
        waiting = len(self.rendering) + len(self.queued)
        bounds = self._bounds
        return (
            waiting < bounds.requests
            and len(self.by_id) < bounds.total_requests
            and self.waiting_bytes + body_bytes <= bounds.body_bytes
        )

    def enter(self, request: Tracked) -> None:
        """Take a new request in; its id must be free."""
        self.by_id[request.request_id] = request
        self.rendering[request.request_id] = request
        self.waiting_bytes += request.body_bytes

    def queue(self, request: Tracked) -> None:
        """From rendering to queued."""
        del self.rendering[request.request_id]
        self.queued[request.request_id] = request
        request.stage = Stage.QUEUED

    def dispatch(self, request: Tracked) -> None:
        """From queued to dispatched."""
        del self.queued[request.request_id]
        self.dispatched[request.request_id] = request
        self.dispatched_places += request.places
        self.waiting_bytes -= request.body_bytes
        request.stage = Stage.DISPATCHED

    def leave(self, request: Tracked) -> Stage:
        """Forget a request; answers the stage it was in."""
        stage = request.stage
        if stage is Stage.GONE:
            return stage
        del self.by_id[request.request_id]
        if stage is Stage.DISPATCHED:
            del self.dispatched[request.request_id]
            self.dispatched_places -= request.places
        else:
            del (self.rendering if stage is Stage.RENDERING else self.queued)[request.request_id]
            self.waiting_bytes -= request.body_bytes
        request.stage = Stage.GONE
        return stage

    def engine_work(self) -> Work:
        """What the engine has to do."""
        if self.dispatched:
            moving = any(request.phase is not Phase.WAITING for request in self.dispatched.values())
            return Work.MOVING if moving else Work.WAITING
        return Work.SIZING if self.rendering else Work.NONE

    def admitted(self) -> Iterator[Tracked]:
        """Queued and dispatched requests."""
        yield from self.dispatched.values()
        yield from self.queued.values()
