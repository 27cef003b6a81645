"""The device plugin daemon: follows the live description and keeps one plugin per resource.

Promise: a change of the description reaches the kubelet within a second; one that cannot be read is logged
and the last good one stays. A resource that is gone is offered empty, so that the kubelet lowers it at
once. One event loop.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from superinfer_gpumock.description import DescriptionInvalid
from superinfer_gpumock.deviceplugin.offer import Device, offered
from superinfer_gpumock.deviceplugin.registrar import Registrar
from superinfer_gpumock.deviceplugin.servicer import MockDevicePlugin
from superinfer_gpumock.live import LiveNode
from superinfer_gpumock.node import MockNode

_LOG = logging.getLogger(__name__)
_LOOK_S: Final = 0.25


class PluginDaemon:
    """All device plugins of one mock node."""

    def __init__(
        self,
        live: LiveNode,
        directory: Path,
        on_node: Callable[[MockNode | None], Awaitable[None]] | None = None,
        refresh: Callable[[], None] | None = None,
    ) -> None:
        """Plugins for `live` in the kubelet's `directory`.

        Args:
            live: what is offered.
            directory: the kubelet's directory of device plugin sockets.
            on_node: awaited with every new description, e.g. to publish labels; None: not described any more.
            refresh: called before every look, e.g. to take in a changed source; may raise DescriptionInvalid.
        """
        self._live = live
        self._directory = directory
        self._on_node = on_node
        self._refresh = refresh
        self._node: MockNode | None = None
        self._plugins: dict[str, MockDevicePlugin] = {}

    async def run(self) -> None:
        """Offer what is described until cancelled."""
        seen: tuple[int, int] | None = None
        problem = ""
        async with asyncio.TaskGroup() as tasks:
            while True:
                try:
                    if self._refresh is not None:
                        self._refresh()
                    version = self._live.version()
                    if version != seen:
                        node = None if version is None else self._live.read()[1]
                        self._take(node, {} if node is None else offered(node), tasks)
                        seen, problem = version, ""
                        if self._on_node is not None:
                            await self._on_node(node)
                except (DescriptionInvalid, OSError) as error:
                    if str(error) != problem:
                        problem = str(error)
                        _LOG.error("MOCK description not usable, keeping the last: %s", problem)
                await asyncio.sleep(_LOOK_S)

    def _take(
        self, node: MockNode | None, resources: Mapping[str, tuple[Device, ...]], tasks: asyncio.TaskGroup
    ) -> None:
        self._node = node or self._node
        for resource in set(self._plugins) | set(resources):
            devices = resources.get(resource, ())
            plugin = self._plugins.get(resource)
            if plugin is None:
                plugin = self._plugins[resource] = MockDevicePlugin(resource, devices, self._current)
                tasks.create_task(Registrar(plugin, self._directory).run())
                _LOG.info("MOCK %s: %d devices", resource, len(devices))
            elif plugin.offer(devices):
                sick = [device.id for device in devices if not device.healthy]
                _LOG.info(
                    "MOCK %s: %d devices, unhealthy: %s", resource, len(devices), ",".join(sick) or "none"
                )

    def _current(self) -> MockNode:
        assert self._node is not None
        return self._node
