"""Real engines in this process that save their blocks; a step happens when a test asks for it."""

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from vllm.distributed.kv_transfer import kv_transfer_state

from superinfer_core.scheduling.policy import Order, SchedulingPolicy
from superinfer_executor.checkpoint.settings import CheckpointSettings
from superinfer_executor.models import prepare_tiny
from superinfer_proto.slab import Counter, Slab

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_DISABLE_REQUEST_ID_RANDOMIZATION": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "OMP_NUM_THREADS": "1",
}
BLOCK_TOKENS = 32


@dataclass
class SavingEngine:
    """One engine and what it has saved."""

    llm: Any
    settings: CheckpointSettings
    tokens: dict[str, list[int]] = field(default_factory=dict)
    computed: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.worker_connector = kv_transfer_state._KV_CONNECTOR_AGENT
        self.slab = Slab.open(self.settings.engine_slab, writable=True)
        # As many tokens a step as fit, whatever a step takes here: tests count steps.
        self.scheduler.scheduling_policy = SchedulingPolicy(order=Order.FCFS)

    @property
    def scheduler(self) -> Any:
        return self.llm.llm_engine.engine_core.engine_core.scheduler

    @property
    def connector(self) -> Any:
        return self.scheduler.connector

    def submit(self, name: str, prompt: list[int], *, salt: str = "", **options: Any) -> None:
        """Hand a request over; `slo_*` and `resume_*` go beside the sampling parameters."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        extra = {key: options.pop(key) for key in list(options) if key.startswith(("slo_", "resume_"))}
        params = SamplingParams(
            **{"temperature": 0.0, "max_tokens": 8, "ignore_eos": True, **options},
            extra_args=extra or None,
            output_kind=RequestOutputKind.DELTA,
        )
        given: dict[str, Any] = {"prompt_token_ids": prompt}
        if salt:
            given["cache_salt"] = salt
        self.llm.llm_engine.add_request(name, given, params, arrival_time=time.time())
        self.tokens[name] = []

    def step(self) -> Any:
        """One engine step; what vLLM scheduled."""
        schedule, seen = self.scheduler.schedule, []

        def observed(*args: Any, **kwargs: Any) -> Any:
            seen.append(schedule(*args, **kwargs))
            return seen[0]

        self.scheduler.schedule = observed
        try:
            outputs = self.llm.llm_engine.step()
        finally:
            del self.scheduler.schedule
        for output in outputs:
            self.tokens[output.request_id] += output.outputs[0].token_ids
        for new in seen[0].scheduled_new_reqs if seen else ():
            self.computed.setdefault(new.req_id, []).append(new.num_computed_tokens)
        return seen[0] if seen else None

    def run(self) -> None:
        """Steps until nothing is left."""
        while self.llm.llm_engine.has_unfinished_requests():
            self.step()

    def alone(self, name: str, prompt: list[int], **options: Any) -> list[int]:
        """Tokens of a request that has the engine to itself."""
        self.submit(name, prompt, **options)
        self.run()
        return self.tokens[name]

    def forget_cache(self) -> None:
        """vLLM's own cache is empty; the slab is not."""
        assert self.llm.llm_engine.reset_prefix_cache()

    def counted(self, counter: Counter) -> int:
        return self.slab.counted(counter)

    def saved(self) -> list[bytes]:
        """Hashes of the blocks in the slab."""
        return [header.block_hash for _, header in self.slab.scan()]

    def clear(self) -> None:
        """As new, but for the counters."""
        kv_transfer_state._KV_CONNECTOR_AGENT = self.worker_connector  # vLLM keeps one per process
        unfinished = list(self.scheduler.requests)
        if unfinished:
            self.llm.llm_engine.abort_request(unfinished)
            self.run()
        self.forget_cache()
        self.connector._scheduling._table.erase_expired(time.monotonic() + 1e6)
        assert self.saved() == []
        self.tokens, self.computed = {}, {}


def started_engine(model: Path, settings: CheckpointSettings, **options: Any) -> SavingEngine:
    from vllm import LLM
    from vllm.config import KVTransferConfig

    base: dict[str, Any] = {
        "dtype": "float32",
        "max_model_len": 2048,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 512,
        "block_size": BLOCK_TOKENS,
        "enforce_eager": True,
        "distributed_executor_backend": "uni",
        "scheduler_cls": "superinfer_executor.plugin.scheduler.SlackScheduler",
        "scheduling_policy": "priority",
        "disable_log_stats": True,
        "kv_transfer_config": KVTransferConfig(**json.loads(settings.kv_transfer_config())),
    }
    kv_transfer_state._KV_CONNECTOR_AGENT = None
    return SavingEngine(LLM(str(model), **{**base, **options}), settings)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_tiny(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def _vllm_environment() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ.update(ENVIRONMENT)
    yield
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value


@pytest.fixture(scope="session")
def roomy(
    _vllm_environment: None, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> SavingEngine:
    """A small cache, a large slab, and blocks stay after their request."""
    folder = str(tmp_path_factory.mktemp("roomy"))
    settings = CheckpointSettings(folder, memory_mib=64, step_mib=32, retain_s=600.0)
    return started_engine(tiny_model, settings, num_gpu_blocks_override=41, max_model_len=1280)


@pytest.fixture(scope="session")
def tight(
    _vllm_environment: None, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> SavingEngine:
    """A slab of few blocks, few of them a step, only for gold and bronze, and nothing stays."""
    folder = str(tmp_path_factory.mktemp("tight"))
    return started_engine(tiny_model, CheckpointSettings(folder, memory_mib=2, step_mib=1, ranks=(0, 2)))


@pytest.fixture
def engine(roomy: SavingEngine) -> Iterator[SavingEngine]:
    roomy.clear()
    yield roomy
    kv_transfer_state._KV_CONNECTOR_AGENT = None  # engines of other tests have none


@pytest.fixture
def tight_engine(tight: SavingEngine) -> Iterator[SavingEngine]:
    tight.clear()
    yield tight
    kv_transfer_state._KV_CONNECTOR_AGENT = None


@pytest.fixture
def prompt_of() -> Callable[..., list[int]]:
    def make(tokens: int, seed: int = 0) -> list[int]:
        return [(17 * number + 31 * seed) % 900 + 5 for number in range(tokens)]

    return make
