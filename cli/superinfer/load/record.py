"""What one request of a load run saw, measured at the client.

Promise: every figure is the client's own, in milliseconds from the moment it began to send; what the server
says of itself (`predicted_*`) is kept apart. Holds no text. One owner fills a record; read it when it is
over.
"""

import json
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

from superinfer.load.response import Response
from superinfer.simulation.workload import Job

OK = 200
NO_ANSWER = 0
_FIGURES = ("metric", "predicted_ms", "required_ms", "tightest_ms", "feasible_when_idle", "harm")


@dataclass(slots=True)
class RequestRecord:
    """One request.

    Attributes:
        due_ms, sent_ms: when it should have left and did, from the start of the run.
        status: HTTP status, 0 when the connection broke first.
        code: refusal code of the answer, or of an error event inside the stream.
        tokens: completion tokens by the server's usage, else one per event.
        finish: finish reason of the (first) choice.
        ttft_ms, e2e_ms: to the first event and to the end; itl_ms: mean gap between tokens.
        event_ms: every event, from sent_ms (only where asked for).
        error: why there is no whole answer, in words.
        refusal: the figures a refusal carries (metric, predicted_ms, required_ms, ...).
    """

    request_id: str
    contract: str
    tier: str
    prompt_tokens: int
    output_tokens: int
    ttft_target_ms: float | None
    itl_target_ms: float | None
    due_ms: float
    sent_ms: float = 0.0
    status: int = NO_ANSWER
    code: str | None = None
    tokens: int = 0
    finish: str | None = None
    ttft_ms: float | None = None
    itl_ms: float | None = None
    e2e_ms: float | None = None
    jitter_ms: float | None = None
    predicted_ttft_ms: float | None = None
    predicted_e2e_ms: float | None = None
    executor: str = ""
    preempted: int = 0
    error: str | None = None
    refusal: dict[str, Any] = field(default_factory=dict)
    event_ms: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, job: Job) -> "RequestRecord":
        """An empty record of a job."""
        return cls(
            request_id=job.request_id,
            contract=job.slo.contract,
            tier=job.tier.value.lower(),
            prompt_tokens=job.prompt_tokens,
            output_tokens=job.output_tokens,
            ttft_target_ms=job.slo.ttft_ms,
            itl_target_ms=job.slo.itl_ms,
            due_ms=job.arrived_ms,
        )

    @property
    def served(self) -> bool:
        """A whole answer came."""
        return self.status == OK and self.error is None

    @property
    def refused(self) -> bool:
        """The server said no instead of answering."""
        return self.status not in {OK, NO_ANSWER}

    @property
    def kept(self) -> bool:
        """Served, first token and mean gap within their targets."""
        if not self.served or self.ttft_ms is None:
            return False
        if self.ttft_target_ms is not None and self.ttft_ms > self.ttft_target_ms:
            return False
        return self.itl_target_ms is None or self.itl_ms is None or self.itl_ms <= self.itl_target_ms

    def as_json(self) -> dict[str, Any]:
        """For a file of records, one line each."""
        fields = asdict(self)
        for name in ("event_ms", "refusal"):
            if not fields[name]:
                del fields[name]
        rounded = {k: round(v, 3) if isinstance(v, float) else v for k, v in fields.items()}
        return {**rounded, "kept": self.kept}


def fill(record: RequestRecord, response: Response, sent_at_ms: float, *, keep_events: bool) -> None:
    """Read a response that is over (or broken off) into its record."""
    record.status = response.status
    headers = response.headers
    record.executor = headers.get("x-superinfer-executor", "")
    record.predicted_ttft_ms = _number(headers.get("x-superinfer-predicted-ttft-ms"))
    record.predicted_e2e_ms = _number(headers.get("x-superinfer-predicted-e2e-ms"))
    if response.status != OK:
        document = _document(bytes(response.body))
        record.code = _error_code(document) or (
            None if response.status == NO_ANSWER else f"http_{response.status}"
        )
        record.refusal = _figures(document)
        if response.status == NO_ANSWER:
            record.error = "the connection broke before an answer"
        return
    if response.streams:
        _fill_stream(record, response, sent_at_ms, keep_events=keep_events)
    else:
        document = _document(bytes(response.body))
        record.tokens = _usage(document)
        record.finish = _finish(document)
        if not response.over:
            record.error = "the answer broke off"


def _fill_stream(record: RequestRecord, response: Response, sent_at_ms: float, *, keep_events: bool) -> None:
    times = [at - sent_at_ms for at in response.event_ms]
    before_last, last = map(_document, response.last_events)
    if not response.done:
        record.error = "the stream ended without [DONE]"
    if "error" in last:
        record.code, record.error = _error_code(last), "the stream ended with an error"
        times.pop()
    elif times and last.get("choices") == []:
        times.pop()  # usage alone: no token
    record.tokens = _usage(last) or len(times)
    record.finish = _finish(last) or _finish(before_last)
    if not times:
        record.error = record.error or "the stream had no token"
        return
    record.ttft_ms, record.e2e_ms = times[0], times[-1]
    if record.tokens > 1:
        record.itl_ms = (times[-1] - times[0]) / (record.tokens - 1)
    gaps = [b - a for a, b in pairwise(times)]
    if gaps:
        record.jitter_ms = max(gaps) - min(gaps)
    if keep_events:
        record.event_ms = times


def _document(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text) if text else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _error_code(document: dict[str, Any]) -> str | None:
    error = document.get("error")
    code = error.get("code") if isinstance(error, dict) else None
    return None if code is None else str(code)


def _figures(document: dict[str, Any]) -> dict[str, Any]:
    error = document.get("error")
    return {name: error[name] for name in _FIGURES if name in error} if isinstance(error, dict) else {}


def _usage(document: dict[str, Any]) -> int:
    usage = document.get("usage")
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return tokens if isinstance(tokens, int) else 0


def _finish(document: dict[str, Any]) -> str | None:
    choices = document.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        reason = choices[0].get("finish_reason")
        return None if reason is None else str(reason)
    return None


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
