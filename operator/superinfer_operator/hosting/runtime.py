"""What runs between start and stop: watches, the election, and the loop while this process is elected.

Promise: one that stands by knows everything already, and begins with a round as soon as it is elected; what
it remembered of an earlier turn is forgotten, because another operator worked since. Concurrency: everything
is a task of kopf's event loop; a task that ends by an error ends the process, because a half-alive operator
is worse than one that is started again.
"""

import asyncio
import logging
from time import monotonic
from typing import Final

from superinfer_core.api.v1alpha1.labels import OPERATOR_LEASE
from superinfer_kube.client import KubeClient
from superinfer_kube.election import Election
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
        self.election = (
            Election(client, namespace=settings.namespace, name=OPERATOR_LEASE, identity=settings.candidate)
            if settings.candidate
            else None
        )
        self.started_s = monotonic()
        self._settings = settings
        self.reconciler, self.loop = self._afresh()

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
            work = self._work() if self.election is None else self.election.run(self._work)
            group.create_task(work, name="loop")

    @property
    def leads(self) -> bool:
        """Whether this operator works, or would without a rival; another one may."""
        return self.election is None or self.election.leads

    @property
    def ready(self) -> bool:
        """Everything is known and was looked at once, or another operator does that."""
        return self.cluster.is_synced and (self.loop.last_good_s is not None or not self.leads)

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

    async def _work(self) -> None:
        self.reconciler, self.loop = self._afresh()
        await self.loop.run()

    def _afresh(self) -> tuple[Reconciler, Loop]:
        reconciler = Reconciler(self.cluster, self.client, self._settings, system_clock)
        return reconciler, Loop(reconciler.round, self._settings.pace)

    def _changed(self, urgency: Urgency) -> None:
        self.loop.poke(urgency)
