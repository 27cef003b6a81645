"""One request as the sidecar follows it, from submit to its last output."""

from dataclasses import dataclass, field
from enum import Enum, auto

from superinfer_core.scheduling.admission import Prediction
from superinfer_core.scheduling.state import Phase, RequestState
from superinfer_core.slo import RequestSlo
from superinfer_proto.v1 import work_pb2
from superinfer_sidecar.ports import IngressPort


class Stage(Enum):
    """How far a request has come."""

    RENDERING = auto()  # its size is being asked for; not admitted yet
    QUEUED = auto()  # admitted, waiting here
    DISPATCHED = auto()  # handed to the engine
    GONE = auto()  # finished, refused, cancelled or failed


@dataclass(slots=True, eq=False)
class Tracked:
    """Mutable record of one request; changed only by the Desk.

    Attributes:
        submit: what came from the ingress; kept until the request is handed over.
        arrived_ms: arrival at the ingress, on our clock.
        places: places of the engine's batch it takes (one per choice).
        step_ttft_ms: what of the predicted TTFT rests on steps, without the learned overhead.
        output_tokens: over all choices; decisions see the mean of a choice.
        body_bytes: what it counts for in the bound of the queue.
        sequence: order of arrival here.
        restoring: its checkpoints are on their way here; the engine gets it after that.
    """

    request_id: str
    attempt: int
    owner: IngressPort
    submit: work_pb2.Submit
    slo: RequestSlo
    skip_admission: bool
    arrived_ms: float
    received_ms: float
    body_bytes: int
    sequence: int
    stage: Stage = Stage.RENDERING
    phase: Phase = Phase.WAITING
    prompt_tokens: int = 1
    places: int = 1
    max_tokens: int = 1
    resumable: bool = False
    output_tokens: int = 0
    computed_tokens: int = 0
    expected_output_tokens: int = 1
    first_token_ms: float | None = None
    preemptions: int = 0
    restoring: bool = False
    prediction: Prediction | None = None
    step_ttft_ms: float | None = None
    _state: RequestState | None = field(default=None, repr=False)

    def changed(self) -> None:
        """Forget the frozen view; call after changing what it shows."""
        self._state = None

    def state(self) -> RequestState:
        """The request as scheduling decisions see it."""
        state = self._state
        if state is None:
            output_tokens = self.output_tokens // self.places
            computed_tokens = self.computed_tokens
            if self.phase is Phase.DECODE:
                computed_tokens = self.prompt_tokens + output_tokens
            state = self._state = RequestState(
                self.request_id,
                self.slo,
                self.arrived_ms,
                self.phase,
                self.prompt_tokens,
                computed_tokens,
                output_tokens,
                max(self.expected_output_tokens, output_tokens + 1),
                self.first_token_ms,
                self.preemptions,
                self.places,
            )
        return state
