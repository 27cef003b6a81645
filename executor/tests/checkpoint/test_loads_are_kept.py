"""A step loads what it was planned to load, whatever the same step saves, fills or makes room for."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from superinfer_executor.checkpoint.scheduler_side import SchedulerSide
from superinfer_executor.checkpoint.settings import CheckpointSettings
from superinfer_executor.checkpoint.step import Save, StepPlan, StepReport
from superinfer_proto.slab import Slab, seal_of

LAYOUT = SimpleNamespace(identity="layout", block_bytes=300_000, block_tokens=4, hashes_per_block=1)
"""Three blocks fill a MiB of slab."""


def request_of(name: str, tokens: int, *, rank: int = 0) -> Any:
    return SimpleNamespace(
        request_id=f"{name}/1/0",
        sampling_params=SimpleNamespace(extra_args={"slo_rank": rank}),
        num_prompt_tokens=4,
        num_computed_tokens=0,
        num_tokens=tokens,
        all_token_ids=list(range(tokens)),
        block_hashes=[f"{name}{number}".encode() for number in range(tokens // 4)],
        mm_features=[],
        prompt_embeds=None,
    )


class Steps:
    """Plans steps, and does what a worker does."""

    def __init__(self, folder: Path) -> None:
        settings = CheckpointSettings(str(folder), memory_mib=1, retain_s=0.0)
        self.side = SchedulerSide(settings, LAYOUT)  # type: ignore[arg-type]
        self.slab = Slab.open(settings.engine_slab, writable=True)

    def plan(self, **scheduled: tuple[Any, int]) -> StepPlan:
        ids = SimpleNamespace(get_block_ids=lambda _: ([0, 1, 2, 3],))
        tokens = {request.request_id: count for request, count in scheduled.values()}
        output = SimpleNamespace(num_scheduled_tokens=tokens, kv_connector_block_state=ids)
        return self.side.plan(output)  # type: ignore[arg-type]

    def carry_out(self, plan: StepPlan) -> None:
        saved = [save for save in plan.saves if isinstance(save, Save)]
        for save in saved:
            seal = seal_of("layout", save.block_hash, self.slab.payload(save.slot))
            self.slab.publish(
                save.slot, save.block_hash, seal, save.stream, save.ordinal, tail_tokens=save.tail_tokens
            )
        self.side.reported(StepReport([save.block_hash for save in saved]))

    def load(self, request: Any) -> int:
        tokens = self.side.matched_tokens(request, 0)
        self.side.allocated(request, tokens)
        return tokens

    def still_there(self, plan: StepPlan) -> list[bool]:
        self.side._table.erase_expired(1e12)
        return [self.slab.holds(load.slot, load.sequence) for load in plan.loads]


@pytest.fixture
def steps(tmp_path: Path) -> Iterator[Steps]:
    made = Steps(tmp_path)
    yield made
    made.slab.close()
    made.side.close()


def test_a_displaced_request_loads_its_tail_in_the_step_that_fills_the_block(steps: Steps) -> None:
    request = request_of("r", 6)
    steps.side.covers(request)
    steps.carry_out(steps.plan(r=(request, 6)))
    for _ in range(10):
        steps.plan()
    request.num_tokens, request.all_token_ids = 8, list(range(8))
    request.block_hashes.append(b"r1")
    assert steps.load(request) == 6
    request.num_computed_tokens = 6
    plan = steps.plan(r=(request, 2))
    assert plan.loads[0].block_hash == b"r0"
    assert any(save.ordinal == 1 for save in plan.saves), "the block is full"
    assert steps.still_there(plan) == [True, True]


def test_what_is_loaded_makes_no_room_for_a_more_important_save(steps: Steps) -> None:
    bronze, gold = request_of("bronze", 13, rank=2), request_of("gold", 8)
    steps.side.covers(bronze)
    steps.carry_out(steps.plan(bronze=(bronze, 12)))
    assert steps.load(bronze) == 12
    steps.side.covers(gold)
    bronze.num_computed_tokens = 12
    plan = steps.plan(bronze=(bronze, 1), gold=(gold, 8))
    assert steps.still_there(plan) == [True, True, True]
    assert plan.no_room_blocks == 2
