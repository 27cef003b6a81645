"""Pools together with what their contracts promise: the memory that takes, and the shapes that would do.

A pool that is as it was, with contracts and hardware as they were, stays the same object, so that nobody
writes anything because of it. Used by one task (its call may run in a thread).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from superinfer_core.contract.pool_promises import NO_PROMISES, PoolPromises
from superinfer_core.placement import Node, Topology
from superinfer_core.placement.idle_hardware import HardwareView, IdleHardware
from superinfer_core.placement.memory import need_of_pool
from superinfer_core.placement.pool_shapes import pool_shapes
from superinfer_operator.placing.setup import PoolSetup


def promised(setup: PoolSetup, promises: PoolPromises, hardware: IdleHardware) -> PoolSetup:
    """A pool with the memory its contracts make it need, and the shapes that keep them. Pure."""
    pool, demand = setup.record.pool, setup.demand
    if pool is None or demand is None:
        return setup
    spec, at_once = pool.spec, promises.at_once

    def memory_mib(gpus: int) -> int | None:
        need = need_of_pool(spec, at_once=at_once, gpus=gpus)
        return need.chiplet_mib if need is not None else None

    needing = setup.needing(need_of_pool(spec, at_once=at_once, gpus=demand.chiplet.count))
    shapes = pool_shapes(demand, promises, setup.profiles, hardware, memory_mib)
    return needing if shapes == needing.shapes else replace(needing, shapes=shapes)


@dataclass(frozen=True, slots=True)
class _Known:
    setup: PoolSetup
    promises: PoolPromises
    hardware: IdleHardware
    result: PoolSetup


class PromisedSetups:
    """Remembers what pools came to."""

    def __init__(self) -> None:
        self._view = HardwareView()
        self._known: dict[str, _Known] = {}

    def of(
        self,
        setups: Iterable[PoolSetup],
        promises: Mapping[str, PoolPromises],
        nodes: Iterable[Node],
        topologies: Mapping[str, Topology],
    ) -> dict[str, PoolSetup]:
        """Every pool, by key.

        Args:
            setups: as they are by themselves.
            promises: by pool.
            nodes: all of them, without topologies.
            topologies: by node.
        """
        listed = list(setups)
        demands = [setup.demand for setup in listed if setup.demand is not None]
        hardware = self._view.of(nodes, topologies, demands)
        before, self._known = self._known, {}
        for setup in listed:
            told, known = promises.get(setup.key, NO_PROMISES), before.get(setup.key)
            same_input = known is not None and known.setup is setup and known.promises == told
            if known is None or not same_input or known.hardware is not hardware:
                result = promised(setup, told, hardware)
                # What comes out equal stays the same, whatever changed before it.
                unchanged = known is not None and known.setup is setup and known.result == result
                kept = known.result if known is not None and unchanged else result
                known = _Known(setup, told, hardware, kept)
            self._known[setup.key] = known
        return {key: known.result for key, known in self._known.items()}
