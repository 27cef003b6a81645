"""Tells NVIDIA's MIG manager a configuration, by the label it reads; only where `--mig-config on` allows it.

Promise: what `core.placement.mig_layout` chooses, one node at a time, with an event on every pool it is
for. The operator never touches a GPU: the MIG manager does, and refuses what it cannot do. Runs within a
round.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from superinfer_core.api.v1alpha1.chipletpool import CHIPLETPOOL_KIND
from superinfer_core.api.v1alpha1.labels import MIG_CONFIG_LABEL
from superinfer_core.placement import Node
from superinfer_core.placement.mig_layout import PATIENCE_S, LayoutChange, LayoutMemory, choose, follow_up
from superinfer_core.placement.outcome import LayoutAdvice
from superinfer_kube.resources import NODES
from superinfer_operator.reconciling.clock import Now
from superinfer_operator.reconciling.events import About, EventType, Happening
from superinfer_operator.reconciling.recording import Recorder
from superinfer_operator.reconciling.writing import Writer

_log = logging.getLogger("superinfer.operator")

GPU_DOMAIN: Final = "nvidia.com/"
"""Who holds a resource of it on a node uses its GPUs."""


class MigLayoutTender:
    """Follows advice on MIG layouts."""

    def __init__(self, writer: Writer, recorder: Recorder) -> None:
        self._writer = writer
        self._recorder = recorder
        self._memory = LayoutMemory()

    @property
    def next_at(self) -> float | None:
        """When time alone makes a look due: a change under way may have failed by then."""
        change = self._memory.under_way
        return None if change is None else change.since_s + PATIENCE_S

    async def tend(
        self,
        advice: Sequence[LayoutAdvice],
        nodes: Mapping[str, Node],
        in_use: Collection[str],
        uids: Mapping[str, str],
        now: Now,
    ) -> None:
        """Tell the next node, if there is one.

        Args:
            advice: of this round's plan.
            nodes: by name, with their topologies.
            in_use: nodes where somebody holds a GPU or is about to.
            uids: of pools by key, for events.
            now: the time.
        """
        self._memory = follow_up(self._memory, nodes, now.seconds)
        change = choose(advice, nodes, in_use, self._memory, now.seconds)
        if change is None:
            return
        metadata = {"name": change.node, "labels": {MIG_CONFIG_LABEL: change.config}}
        if await self._writer.apply(NODES, {"metadata": metadata}) is None:
            return
        self._memory = LayoutMemory(change, self._memory.failed)
        _log.info("node %s: %s=%s", change.node, MIG_CONFIG_LABEL, change.config)
        for pool in change.pools:
            await self._tell(pool, uids.get(pool, ""), change, now)

    async def _tell(self, pool: str, uid: str, change: LayoutChange, now: Now) -> None:
        namespace, _, name = pool.partition("/")
        happening = Happening(
            about=About(CHIPLETPOOL_KIND, namespace, name, uid),
            type=EventType.NORMAL,
            reason="MIGLayoutChanging",
            action="SetMIGConfig",
            note=f"Node {change.node} is told {MIG_CONFIG_LABEL}={change.config}: it {change.why}",
        )
        await self._recorder.record(happening, now)
