"""A real vLLM engine on the tiny model, driven step by step, on a clock the test owns.

Nothing here sleeps or measures: a step happens when a test asks for it, and takes as long as the test says.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from superinfer_core.prediction.step_model import StepModel
from superinfer_core.scheduling.policy import SchedulingPolicy
from superinfer_executor.models import prepare_tiny

STEP_MODEL = StepModel(
    base_ms=5.0, per_decode_seq_ms=0.1, per_decode_context_token_ms=0.0, per_prefill_token_ms=0.1
)
MAX_STEP_TOKENS = 512
BLOCK_TOKENS = 32
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_DISABLE_REQUEST_ID_RANDOMIZATION": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "OMP_NUM_THREADS": "1",
}


class KnownStepTimes:
    """Stands in for the online model: the truth, never learning."""

    model = STEP_MODEL

    def factor(self, quantile: float) -> float:
        return 1.0

    def observe(self, facts: object) -> bool:
        return True


@dataclass
class DrivenEngine:
    """One engine in this process."""

    llm: Any
    now_ms: float = 1_000_000.0
    texts: dict[str, str] = field(default_factory=dict)
    tokens: dict[str, list[int]] = field(default_factory=dict)
    finished: dict[str, str] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)

    @property
    def scheduler(self) -> Any:
        return self.llm.llm_engine.engine_core.engine_core.scheduler

    def submit(
        self, request_id: str, prompt: list[int], *, arrival_ago_s: float = 0.0, **options: Any
    ) -> None:
        """Hand a request to the engine; `slo_*` options become its promise, the rest sampling parameters."""
        import time

        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        promise = {k: options.pop(k) for k in list(options) if k.startswith(("slo_", "resume_"))}
        params = SamplingParams(
            **{"temperature": 0.0, "max_tokens": 8, "ignore_eos": True, **options},
            extra_args=promise or None,
            output_kind=RequestOutputKind.DELTA,
        )
        self.llm.llm_engine.add_request(
            request_id,
            {"prompt_token_ids": prompt},
            params,
            arrival_time=time.time() + 3600 if not arrival_ago_s else time.time() - arrival_ago_s,
        )
        self.tokens[request_id], self.texts[request_id] = [], ""

    def step(self, step_ms: float | None = None) -> dict[str, list[int]]:
        """One engine step; the clock moves by what the step model says, or by `step_ms`."""
        schedule = self.scheduler.schedule
        scheduled: dict[str, Any] = {}

        def observed(*args: Any, **kwargs: Any) -> Any:
            output = schedule(*args, **kwargs)
            scheduled.update(
                tokens=dict(output.num_scheduled_tokens),
                new=[new.req_id for new in output.scheduled_new_reqs],
                preempted=set(output.preempted_req_ids or ()),
                computed={new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
                | dict(
                    zip(
                        output.scheduled_cached_reqs.req_ids,
                        output.scheduled_cached_reqs.num_computed_tokens,
                        strict=True,
                    )
                ),
            )
            self.now_ms += self._duration(output.num_scheduled_tokens) if step_ms is None else step_ms
            return output

        self.scheduler.schedule = observed
        try:
            outputs = self.llm.llm_engine.step()
        finally:
            del self.scheduler.schedule
        self.steps.append(scheduled)
        new: dict[str, list[int]] = {}
        for output in outputs:
            (completion,) = output.outputs
            new[output.request_id] = list(completion.token_ids)
            self.tokens[output.request_id] += completion.token_ids
            self.texts[output.request_id] += completion.text
            if completion.finish_reason is not None:
                self.finished[output.request_id] = completion.finish_reason
        return new

    def run(self, *, most_steps: int = 2_000) -> None:
        """Steps until nothing is left."""
        for _ in range(most_steps):
            if not self.llm.llm_engine.has_unfinished_requests():
                return
            self.step()
        raise AssertionError(f"unfinished after {most_steps} steps: {self.waiting()} {self.running()}")

    def alone(self, request_id: str, prompt: list[int], **options: Any) -> list[int]:
        """Tokens of a request that has the engine to itself, computed afresh."""
        self.forget_cache()
        self.submit(request_id, prompt, **options)
        self.run()
        self.forget_cache()
        return self.tokens[request_id]

    def cancel(self, request_id: str) -> None:
        self.llm.llm_engine.abort_request([request_id])

    def forget_cache(self) -> None:
        assert self.llm.llm_engine.reset_prefix_cache()

    def running(self) -> list[str]:
        return [request.request_id for request in self.scheduler.running]

    def waiting(self) -> list[str]:
        return [request.request_id for request in self.scheduler.waiting]

    def free_blocks(self) -> int:
        return int(self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks())

    def core_order(self) -> list[str]:
        """The waiting requests in the order the core gives the scheduler's own view of them."""
        from superinfer_core.scheduling.context import DecisionContext
        from superinfer_core.scheduling.order import order

        scheduler = self.scheduler
        state = scheduler._state(list(scheduler.waiting), set())
        ctx = DecisionContext(
            model=STEP_MODEL,
            policy=scheduler.scheduling_policy,
            forecast=scheduler.forecast.snapshot(self.now_ms),
        )
        return [request.request_id for request in order(state.requests, self.now_ms, ctx)]

    def follow(self, policy: SchedulingPolicy) -> None:
        self.scheduler.scheduling_policy = policy

    def clear(self) -> None:
        """As new: whatever a test left behind is gone."""
        from superinfer_core.scheduling.forecast import ArrivalForecast

        unfinished = list(self.scheduler.requests)
        if unfinished:
            self.llm.llm_engine.abort_request(unfinished)
            self.run()
        self.forget_cache()
        self.scheduler.step_model = KnownStepTimes()
        self.scheduler.forecast = ArrivalForecast()
        self.scheduler.clock_ms = lambda: self.now_ms
        self.follow(SchedulingPolicy())
        self.tokens, self.texts, self.finished, self.steps = {}, {}, {}, []

    def _duration(self, scheduled: dict[str, int]) -> float:
        prefill = sum(tokens for tokens in scheduled.values() if tokens > 1)
        return STEP_MODEL.step_ms(decode_seqs=len(scheduled), prefill_tokens=prefill)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_tiny(tmp_path_factory.mktemp("models") / "tiny")


def started_engine(model: Path, **options: Any) -> DrivenEngine:
    from vllm import LLM

    llm = LLM(
        str(model),
        **{
            "dtype": "float32",
            "max_model_len": 2_048,
            "max_num_seqs": 4,
            "max_num_batched_tokens": MAX_STEP_TOKENS,
            "block_size": BLOCK_TOKENS,
            "enforce_eager": True,
            "distributed_executor_backend": "uni",
            "scheduler_cls": "superinfer_executor.plugin.scheduler.SlackScheduler",
            **options,
        },
    )
    return DrivenEngine(llm)


@pytest.fixture(scope="session")
def _vllm_environment() -> Iterator[None]:
    kept = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ.update(ENVIRONMENT)
    yield
    for name, value in kept.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@pytest.fixture(scope="session")
def make_engine(_vllm_environment: None, tiny_model: Path) -> Callable[..., DrivenEngine]:
    """An engine of its own for a module that needs other options."""
    return lambda **options: started_engine(tiny_model, **options)


@pytest.fixture(scope="session")
def _roomy_engine(_vllm_environment: None, tiny_model: Path) -> DrivenEngine:
    return started_engine(tiny_model)


@pytest.fixture(scope="session")
def _tight_engine(_vllm_environment: None, tiny_model: Path) -> DrivenEngine:
    return started_engine(tiny_model, num_gpu_blocks_override=33, max_model_len=1_024)


@pytest.fixture
def engine(_roomy_engine: DrivenEngine) -> Iterator[DrivenEngine]:
    """Four places in the batch, KV memory for all of them."""
    _roomy_engine.clear()
    yield _roomy_engine
    assert _roomy_engine.scheduler.failed_plans == 0
    _roomy_engine.clear()


@pytest.fixture
def tight_engine(_tight_engine: DrivenEngine) -> Iterator[DrivenEngine]:
    """Four places, KV memory for 1,024 tokens in all."""
    _tight_engine.clear()
    yield _tight_engine
    assert _tight_engine.scheduler.failed_plans == 0
    _tight_engine.clear()


@pytest.fixture
def prompt_of() -> Callable[..., list[int]]:
    """Tokens of a prompt that shares no block with one of another seed."""

    def prompt_of(length: int, seed: int = 0) -> list[int]:
        return [5 + (7 * seed + 13 * i + (i * i) % 31 + 97 * seed * (i % 5)) % 1_000 for i in range(length)]

    return prompt_of
