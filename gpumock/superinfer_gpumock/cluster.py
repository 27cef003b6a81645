"""The mock's side towards the API server: labels, the description label, ResourceSlices, and the DRA driver.

Promise: what could not be written is tried again until it is written or out of date; the device plugin does
not wait for any of it. One event loop.
"""

import asyncio
import logging
from typing import Final

from superinfer_gpumock.description import DescriptionInvalid, Offer
from superinfer_gpumock.dra.plugin import MockDraDriver, Places, serving
from superinfer_gpumock.dra.publishing import SlicePublisher
from superinfer_gpumock.live import LiveNode
from superinfer_gpumock.node import MockNode
from superinfer_gpumock.publishing import NodePublisher, Wishes
from superinfer_gpumock.relayout import relayout
from superinfer_gpumock.source import Source
from superinfer_kube.client import KubeClient
from superinfer_kube.errors import KubeError

_LOG = logging.getLogger(__name__)
_RETRY_S: Final = 5.0


class ClusterSide:
    """Publishes one node and serves its DRA driver."""

    def __init__(self, client: KubeClient, source: Source, live: LiveNode, places: Places) -> None:
        self._source = source
        self._live = live
        self._places = places
        self._labels = NodePublisher(client, source.node_name)
        self._slices = SlicePublisher(client, source.node_name)
        self._node: MockNode | None = None
        self._known = False
        """Whether it is known what the node is; nothing is taken away before."""
        self._mig_config = ""
        self._applied_config = ""
        self._news = asyncio.Event()
        self._dra_wanted = asyncio.Event()

    async def take(self, node: MockNode | None) -> None:
        """The node is this now; None: it is no mock any more."""
        self._node, self._known = node, True
        self._news.set()
        if node is not None and node.offer is Offer.DRA:
            self._dra_wanted.set()

    async def run(self) -> None:
        """Publish and serve until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._labels.follow_labels(self._told))
            tasks.create_task(self._slices.follow(self._news.set))
            tasks.create_task(self._publish())
            tasks.create_task(self._serve())

    def _told(self, wishes: Wishes) -> None:
        self._source.label = wishes.description
        self._mig_config = wishes.mig_config
        self._news.set()

    def _configure(self) -> None:
        """The MIG manager's part: lay the GPUs out as the label says, once for each value."""
        if not self._mig_config or self._mig_config == self._applied_config or self._node is None:
            return
        self._applied_config = self._mig_config
        try:
            self._live.edit(lambda described: relayout(described, self._mig_config))
        except DescriptionInvalid as error:
            _LOG.warning("MOCK MIG manager: %s", error)
            self._labels.mig_state = "failed"
            return
        self._labels.mig_state = "success"
        _LOG.info("MOCK MIG manager: all GPUs are %s", self._mig_config)

    async def _publish(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            if not self._known:
                continue
            node = self._node
            self._configure()
            try:
                await self._labels.publish(node)
                await self._slices.publish(node)
            except KubeError as error:
                _LOG.warning("MOCK node not published, will retry: %s", error)
                await asyncio.sleep(_RETRY_S)
                self._news.set()

    async def _serve(self) -> None:
        """The DRA driver, from the first description that asks for it."""
        await self._dra_wanted.wait()
        driver = MockDraDriver(lambda: self._node, self._slices.claim, self._places)
        async with serving(driver, self._places):
            await asyncio.Event().wait()
