"""What runs between start and stop: watches, the loop, and the page of probes and metrics.

Concurrency: everything is a task of kopf's event loop; a task that ends by an error ends the process, because
a half-alive operator is worse than one that is started again.
"""

import asyncio
import logging
from time import monotonic
from typing import Final

from superinfer_kube.client import KubeClient
from superinfer_operator.reconciling.clock import system_clock
from superinfer_operator.reconciling.loop import Loop
from superinfer_operator.reconciling.reconciler import Reconciler
from superinfer_operator.settings import OperatorSettings
from superinfer_operator.watching.cluster import Cluster, Urgency, silent_for

_log = logging.getLogger("superinfer.operator")

SILENT_S: Final = 240.0
"""A watch proves every minute that it lives; an API server that is away is no reason to be killed."""

STUCK_S: Final = 300.0


class Runtime:
    """One running operator."""

    def __init__(self, client: KubeClient, settings: OperatorSettings) -> None:
        self.client = client
        self.cluster = Cluster(
            client,
            namespace=settings.namespace,
            changed=self._changed,
            secret_namespaces=settings.secret_namespaces,
        )
        self.reconciler = Reconciler(self.cluster, client, settings, system_clock)
        self.loop = Loop(self.reconciler.round, settings.pace)
        self.started_s = monotonic()

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.cluster.run(), name="watches")
            await self.cluster.synced()
            _log.info(
                "everything is known after %.1f s: %d pools, %d contracts, %d nodes",
                monotonic() - self.started_s,
                len(self.cluster.pools.objects),
                len(self.cluster.contracts.objects),
                len(self.cluster.nodes.objects),
            )
            group.create_task(self.loop.run(), name="loop")

    @property
    def ready(self) -> bool:
        """Everything is known and was looked at once."""
        return self.cluster.is_synced and self.loop.last_good_s is not None

    def unhealthy(self) -> str:
        """Why the process should be started again; "" while it should not."""
        now_s = monotonic()
        # One in trouble knows it and tries again; this is about those that believe to be listening.
        listening = [informer for informer in self.cluster.informers if informer.trouble is None]
        silent_s = silent_for(listening, now_s)
        if self.cluster.is_synced and silent_s > SILENT_S:
            return f"a watch has been silent for {silent_s:.0f} s although the API server answers"
        if self.loop.running_since_s is not None and now_s - self.loop.running_since_s > STUCK_S:
            return f"a round has been going on for {now_s - self.loop.running_since_s:.0f} s"
        return ""

    def _changed(self, urgency: Urgency) -> None:
        self.loop.poke(urgency)
