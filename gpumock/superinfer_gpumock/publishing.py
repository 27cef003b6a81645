"""What the mock writes to and reads from its own Node object: labels as GPU feature discovery sets them.

Written by server-side apply under a field manager of its own, so labels that no longer hold go away. One
event loop.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from superinfer_gpumock.labels import node_labels
from superinfer_gpumock.node import MockNode
from superinfer_gpumock.relayout import CONFIG_LABEL, STATE_LABEL
from superinfer_gpumock.source import LABEL
from superinfer_kube.client import KubeClient
from superinfer_kube.informer import ChangeKind, Informer
from superinfer_kube.resources import NODES

_LOG = logging.getLogger(__name__)
FIELD_MANAGER: Final = "superinfer-gpumock"


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the labels of the node ask of the mock; empty where they do not."""

    description: str
    mig_config: str


class NodePublisher:
    """The Node object of this machine."""

    def __init__(self, client: KubeClient, node_name: str) -> None:
        self._client = client
        self._name = node_name
        self._published: dict[str, str] | None = None
        self.mig_state = "success"
        """What became of the MIG configuration the node was told; published as a label."""

    async def publish(self, node: MockNode | None) -> None:
        """Set the labels of the description, take them away where there is none; raises KubeError."""
        labels = {} if node is None else dict(node_labels(node))
        if node is not None and node.product.mig_profiles:
            labels[STATE_LABEL] = self.mig_state
        if labels == (self._published or {}):
            return
        await self._client.apply(NODES, {"metadata": {"name": self._name, "labels": labels}})
        self._published = labels
        _LOG.info("MOCK labels published: %s", "none" if node is None else node.product.label)

    async def follow_labels(self, told: Callable[[Wishes], None]) -> None:
        """Call `told` with what the node's labels ask for, now and when they change; for ever."""
        informer = Informer(self._client, NODES, _wishes_of, fields=f"metadata.name={self._name}")
        async for change in informer.changes():
            if change.kind in (ChangeKind.ADDED, ChangeKind.MODIFIED) and change.object is not None:
                told(change.object)


def _wishes_of(document: dict[str, Any]) -> Wishes:
    labels = document["metadata"].get("labels") or {}
    return Wishes(labels.get(LABEL, ""), labels.get(CONFIG_LABEL, ""))
