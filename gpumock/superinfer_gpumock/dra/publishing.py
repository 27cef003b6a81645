"""The node's ResourceSlice: written when devices change, deleted when they are not DRA's, else restored.

The kubelet deletes the slices of a driver that is away for a while; what is deleted while devices are
offered is written again. One event loop.
"""

import logging
from collections.abc import Callable
from typing import Any

from superinfer_gpumock.description import Offer
from superinfer_gpumock.dra.slices import DRIVER, devices, resource_slice
from superinfer_gpumock.node import MockNode
from superinfer_kube.client import KubeClient
from superinfer_kube.errors import NotFound
from superinfer_kube.informer import ChangeKind, Informer
from superinfer_kube.resources import NODES, RESOURCE_CLAIMS, RESOURCE_SLICES

_LOG = logging.getLogger(__name__)


class SlicePublisher:
    """The ResourceSlice of one node."""

    def __init__(self, client: KubeClient, node_name: str) -> None:
        self._client = client
        self._node_name = node_name
        self._name = f"{node_name}-{DRIVER}"

    async def publish(self, node: MockNode | None) -> None:
        """Make the slice say what the node offers; raises KubeError."""
        current = await self._current()
        if node is None or node.offer is not Offer.DRA:
            if current is not None:
                await self._client.delete(RESOURCE_SLICES, self._name)
                _LOG.info("MOCK ResourceSlice deleted: devices go through the device plugin")
            return
        generation = 1
        if current is not None:
            spec = current["spec"]
            generation = spec["pool"]["generation"]
            if _comparable(spec.get("devices") or []) == _comparable(devices(node)):
                return
            generation += 1
        uid = (await self._client.get(NODES, self._node_name))["metadata"]["uid"]
        await self._client.apply(RESOURCE_SLICES, resource_slice(node, node_uid=uid, generation=generation))
        _LOG.info("MOCK ResourceSlice published: %d devices, generation %d", len(devices(node)), generation)

    async def _current(self) -> dict[str, Any] | None:
        try:
            return await self._client.get(RESOURCE_SLICES, self._name)
        except NotFound:
            return None

    async def follow(self, deleted: Callable[[], None]) -> None:
        """Call `deleted` whenever the slice is deleted; for ever."""
        informer = Informer(
            self._client, RESOURCE_SLICES, _name_of, fields=f"spec.nodeName={self._node_name}"
        )
        async for change in informer.changes():
            if change.kind is ChangeKind.DELETED and change.key.name == self._name:
                deleted()

    async def claim(self, namespace: str, name: str) -> dict[str, Any]:
        """A ResourceClaim; raises KubeError."""
        return await self._client.get(RESOURCE_CLAIMS, name, namespace)


def _comparable(found: list[dict[str, Any]]) -> dict[str, str]:
    """What tells devices apart; quantities may come back in another spelling."""
    return {device["name"]: repr(sorted(device.get("attributes", {}).items())) for device in found}


def _name_of(document: dict[str, Any]) -> str:
    return str(document["metadata"]["name"])
