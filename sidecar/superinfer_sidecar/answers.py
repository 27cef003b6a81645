"""The messages with which a request ends here: decisions, and outputs that carry an error."""

from superinfer_core.refusal import Refusal, RefusalCode
from superinfer_core.scheduling.admission import Prediction
from superinfer_proto.v1 import sidecar_pb2, slo_pb2, work_pb2
from superinfer_sidecar.tracked import Tracked
from superinfer_sidecar.wire import refusal_message

FAILED = "the executor failed while it worked on this request; it can be sent again"
EXPIRED = "admitted, but it could not start in time"
SHED = "gave way to more important work; it can be sent again"
DRAINING = "this executor is shutting down"
NO_ENGINE = "this executor's engine is not serving"
UNMEASURED = "this executor has no profile and has seen too few steps to promise anything"
STOPPED = "this executor shut down before the request was finished"


def admitted(request: Tracked) -> sidecar_pb2.Decision:
    """Yes, with the prediction it rests on."""
    decision = sidecar_pb2.Decision(
        request_id=request.request_id,
        attempt=request.attempt,
        admitted=True,
        prompt_tokens=request.prompt_tokens,
        resumable=request.resumable,
    )
    _predict(decision, request.prediction)
    return decision


def refused(
    request_id: str, attempt: int, refusal: Refusal, request: Tracked | None = None
) -> sidecar_pb2.Decision:
    """No, with the reason and what would have to change."""
    decision = sidecar_pb2.Decision(
        request_id=request_id, attempt=attempt, admitted=False, refusal=refusal_message(refusal)
    )
    if request is not None:
        decision.prompt_tokens = request.prompt_tokens
        _predict(decision, request.prediction)
    return decision


def failed(request: Tracked, code: RefusalCode, message: str) -> work_pb2.Frame:
    """A frame of one output that ends an admitted request with an error."""
    frame = work_pb2.Frame()
    frame.outputs.add(
        request_id=request.request_id,
        attempt=request.attempt,
        final=True,
        error=slo_pb2.Error(code=code.value, message=message),
    )
    return frame


def _predict(decision: sidecar_pb2.Decision, prediction: Prediction | None) -> None:
    if prediction is None:
        return
    wire = decision.prediction
    wire.ttft_ms = prediction.ttft_ms
    wire.itl_ms = prediction.itl_ms
    wire.e2e_ms = prediction.e2e_ms
    wire.slack_ms = prediction.slack_ms
