"""Writes one NodeTopology: the object once, its status whenever it changed.

Promise: server-side apply by one field manager; the object belongs to its Node, so it goes when the node
goes. One event loop.
"""

from superinfer_core.api.v1alpha1.nodetopology import NodeTopology, NodeTopologyStatus
from superinfer_kube.client import KubeClient
from superinfer_kube.errors import NotFound
from superinfer_kube.resources import NODE_TOPOLOGIES, NODES


class NodeTopologyPublisher:
    """The NodeTopology of one node."""

    def __init__(self, client: KubeClient, node_name: str) -> None:
        self._client = client
        self._name = node_name
        self._made = False

    async def published(self) -> NodeTopologyStatus | None:
        """What is there from an earlier run; None where there is nothing usable. Raises KubeError."""
        try:
            document = await self._client.get(NODE_TOPOLOGIES, self._name)
        except NotFound:
            return None
        return NodeTopology.model_validate(document).status

    async def publish(self, status: NodeTopologyStatus) -> None:
        """Make the status this one; raises KubeError."""
        if not self._made:
            await self._make()
        try:
            await self._apply(status)
        except NotFound:  # somebody deleted it
            await self._make()
            await self._apply(status)

    async def _apply(self, status: NodeTopologyStatus) -> None:
        document = status.model_dump(mode="json", exclude_none=True)
        await self._client.apply_status(
            NODE_TOPOLOGIES, {"metadata": {"name": self._name}, "status": document}
        )

    async def _make(self) -> None:
        node = await self._client.get(NODES, self._name)
        owner = {"apiVersion": "v1", "kind": "Node", "name": self._name, "uid": node["metadata"]["uid"]}
        await self._client.apply(
            NODE_TOPOLOGIES, {"metadata": {"name": self._name, "ownerReferences": [owner]}}
        )
        self._made = True
