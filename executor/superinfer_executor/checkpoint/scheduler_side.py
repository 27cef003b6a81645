"""The connector's half beside vLLM's scheduler: what is on hand for a request, what a step loads and saves.

Promise: nothing is announced that is not there; at least one token is left to compute. Scheduler's thread;
one more thread erases what is over and maps the sidecar's store.
"""

import logging
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from superinfer_core.checkpoint.capture import Unsaved, share_out
from superinfer_core.checkpoint.table import Need
from superinfer_core.slo import BEST_EFFORT_TIER_RANK
from superinfer_executor.checkpoint.engine_layout import EngineLayout
from superinfer_executor.checkpoint.on_hand import Held, OnHand, Reader
from superinfer_executor.checkpoint.settings import CheckpointSettings
from superinfer_executor.checkpoint.step import Load, Reference, Save, StepPlan, StepReport
from superinfer_executor.checkpoint.store_index import StoreIndex
from superinfer_executor.checkpoint.table import SlotTable, engine_slabs
from superinfer_executor.checkpoint.tails import Tail, tail_of, tails_wanted
from superinfer_executor.plugin.request_slo import NO_PROMISE, RANK
from superinfer_proto.slab import Slab, SlabShape, stream_of

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.request import Request

log = logging.getLogger(__name__)

IDLE_S: Final = 0.5
_STEPS_THAT_RUN: Final = 4
"""More than are ever planned before the first of them has loaded its blocks."""


@dataclass(slots=True)
class Covered:
    """A request whose blocks are saved.

    Attributes:
        saved: blocks from the first on that were planned for saving.
        tails: blocks of it that are not full and were saved or loaded, with the number of that step.
        starved: the slab had no room for its next block when it was asked last.
    """

    request: Any
    reader: Reader
    saved: int = 0
    tails: list[tuple[Tail, int]] = field(default_factory=list)
    starved: bool = False


@dataclass(frozen=True, slots=True)
class Announced:
    """Blocks that vLLM was told of; the last is a tail where there is one."""

    first_block: int
    found: Sequence[Held]
    tail: Tail | None = None


class SchedulerSide:
    """See the module."""

    def __init__(self, settings: CheckpointSettings, layout: EngineLayout) -> None:
        self._settings = settings
        self._layout = layout
        shape = SlabShape.of_memory(layout.identity, layout.block_bytes, settings.memory_bytes)
        generation = uuid.uuid4().int & ((1 << 64) - 1)
        slab = Slab.adopt(settings.engine_slab, shape, generation=generation)
        engine_slabs[settings.engine_slab] = slab
        self._table = SlotTable(slab, now_s=time.monotonic(), orphan_s=settings.orphan_s)
        self._on_hand = OnHand(slab, self._table, StoreIndex(settings.store_slab, layout.identity))
        self._step_blocks = max(1, settings.step_bytes // layout.block_bytes)
        self._covered: dict[str, Covered] = {}
        self._steps = 0
        self._loading: dict[str, int] = {}
        self._announced: dict[str, Announced] = {}
        self._loads: dict[str, Announced] = {}
        self._wake = threading.Event()
        self._closed = False
        self._keeper = threading.Thread(target=self._keep_for_ever, name="checkpoints", daemon=True)
        self._keeper.start()
        log.info(
            "checkpoints: %d blocks of %d KiB in %s, layout %s",
            shape.slots,
            layout.block_bytes >> 10,
            settings.engine_slab,
            layout.identity,
        )

    # --- what is on hand

    def matched_tokens(self, request: "Request", computed_tokens: int) -> int:
        """Tokens after `computed_tokens` whose blocks can be loaded."""
        size = self._layout.block_tokens
        first, hashes = computed_tokens // size, self._hashes(request)
        end = min(len(hashes), (request.num_tokens - 1) // size)
        reader = _reader_of(request)
        found = self._on_hand.contiguous(reader, hashes, first, end)
        tokens = len(found) * size
        if first + len(found) == (request.num_tokens - 1) // size:
            tail = self._on_hand.first_of(reader, tails_wanted(request, hashes, size))
            if tail is not None:
                self._announced[request.request_id] = Announced(first, [*found, tail[1]], tail[0])
                return tokens + tail[0].tokens
        self._announced[request.request_id] = Announced(first, found)
        return tokens

    def allocated(self, request: "Request", external_tokens: int) -> None:
        """The scheduler has given the request room for this much of what was announced."""
        self._on_hand.released(request.request_id)
        announced = self._announced.pop(request.request_id, None)
        if announced is not None and external_tokens > 0:
            blocks = -(-external_tokens // self._layout.block_tokens)
            loads = Announced(announced.first_block, announced.found[:blocks])
            self._loads[request.request_id] = loads
            self._table.pin(request.request_id, [held.block_hash for held in loads.found])
            self._loading[request.request_id] = self._steps
            self._note_loaded(request.request_id, announced.tail)

    def _note_loaded(self, request_id: str, tail: Tail | None) -> None:
        """It may be the one that was saved before the request was displaced: its step is this one now."""
        covered = self._covered.get(request_id)
        if tail is not None and covered is not None:
            covered.tails = [entry for entry in covered.tails if entry[0].name != tail.name]
            covered.tails.append((tail, self._steps))

    def _hashes(self, request: "Request") -> Sequence[bytes]:
        per_block = self._layout.hashes_per_block
        hashes: Sequence[bytes] = request.block_hashes
        return hashes if per_block == 1 else hashes[per_block - 1 :: per_block]

    # --- one step

    def plan(self, output: "SchedulerOutput") -> StepPlan:
        """Loads and saves of the step that was just scheduled."""
        self._steps += 1
        for request_id, step in list(self._loading.items()):
            if step + _STEPS_THAT_RUN <= self._steps:
                del self._loading[request_id]
                self._table.unpin(request_id)
        plan = StepPlan()
        self._plan_loads(plan, output)
        if self._covered:
            self._plan_saves(plan, output)
        return plan

    def covers(self, request: "Request") -> None:
        """Start saving a new request, if its tier is covered."""
        if request.sampling_params is None or request.request_id in self._covered:
            return
        reader = _reader_of(request)
        if self._settings.covers(reader.rank):
            self._covered[request.request_id] = Covered(request, reader)

    def _plan_loads(self, plan: StepPlan, output: "SchedulerOutput") -> None:
        for request_id, loads in self._loads.items():
            block_ids = self._block_ids(output, request_id)
            for number, held in enumerate(loads.found, loads.first_block):
                plan.loads.append(Load(block_ids[number], held.slot, held.sequence, held.block_hash))
        self._loads.clear()

    def _plan_saves(self, plan: StepPlan, output: "SchedulerOutput") -> None:
        size = self._layout.block_tokens
        filled: dict[str, int] = {}
        for request_id, tokens in output.num_scheduled_tokens.items():
            covered = self._covered.get(request_id)
            if covered is None:
                continue
            done = (covered.request.num_computed_tokens + tokens) // size
            if done > covered.saved:
                done = min(done, len(self._hashes(covered.request)))
                if done > covered.saved:
                    filled[request_id] = done
        unsaved = [
            Unsaved(name, self._covered[name].reader.rank, done - self._covered[name].saved)
            for name, done in filled.items()
        ]
        shares = share_out(unsaved, self._step_blocks)
        for request_id, done in filled.items():
            self._plan_saves_of(plan, output, request_id, done, shares.get(request_id, 0))
        for request_id, tokens in output.num_scheduled_tokens.items():
            covered = self._covered.get(request_id)
            if covered is not None:
                computed_tokens = covered.request.num_computed_tokens
                self._plan_blank(plan, output, request_id, computed_tokens, tokens)
                self._plan_tail(plan, output, covered, computed_tokens + tokens)

    def _plan_saves_of(
        self, plan: StepPlan, output: "SchedulerOutput", request_id: str, done: int, room: int
    ) -> None:
        covered = self._covered[request_id]
        reader, hashes = covered.reader, self._hashes(covered.request)
        block_ids = self._block_ids(output, request_id)
        for ordinal in range(covered.saved, done):
            block_hash = hashes[ordinal]
            if room <= 0 and not self._table.has(block_hash):
                plan.deferred_blocks += done - ordinal
                return
            place = self._table.need(block_hash, request_id, reader.rank)
            if place.need is Need.NO_ROOM:
                if not covered.starved:
                    plan.no_room_blocks += done - ordinal
                covered.starved = True
                return
            covered.starved = False
            covered.saved = ordinal + 1
            if place.need is Need.THERE:
                plan.saves.append(Reference(place.slot, reader.stream, ordinal))
            else:
                plan.saves.append(Save(block_ids[ordinal], place.slot, block_hash, reader.stream, ordinal))
                room -= 1

    def _plan_blank(
        self, plan: StepPlan, output: "SchedulerOutput", request_id: str, computed_tokens: int, tokens: int
    ) -> None:
        """The block that this step begins and does not fill: what it held must not leave with its tail."""
        ordinal, begun = divmod(computed_tokens + tokens, self._layout.block_tokens)
        if 0 < begun <= tokens:
            plan.blanks.append(self._block_ids(output, request_id)[ordinal])

    def _plan_tail(
        self, plan: StepPlan, output: "SchedulerOutput", covered: Covered, computed_tokens: int
    ) -> None:
        """One tail of each block, once; it goes when the block is full."""
        reader = covered.reader
        self._let_go_of_tails(covered)
        if covered.starved or len(plan.saves) >= self._step_blocks:
            return
        if any(tail.ordinal == covered.saved for tail, _ in covered.tails):
            return
        hashes = self._hashes(covered.request)
        tail = tail_of(covered.request, hashes, computed_tokens, self._layout.block_tokens)
        if tail is None or tail.ordinal != covered.saved:
            return
        place = self._table.need(tail.name, reader.request_id, reader.rank)
        if place.need is Need.NO_ROOM:
            return
        covered.tails.append((tail, self._steps))
        if place.need is Need.THERE:
            plan.saves.append(Reference(place.slot, reader.stream, tail.ordinal))
        else:
            block_id = self._block_ids(output, reader.request_id)[tail.ordinal]
            save = Save(block_id, place.slot, tail.name, reader.stream, tail.ordinal, tail.tokens)
            plan.saves.append(save)

    def _let_go_of_tails(self, covered: Covered) -> None:
        """Of blocks that are full; not of one that a step which still runs may be loading."""
        for entry in tuple(covered.tails):
            tail, step = entry
            if tail.ordinal < covered.saved and step + _STEPS_THAT_RUN <= self._steps:
                covered.tails.remove(entry)
                self._table.untie(tail.name, covered.reader.request_id)
                self._wake.set()

    @staticmethod
    def _block_ids(output: "SchedulerOutput", request_id: str) -> list[int]:
        ids = output.kv_connector_block_state.get_block_ids(request_id)
        found: list[int] = ids[0] if ids is not None else []
        return found

    # --- what became of it

    def reported(self, report: StepReport) -> None:
        """A step has ended."""
        self._table.written(report.saved)

    def finished(self, request_id: str, *, cut_off: bool) -> None:
        """A request has left the engine."""
        self._announced.pop(request_id, None)
        self._loads.pop(request_id, None)
        self._covered.pop(request_id, None)
        self._on_hand.released(request_id)
        if not cut_off and self._loading.pop(request_id, None) is not None:
            self._table.unpin(request_id)
        settings = self._settings
        stays_s = max(settings.retain_s, settings.orphan_s) if cut_off else settings.retain_s
        self._table.release(request_id, time.monotonic() + stays_s)
        self._wake.set()

    def close(self) -> None:
        """Stop; the slab stays for whoever comes next."""
        self._closed = True
        self._wake.set()
        self._keeper.join(timeout=2.0)

    def _keep_for_ever(self) -> None:
        while not self._closed:
            self._on_hand.store.follow()
            due_s = self._table.next_expiry_s()
            left_s = IDLE_S if due_s is None else due_s - time.monotonic()
            self._wake.wait(min(IDLE_S, max(0.0, left_s)))
            self._wake.clear()
            self._table.erase_expired(time.monotonic())


def _reader_of(request: "Request") -> Reader:
    params = request.sampling_params
    name, choice = _name_and_choice(request.request_id)
    rank = _rank_of(None if params is None else params.extra_args)
    return Reader(request.request_id, stream_of(name, choice), rank)


def _rank_of(extra_args: Any) -> int:
    value = (extra_args or {}).get(RANK)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < BEST_EFFORT_TIER_RANK:
        return int(value)
    return NO_PROMISE.slo.rank.tier_rank


def _name_and_choice(engine_id: str) -> tuple[str, int]:
    """Request id and choice of one of our engine ids; any other id is a request of one choice."""
    name, _, rest = engine_id.rpartition("/")
    name, _, attempt = name.rpartition("/")
    if name and attempt.isdigit() and rest.isdigit():
        return name, int(rest)
    return engine_id, 0
