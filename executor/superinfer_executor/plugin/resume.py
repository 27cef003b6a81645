"""Resume: tokens delivered by another engine count as this request's own output from the start.

vLLM then sees what it would have seen without the cut: max_tokens, min_tokens, stop conditions, penalties
and block hashes count them, the grammar stands where it stood. The worker's half is in worker.py. Promise: a
list of tokens that cannot have been this request's output fails the request, never the engine.
"""

import logging
from typing import TYPE_CHECKING, Any

from typing_extensions import override
from vllm.v1.metrics.stats import PrefillStats
from vllm.v1.request import RequestStatus

from superinfer_executor.plugin.request_slo import RESUME_TOKEN_IDS, InvalidRequestSlo, resume_token_ids

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.core.sched.scheduler import Scheduler as VllmScheduler
    from vllm.v1.request import Request
else:
    VllmScheduler = object  # the mixin stands before one of vLLM's schedulers, see scheduler.py

log = logging.getLogger(__name__)


class ResumeMixin(VllmScheduler):  # type: ignore[misc]
    """Put before vLLM's scheduler. One thread, as the scheduler itself."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._grammars_behind: dict[str, list[int]] = {}
        self._without_prefill_stats: set[str] = set()

    @override
    def add_request(self, request: "Request") -> None:
        delivered: list[int] = []
        if request.request_id not in self.requests:  # else: more input of a streaming session
            try:
                delivered = self._delivered_tokens(request)
            except InvalidRequestSlo as error:
                log.warning("request %s cannot be resumed: %s", request.request_id, error)
                super().add_request(request)
                # vLLM's own way to fail a request that waits: reported with the next step's output.
                self.grammar_compile_error_reqs.add(request.request_id)
                return
        if delivered:
            request.append_output_token_ids(delivered)
            # vLLM asserts that a first prefill finds at most the prompt in its cache; here it may find more.
            request.prefill_stats = None
            self._without_prefill_stats.add(request.request_id)
            if request.use_structured_output:
                self._grammars_behind[request.request_id] = delivered
        super().add_request(request)

    @override
    def schedule(self, *args: Any, **kwargs: Any) -> "SchedulerOutput":
        output: SchedulerOutput = super().schedule(*args, **kwargs)
        if self._without_prefill_stats:
            for new in output.scheduled_new_reqs:
                if new.req_id in self._without_prefill_stats:
                    self._restore_prefill_stats(new.req_id, new.num_computed_tokens)
        return output

    @override
    def finish_requests(self, request_ids: Any, finished_status: RequestStatus) -> "list[Request]":
        finished: list[Request] = super().finish_requests(request_ids, finished_status)
        for request in finished:
            self._grammars_behind.pop(request.request_id, None)
            self._without_prefill_stats.discard(request.request_id)
        return finished

    @override
    def _handle_blocked_waiting_request(self, request: "Request") -> bool:
        if request.request_id in self.grammar_compile_error_reqs:
            return False  # it fails with this step's output and must not produce any
        compiled = request.status == RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
        ready = bool(super()._handle_blocked_waiting_request(request))
        if not (ready and compiled):
            return ready
        behind = self._grammars_behind.pop(request.request_id, None)
        if behind and not self.structured_output_manager.accept_tokens(request, behind):
            log.warning("request %s: its grammar refuses the tokens delivered before", request.request_id)
            self.grammar_compile_error_reqs.add(request.request_id)
            return False
        return True

    def _delivered_tokens(self, request: "Request") -> list[int]:
        params = request.sampling_params
        delivered = list(resume_token_ids(params.extra_args)) if params is not None else []
        if not delivered:
            return []
        vocabulary = self.vllm_config.model_config.get_vocab_size()
        beyond = [token for token in delivered if token >= vocabulary]
        if beyond:
            raise InvalidRequestSlo(RESUME_TOKEN_IDS, beyond[0], f"the model has {vocabulary} tokens")
        room = min(request.max_tokens, self.max_model_len - request.num_prompt_tokens)
        if len(delivered) >= room:
            fix = f"resume only what is not finished: this request may have {room} output tokens"
            raise InvalidRequestSlo(RESUME_TOKEN_IDS, f"{len(delivered)} tokens", fix)
        return delivered

    def _restore_prefill_stats(self, request_id: str, computed_tokens: int) -> None:
        self._without_prefill_stats.discard(request_id)
        request = self.requests[request_id]
        stats = PrefillStats()
        # Delivered tokens are computed like a prompt's: what is cached of them counts, too.
        stats.set(
            num_prompt_tokens=request.num_tokens,
            num_local_cached_tokens=computed_tokens,
            num_external_cached_tokens=0,
        )
        request.prefill_stats = stats
