"""Which node's MIG layout is changed next, where an administrator lets advice be followed.

Promise: pure. One node at a time; only a node that is idle as a whole, whose GPUs are known, and whose MIG
manager says that it is done with what it was told before. A change is over when the driver shows the
layout; one that failed, or that does not show in time, is not tried again.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from superinfer_core.api.v1alpha1.labels import MIG_CONFIG_LABEL
from superinfer_core.placement.advice import named_layouts
from superinfer_core.placement.geometry import product_named
from superinfer_core.placement.node import Node
from superinfer_core.placement.outcome import LayoutAdvice

MIG_STATE_LABEL: Final = f"{MIG_CONFIG_LABEL}.state"
PATIENCE_S: Final = 900.0
"""A change that does not show after so long has failed; some GPUs need a reboot for it."""

_DONE: Final = "success"
_FAILED: Final = "failed"
_BUSY: Final = frozenset({"pending", "rebooting"})


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """A node that was told a configuration.

    Attributes:
        node: its name.
        config: mig-parted's name, the value of the label.
        pools: whom it helps.
        since_s: when it was told.
        why: the advice in words.
    """

    node: str
    config: str
    pools: tuple[str, ...]
    since_s: float
    why: str


@dataclass(frozen=True, slots=True)
class LayoutMemory:
    """What one round hands to the next; losing it costs at most one change tried again.

    Attributes:
        under_way: the change that has begun and does not show yet.
        failed: node and configuration of changes that came to nothing.
    """

    under_way: LayoutChange | None = None
    failed: frozenset[tuple[str, str]] = frozenset()


def follow_up(memory: LayoutMemory, nodes: Mapping[str, Node], now_s: float) -> LayoutMemory:
    """What has become of the change under way."""
    change = memory.under_way
    if change is None:
        return memory
    node = nodes.get(change.node)
    if node is None or (_told(node) == change.config and has_layout(node, change.config)):
        return LayoutMemory(None, memory.failed)
    if node.labels.get(MIG_STATE_LABEL) == _FAILED or now_s - change.since_s >= PATIENCE_S:
        return LayoutMemory(None, memory.failed | {(change.node, change.config)})
    return memory


def choose(
    advice: Sequence[LayoutAdvice],
    nodes: Mapping[str, Node],
    in_use: Collection[str],
    memory: LayoutMemory,
    now_s: float,
) -> LayoutChange | None:
    """The next node to be told a configuration; None while one is under way, or where nothing may be done.

    Args:
        advice: layouts that would make room, the most useful first.
        nodes: by name.
        in_use: names of nodes where somebody holds a GPU, or is about to.
        memory: of changes before.
        now_s: the time.
    """
    if memory.under_way is not None:
        return None
    if any(node.labels.get(MIG_STATE_LABEL) in _BUSY for node in nodes.values()):
        return None
    for item in advice:
        node = nodes.get(item.node)
        if node is None or item.config is None or item.device != "all" or item.node in in_use:
            continue
        settled = node.labels.get(MIG_STATE_LABEL) == _DONE and node.topology is not None
        tried = (item.node, item.config) in memory.failed or _told(node) == item.config
        if settled and not tried and node.ready:
            return LayoutChange(item.node, item.config, item.pools, now_s, item.message)
    return None


def has_layout(node: Node, config: str) -> bool:
    """Whether the driver shows the configuration on every GPU of the node."""
    if node.topology is None or not node.topology.gpus:
        return False
    for gpu in node.topology.gpus:
        product = product_named(gpu.product)
        layout = dict(named_layouts(product)).get(config) if product is not None else None
        if layout is None:
            return False
        shown = Counter(instance.profile for instance in gpu.instances)
        if gpu.mig_enabled != bool(layout) or shown != Counter(dict(layout)):
            return False
    return True


def _told(node: Node) -> str:
    return node.labels.get(MIG_CONFIG_LABEL, "")
