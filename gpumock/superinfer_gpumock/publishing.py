"""What the mock writes to and reads from its own Node object: labels as GPU feature discovery sets them.

Written by server-side apply under a field manager of its own, so labels that no longer hold go away. One
event loop.
"""

import logging
from collections.abc import Callable
from typing import Any, Final

from superinfer_gpumock.labels import node_labels
from superinfer_gpumock.node import MockNode
from superinfer_gpumock.source import LABEL
from superinfer_kube.client import KubeClient
from superinfer_kube.informer import ChangeKind, Informer
from superinfer_kube.resources import NODES

_LOG = logging.getLogger(__name__)
FIELD_MANAGER: Final = "superinfer-gpumock"


class NodePublisher:
    """The Node object of this machine."""

    def __init__(self, client: KubeClient, node_name: str) -> None:
        self._client = client
        self._name = node_name
        self._published: dict[str, str] | None = None

    async def publish(self, node: MockNode) -> None:
        """Set the labels of the description; raises KubeError."""
        labels = dict(node_labels(node))
        if labels == self._published:
            return
        await self._client.apply(NODES, {"metadata": {"name": self._name, "labels": labels}})
        self._published = labels
        _LOG.info("MOCK labels published for %s", node.product.label)

    async def follow_label(self, told: Callable[[str], None]) -> None:
        """Call `told` with the value of the description label, now and when it changes; for ever."""
        informer = Informer(self._client, NODES, _labels_of, fields=f"metadata.name={self._name}")
        async for change in informer.changes():
            if change.kind in (ChangeKind.ADDED, ChangeKind.MODIFIED) and change.object is not None:
                told(change.object)


def _labels_of(document: dict[str, Any]) -> str:
    return str(document["metadata"].get("labels", {}).get(LABEL, ""))
