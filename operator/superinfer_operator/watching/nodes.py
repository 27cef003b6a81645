"""Facts about nodes, as placement takes them. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from superinfer_core.placement import Node, Taint
from superinfer_core.placement.node import TaintEffect
from superinfer_core.pods.quantity import amounts
from superinfer_operator.watching.pods import seconds

_IMPLIED_TAINTS: Final = frozenset(
    {
        "node.kubernetes.io/unschedulable",
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    }
)
"""Set by Kubernetes for what `ready` and `schedulable` already say."""

_COUNTED: Final = frozenset({"cpu", "memory", "pods", "ephemeral-storage"})


def node_facts(document: Mapping[str, Any]) -> Node:
    """A node without its topology."""
    metadata, spec, status = document["metadata"], document.get("spec") or {}, document.get("status") or {}
    ready, since = _readiness(status)
    allocatable = amounts(status.get("allocatable") or {})
    return Node(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        labels=dict(metadata.get("labels") or {}),
        taints=tuple(
            Taint(taint["key"], TaintEffect(taint["effect"]), taint.get("value") or "")
            for taint in spec.get("taints") or ()
            if taint.get("key") not in _IMPLIED_TAINTS
        ),
        ready=ready,
        not_ready_since=None if ready else since,
        schedulable=not spec.get("unschedulable", False),
        allocatable={name: n for name, n in allocatable.items() if name in _COUNTED or "/" in name},
    )


def _readiness(status: Mapping[str, Any]) -> tuple[bool, float]:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Ready":
            return condition.get("status") == "True", seconds(condition.get("lastTransitionTime"))
    return False, 0.0
