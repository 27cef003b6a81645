"""Every private thing of vLLM that the plug-in leans on, by name: what to look at when vLLM's version moves.

A failure here means: read vLLM's change, adapt superinfer_executor/plugin, then add the version to
superinfer_executor/vllm_version.py.
"""

import dataclasses
import inspect
from collections import deque
from typing import Any

import pytest

from superinfer_executor.vllm_version import TESTED_VLLM_VERSIONS, installed_vllm_version

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]

SCHEDULER_METHODS = {
    "schedule": ["self", "throttle_prefills"],
    "update_from_output": ["self", "scheduler_output", "model_runner_output"],
    "add_request": ["self", "request"],
    "finish_requests": ["self", "request_ids", "finished_status"],
    "shutdown": ["self"],
    "get_request_counts": ["self"],
    "_preempt_request": ["self", "request", "timestamp", "drop_stale_output"],
    "_request_blocks_can_be_freed": ["self", "request"],
    "_handle_blocked_waiting_request": ["self", "request"],
}
SCHEDULER_ATTRIBUTES = [
    "running",
    "waiting",
    "kv_holding_waiting",
    "requests",
    "policy",
    "max_num_scheduled_tokens",
    "max_num_active_reqs",
    "max_model_len",
    "current_step",
    "block_size",
    "scheduler_reserve_full_isl",
    "requires_kv_delivery",
    "grammar_compile_error_reqs",
    "kv_cache_manager",
    "cache_config",
    "vllm_config",
    "structured_output_manager",
]
REQUEST_ATTRIBUTES = [
    "request_id",
    "sampling_params",
    "arrival_time",
    "max_tokens",
    "priority",
    "status",
    "num_tokens",
    "num_tokens_with_spec",
    "num_prompt_tokens",
    "num_output_tokens",
    "num_computed_tokens",
    "num_output_placeholders",
    "num_preemptions",
    "spec_token_ids",
    "next_decode_eligible_step",
    "prefill_stats",
    "use_structured_output",
    "structured_output_request",
]


def test_the_installed_version_is_a_tested_one() -> None:
    assert installed_vllm_version() in TESTED_VLLM_VERSIONS


@pytest.mark.parametrize("method", SCHEDULER_METHODS)
def test_a_scheduler_method_takes_what_it_took(method: str) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    assert list(inspect.signature(getattr(Scheduler, method)).parameters) == SCHEDULER_METHODS[method]


@pytest.mark.parametrize("attribute", SCHEDULER_ATTRIBUTES)
def test_a_scheduler_has_the_attribute(engine: Any, attribute: str) -> None:
    assert hasattr(engine.scheduler, attribute)


@pytest.mark.parametrize("attribute", REQUEST_ATTRIBUTES)
def test_a_request_has_the_attribute(engine: Any, prompt_of: Any, attribute: str) -> None:
    engine.submit("one", prompt_of(4))
    assert hasattr(engine.scheduler.requests["one"], attribute)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("self.current_step += 1", id="a step begins by counting itself"),
        pytest.param(
            "token_budget = self.max_num_scheduled_tokens", id="the step's budget is read at its start"
        ),
        pytest.param("if self.current_step < request.next_decode_eligible_step:", id="how a request is held"),
        pytest.param("key=lambda r: (r.priority, r.arrival_time)", id="how a full cache picks its victim"),
        pytest.param("preempted_req_ids=self.reset_preempted_req_ids", id="who left is told to the worker"),
        pytest.param("if num_running >= self.max_num_active_reqs:", id="places in the batch"),
        pytest.param(
            "full_sequence_must_fit=self.scheduler_reserve_full_isl", id="memory to enter the batch"
        ),
    ],
)
def test_scheduling_still_works_the_way_the_plan_is_applied(line: str) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    assert line in inspect.getsource(Scheduler.schedule)


def test_only_the_scheduling_loop_reads_the_step_budget_and_the_hold() -> None:
    """Both are lent for one step; another reader would see a value it does not expect."""
    from vllm.v1.core.sched import scheduler

    inside = inspect.getsource(scheduler.Scheduler.schedule)
    outside = inspect.getsource(scheduler).replace(inside, "")
    assert ".next_decode_eligible_step" not in outside
    # Set at the start, and how Mamba models cut a chunk: within `schedule` as well.
    assert outside.count("self.max_num_scheduled_tokens") == 2


def test_the_kv_cache_tells_what_is_free_and_what_would_be(engine: Any, prompt_of: Any) -> None:
    manager = engine.scheduler.kv_cache_manager
    free = manager.block_pool.get_num_free_blocks()
    engine.submit("one", prompt_of(100), max_tokens=4)
    engine.step()
    ((*blocks,),) = manager.get_blocks("one").blocks
    assert manager.block_pool.get_num_free_blocks() == free - len(blocks)
    assert {block.ref_cnt for block in blocks} == {1}
    assert 0 < manager.usage < 1
    found, tokens, _ = manager.get_computed_blocks(engine.scheduler.requests["one"])
    assert tokens == 32 * len(found.blocks[0])


def test_waiting_queues_are_arranged_in_place() -> None:
    from vllm.v1.core.sched.request_queue import FCFSRequestQueue, SchedulingPolicy

    assert issubclass(FCFSRequestQueue, deque)
    assert SchedulingPolicy.PRIORITY.value == "priority"


def test_statuses_of_waiting_requests_are_the_ones_we_know() -> None:
    from vllm.v1.request import RequestStatus

    before_finished = [status.name for status in RequestStatus if not RequestStatus.is_finished(status)]
    assert before_finished == [
        "WAITING",
        "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR",
        "WAITING_FOR_REMOTE_KVS",
        "WAITING_FOR_STREAMING_REQ",
        "RUNNING",
        "PREEMPTED",
    ]


def test_what_a_step_says_of_itself() -> None:
    from vllm.v1.core.sched.output import NewRequestData, SchedulerOutput
    from vllm.v1.engine import EngineCoreOutput

    output = {field.name for field in dataclasses.fields(SchedulerOutput)}
    assert {
        "num_scheduled_tokens",
        "scheduled_new_reqs",
        "scheduled_cached_reqs",
        "preempted_req_ids",
    } <= output
    new = {field.name for field in dataclasses.fields(NewRequestData)}
    assert {"req_id", "num_computed_tokens", "sampling_params"} <= new
    assert {"request_id", "new_token_ids", "finish_reason"} <= set(EngineCoreOutput.__struct_fields__)


def test_prefill_statistics_are_set_by_name() -> None:
    from vllm.v1.metrics.stats import PrefillStats

    assert list(inspect.signature(PrefillStats.set).parameters) == [
        "self",
        "num_prompt_tokens",
        "num_local_cached_tokens",
        "num_external_cached_tokens",
    ]


def test_a_grammar_accepts_several_tokens_at_once() -> None:
    from vllm.v1.structured_output import StructuredOutputManager

    assert list(inspect.signature(StructuredOutputManager.accept_tokens).parameters) == [
        "self",
        "request",
        "new_token_ids",
    ]


def test_the_front_end_validates_parameters_where_we_do() -> None:
    from vllm.exceptions import VLLMValidationError
    from vllm.v1.engine.input_processor import InputProcessor

    assert "self._validate_params(params, supported_tasks)" in inspect.getsource(
        InputProcessor.process_inputs
    )
    assert "parameter" in inspect.signature(VLLMValidationError).parameters


def test_the_worker_keeps_a_request_as_we_patch_it() -> None:
    from vllm.v1.worker import gpu_model_runner
    from vllm.v1.worker.gpu_input_batch import CachedRequestState

    fields = {field.name for field in dataclasses.fields(CachedRequestState)}
    assert {"sampling_params", "generator", "output_token_ids"} <= fields
    source = inspect.getsource(gpu_model_runner)
    assert "generator.manual_seed(sampling_params.seed)" in source
    assert "output_token_ids=[]," in source
    assert "gen.set_offset(gen.get_offset() - 4)" in source


def test_one_sampled_token_is_one_draw_of_the_cpu_sampler() -> None:
    import torch
    from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler

    from superinfer_executor.plugin.worker import draw_tokens

    sampled, advanced = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5)
    sampler = TopKTopPSampler()
    for _ in range(3):
        sampler.forward_cpu(torch.randn(2, 64), {1: sampled}, None, None)
    draw_tokens(advanced, 3)
    assert torch.equal(sampled.get_state(), advanced.get_state())


@pytest.mark.parametrize("name", ["SlackScheduler", "SlackAsyncScheduler"])
def test_vllm_finds_the_class_by_its_path(name: str) -> None:
    from vllm.utils.import_utils import resolve_obj_by_qualname
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler

    found = resolve_obj_by_qualname(f"superinfer_executor.plugin.scheduler.{name}")
    assert issubclass(found, AsyncScheduler if "Async" in name else Scheduler)


def test_every_process_of_vllm_loads_us() -> None:
    from importlib.metadata import entry_points

    (ours,) = [each for each in entry_points(group="vllm.general_plugins") if each.name == "superinfer"]
    assert ours.value == "superinfer_executor.plugin.register:register"
    ours.load()()
    ours.load()()


def test_an_unknown_vllm_is_left_alone_and_our_scheduler_refuses_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from superinfer_executor.plugin import register
    from superinfer_executor.plugin.scheduler import SlackScheduler
    from superinfer_executor.vllm_version import UntestedVllmError

    monkeypatch.setattr(register, "installed_vllm_version", lambda: "9.9.9")
    register.register()
    assert "9.9.9" in caplog.text
    with pytest.raises(UntestedVllmError, match=r"9\.9\.9.*tested"):
        SlackScheduler()
