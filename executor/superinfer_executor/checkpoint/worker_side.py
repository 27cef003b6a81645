"""The connector's half beside the model: copies blocks between vLLM's cache and the engine's slab.

Promise: what is loaded is what the scheduler's side found right and holds; memory that changed since then
ends the engine, since its requests go on elsewhere exactly, and a step over a wrong block would not. Saves
follow the step's compute, on the worker's thread: a block costs a copy and a hash, and none has to be held
back from reuse meanwhile.
"""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from superinfer_executor.checkpoint.engine_layout import EngineLayout, UnsupportedEngine
from superinfer_executor.checkpoint.settings import CheckpointSettings
from superinfer_executor.checkpoint.step import Reference, Save, StepPlan, StepReport
from superinfer_executor.checkpoint.table import engine_slabs
from superinfer_proto.slab import Counter, Happened, Slab, seal_of


class SlabChangedError(RuntimeError):
    """Somebody else writes this engine's slab."""


class WorkerSide:
    """See the module."""

    def __init__(self, settings: CheckpointSettings, layout: EngineLayout) -> None:
        self._settings = settings
        self._layout = layout
        self._cache: BlockCache | None = None
        self._slab: Slab | None = None
        self._saved: list[bytes] = []

    def register(self, caches: Mapping[str, torch.Tensor], blocks: int) -> None:
        """Take vLLM's cache, once it is there."""
        self._cache = BlockCache(list(caches.values()), blocks, self._layout.block_bytes)

    def begin(self, plan: StepPlan) -> None:
        """Empty blocks of which a part may be saved, before the step computes."""
        for block_id in plan.blanks:
            self._ready_cache().blank(block_id)

    def load(self, plan: StepPlan) -> None:
        """Fill cache blocks before the step computes."""
        if not plan.loads:
            return
        began_ns = time.perf_counter_ns()
        slab, cache = self._engine_slab(), self._ready_cache()
        for load in plan.loads:
            header = slab.read(load.slot)
            if header is None or header.block_hash != load.block_hash:
                raise SlabChangedError(f"block {load.slot} of {slab.path} changed while it was held")
            cache.write(load.block_id, slab.payload(load.slot))
            if not slab.holds(load.slot, load.sequence):
                raise SlabChangedError(f"block {load.slot} of {slab.path} changed while it was loaded")
        slab.count(Counter.LOADED_BLOCKS, len(plan.loads))
        slab.count(Counter.LOAD_NS, time.perf_counter_ns() - began_ns)

    def save(self, plan: StepPlan) -> None:
        """Save what the step has filled."""
        slab = self._engine_slab()
        if plan.deferred_blocks:
            slab.count(Counter.DEFERRED_BLOCKS, plan.deferred_blocks)
        if plan.no_room_blocks:
            slab.count(Counter.NO_ROOM_BLOCKS, plan.no_room_blocks)
        if not plan.saves:
            return
        began_ns = time.perf_counter_ns()
        before = len(self._saved)
        for save in plan.saves:
            if isinstance(save, Reference):
                self._refer(slab, save)
            else:
                self._save(slab, save)
        saved = len(self._saved) - before
        if saved:
            slab.count(Counter.SAVED_BLOCKS, saved)
            slab.count(Counter.SAVED_NS, time.perf_counter_ns() - began_ns)

    def _save(self, slab: Slab, save: Save) -> None:
        payload = slab.payload(save.slot)
        slab.clear(save.slot)
        self._ready_cache().read(save.block_id, payload)
        seal = seal_of(slab.shape.layout, save.block_hash, payload)
        slab.publish(
            save.slot, save.block_hash, seal, save.stream, save.ordinal, tail_tokens=save.tail_tokens
        )
        self._saved.append(save.block_hash)

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

    def take_report(self) -> StepReport | None:
        """What was saved since the last report, if anything was."""
        if not self._saved:
            return None
        saved, self._saved = self._saved, []
        return StepReport(saved)

    def _ready_cache(self) -> "BlockCache":
        assert self._cache is not None  # vLLM registers its cache before the first step
        return self._cache

    def _engine_slab(self) -> Slab:
        if self._slab is None:
            # Made and locked by the scheduler's side before the first step.
            self._slab = engine_slabs[self._settings.engine_slab]
        return self._slab


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

    def blank(self, block_id: int) -> None:
        """Fill one block with zeros."""
        for number, layer in enumerate(self._layers):
            if self._arrays is not None:
                self._arrays[number][block_id].fill(0)
            else:
                layer[block_id].zero_()

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
