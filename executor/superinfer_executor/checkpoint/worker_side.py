"""The connector's half beside the model: copies blocks between vLLM's cache and the slabs.

Promise: a loaded block has the seal it was given when it was computed, or the step says that it is missing;
in a step with a missing block nothing is saved, since what it computed may rest on that block. Saves follow
the step's compute, on the worker's thread: a block costs a copy and a hash, and no block has to be held back
from reuse meanwhile.
"""

import logging
import time
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch

from superinfer_executor.checkpoint.engine_layout import EngineLayout, UnsupportedEngine
from superinfer_executor.checkpoint.settings import CheckpointSettings
from superinfer_executor.checkpoint.step import Load, Reference, Save, Source, StepPlan, StepReport
from superinfer_proto.slab import Counter, Happened, Slab, SlabInvalid, seal_of

log = logging.getLogger(__name__)

_MOST_WARNINGS: Final = 10


class WorkerSide:
    """See the module."""

    def __init__(self, settings: CheckpointSettings, layout: EngineLayout) -> None:
        self._settings = settings
        self._layout = layout
        self._cache: BlockCache | None = None
        self._slab: Slab | None = None
        self._store: Slab | None = None
        self._store_inode = 0
        self._report = StepReport()
        self._invalid: set[int] = set()
        self._failed = False
        self._warned = 0

    def register(self, caches: Mapping[str, torch.Tensor], blocks: int) -> None:
        """Take vLLM's cache, once it is there."""
        self._cache = BlockCache(list(caches.values()), blocks, self._layout.block_bytes)

    # --- loading

    def load(self, plan: StepPlan) -> None:
        """Fill cache blocks before the step computes."""
        self._failed = False
        self._follow_store()
        if not plan.loads:
            return
        began_ns = time.perf_counter_ns()
        loaded = sum(self._load(load) for load in plan.loads)
        slab = self._engine_slab()
        slab.count(Counter.LOADED_BLOCKS, loaded)
        slab.count(Counter.LOAD_NS, time.perf_counter_ns() - began_ns)
        if loaded < len(plan.loads):
            self._failed = True
            slab.count(Counter.LOAD_FAILURES, len(plan.loads) - loaded)
            self._warn(
                "%d of %d blocks could not be restored: computed again",
                len(plan.loads) - loaded,
                len(plan.loads),
            )

    def _load(self, load: Load) -> bool:
        slab = self._slab_of(load.source)
        if slab is not None and self._copy(slab, load):
            return True
        self._invalid.add(load.block_id)
        if load.source is Source.ENGINE:
            self._report.unreadable.append(load.block_hash)
        return False

    def _copy(self, slab: Slab, load: Load) -> bool:
        header = slab.read(load.slot)
        if header is None or header.sequence != load.sequence or header.block_hash != load.block_hash:
            return False
        payload = slab.payload(load.slot)
        if seal_of(slab.shape.layout, load.block_hash, payload) != header.seal:
            return False
        self._ready_cache().write(load.block_id, payload)
        return slab.holds(load.slot, load.sequence)

    # --- saving

    def save(self, plan: StepPlan) -> None:
        """Save what the step has filled."""
        slab = self._engine_slab()
        if plan.deferred_blocks:
            slab.count(Counter.DEFERRED_BLOCKS, plan.deferred_blocks)
        if plan.no_room_blocks:
            slab.count(Counter.NO_ROOM_BLOCKS, plan.no_room_blocks)
        if not plan.saves:
            return
        if self._failed:
            dropped = [save.block_hash for save in plan.saves if isinstance(save, Save)]
            self._report.dropped.extend(dropped)
            slab.count(Counter.SAVES_DROPPED, len(dropped))
            return
        began_ns = time.perf_counter_ns()
        saved = 0
        for save in plan.saves:
            if isinstance(save, Reference):
                self._refer(slab, save)
                continue
            payload = slab.payload(save.slot)
            slab.clear(save.slot)
            self._ready_cache().read(save.block_id, payload)
            seal = seal_of(slab.shape.layout, save.block_hash, payload)
            slab.publish(save.slot, save.block_hash, seal, save.stream, save.ordinal)
            self._report.saved.append(save.block_hash)
            saved += 1
        if saved:
            slab.count(Counter.SAVED_BLOCKS, saved)
            slab.count(Counter.SAVED_NS, time.perf_counter_ns() - began_ns)

    @staticmethod
    def _refer(slab: Slab, reference: Reference) -> None:
        header = slab.read(reference.slot)
        if header is not None:
            slab.note(
                Happened.REFERENCED,
                reference.stream,
                slot=reference.slot,
                slot_sequence=header.sequence,
                ordinal=reference.ordinal,
            )

    # --- what became of it

    def take_invalid(self) -> set[int]:
        """Cache blocks of this step that were not filled."""
        found, self._invalid = self._invalid, set()
        return found

    def take_report(self) -> StepReport | None:
        """The step's report, if there is anything to say."""
        report = self._report
        if not (report.saved or report.dropped or report.unreadable):
            return None
        self._report = StepReport()
        return report

    # --- inside

    def _ready_cache(self) -> "BlockCache":
        assert self._cache is not None  # vLLM registers its cache before the first step
        return self._cache

    def _engine_slab(self) -> Slab:
        if self._slab is None:
            # Made and locked by the scheduler's side before the first step.
            self._slab = Slab.open(self._settings.engine_slab, writable=True)
        return self._slab

    def _slab_of(self, source: Source) -> Slab | None:
        if source is Source.ENGINE:
            return self._engine_slab()
        if self._store is None or self._store.shape.layout != self._layout.identity:
            return None
        return self._store

    def _follow_store(self) -> None:
        """Map the sidecar's store before anything has to be loaded from it."""
        path = self._settings.store_slab
        try:
            inode = path.stat().st_ino
            if inode != self._store_inode:
                self._store_inode = inode
                self._store = Slab.open(path)
        except FileNotFoundError:
            return
        except (OSError, SlabInvalid) as error:
            self._warn("the sidecar's checkpoint store cannot be read: %s", error)

    def _warn(self, text: str, *details: object) -> None:
        self._warned += 1
        if self._warned <= _MOST_WARNINGS:
            log.warning(text, *details)


class BlockCache:
    """vLLM's cache, block by block over all layers."""

    def __init__(self, layers: list[torch.Tensor], blocks: int, block_bytes: int) -> None:
        self._layers = [_by_block(layer, blocks) for layer in layers]
        sizes = [layer[0].numel() * layer.element_size() for layer in self._layers]
        if sum(sizes) != block_bytes:
            raise UnsupportedEngine(
                f"a block of vLLM's cache has {sum(sizes)} bytes where its configuration says {block_bytes}"
            )
        self._ends = np.cumsum(sizes).tolist()
        on_cpu = all(layer.device.type == "cpu" for layer in self._layers)
        self._arrays = [layer.view(_raw(layer)).numpy() for layer in self._layers] if on_cpu else None

    def read(self, block_id: int, into: memoryview) -> None:
        """Copy one block out of the cache."""
        start = 0
        for number, end in enumerate(self._ends):
            piece = self._array(number, block_id)
            target = np.frombuffer(into[start:end], dtype=piece.dtype).reshape(piece.shape)
            np.copyto(target, piece)
            start = end

    def write(self, block_id: int, payload: memoryview) -> None:
        """Copy one block into the cache."""
        start = 0
        for number, end in enumerate(self._ends):
            layer = self._layers[number]
            if self._arrays is not None:
                target = self._arrays[number][block_id]
                np.copyto(target, np.frombuffer(payload[start:end], dtype=target.dtype).reshape(target.shape))
            else:
                raw = bytearray(payload[start:end])
                piece = torch.frombuffer(raw, dtype=layer.dtype).reshape(layer[block_id].shape)
                layer[block_id].copy_(piece)
            start = end

    def _array(self, number: int, block_id: int) -> Any:
        if self._arrays is not None:
            return self._arrays[number][block_id]
        return self._layers[number][block_id].view(_raw(self._layers[number])).cpu().numpy()


def _raw(layer: torch.Tensor) -> torch.dtype:
    """An integer type of the same size: numpy knows no bfloat16."""
    return {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[layer.element_size()]


def _by_block(layer: torch.Tensor, blocks: int) -> torch.Tensor:
    """The layer with blocks as its first axis, the pieces of a split block together."""
    axis = next((number for number, size in enumerate(layer.shape[:2]) if size % blocks == 0), None)
    if axis is None:
        raise UnsupportedEngine(f"no axis of vLLM's cache {tuple(layer.shape)} has its {blocks} blocks")
    moved = layer.movedim(axis, 0)
    return moved if moved.shape[0] == blocks else moved.unflatten(0, (blocks, -1))
