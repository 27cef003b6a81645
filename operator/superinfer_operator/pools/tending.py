"""Everything one pool needs, written in an order that holds at every point where it may be cut off.

First the claim (finalizer, and the incarnations about to be used), so that a pod never exists whose pool
could vanish or whose name could be used twice. Then what pods need, then pods, then deletions, then status.
Each step compares with what is there and writes only what differs. Concurrency: one task per pool at a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from superinfer_core.api.v1alpha1 import labels
from superinfer_core.api.v1alpha1.chipletpool import CHIPLETPOOL_KIND, Allocation
from superinfer_core.placement import Assignment, Ended
from superinfer_core.pods.beside import disruption_budget, executors_service
from superinfer_kube.informer import Informer, Key
from superinfer_kube.resources import CHIPLET_POOLS, POD_DISRUPTION_BUDGETS, SERVICES, Resource
from superinfer_operator.placing.setup import PoolSetup
from superinfer_operator.pools.claims import ClaimKeeper
from superinfer_operator.pools.objects import (
    claim_on_pool,
    highest_incarnations,
    pod_of,
    release_of_pool,
    with_new,
)
from superinfer_operator.pools.status import NO_OUTCOME, PoolOutcome, pool_status, same_status
from superinfer_operator.reconciling.clock import Now
from superinfer_operator.reconciling.events import About, EventType, Happening, condition_events
from superinfer_operator.reconciling.recording import Recorder
from superinfer_operator.reconciling.writing import Writer
from superinfer_operator.settings import OperatorSettings
from superinfer_operator.watching.cluster import Cluster
from superinfer_operator.watching.objects import MadeObject, intent_digest
from superinfer_operator.watching.pods import ExecutorPod, seconds
from superinfer_operator.watching.pools import PoolRecord

_ENDING_GRACE_S: Final = 5
_TOLD: Final = 8


@dataclass(frozen=True, slots=True)
class PoolWork:
    """What the plan wants of one pool.

    Attributes:
        setup: the pool.
        create: executors to make now.
        drain: executors to end gracefully.
        delete: executors to end at once.
        outcome: what else the plan says, for its status.
    """

    setup: PoolSetup
    create: tuple[Assignment, ...] = ()
    drain: tuple[Ended, ...] = ()
    delete: tuple[Ended, ...] = ()
    outcome: PoolOutcome = NO_OUTCOME


class PoolTender:
    """Does what pools need."""

    def __init__(
        self, cluster: Cluster, writer: Writer, recorder: Recorder, settings: OperatorSettings
    ) -> None:
        self._cluster = cluster
        self._writer = writer
        self._recorder = recorder
        self._settings = settings
        self._claims = ClaimKeeper(writer)

    async def tend(self, work: PoolWork, pods: Sequence[ExecutorPod], now: Now) -> None:
        """Bring one pool closer to what it should be."""
        record = work.setup.record
        if record.deleting:
            if await self._let_go(record, pods, now):
                return
        elif not await self._claim(work, pods):
            return
        if not record.deleting and record.pool is not None and work.setup.demand is not None:
            await self._keep(SERVICES, self._cluster.services, executors_service(record.pool), record)
            budget = disruption_budget(record.pool)
            await self._keep(POD_DISRUPTION_BUDGETS, self._cluster.budgets, budget, record)
            await self._create(work, pods, now)
            if work.setup.demand.allocation is Allocation.DRA:
                waiting = [pod for pod in self._cluster.executors(now.seconds) if pod.pool == record.key]
                await self._claims.keep(record.key, waiting, now)
        await self._end(work, pods)
        await self._tell(work, now)

    async def _claim(self, work: PoolWork, pods: Sequence[ExecutorPod]) -> bool:
        """Whether the pool carries our finalizer and the incarnations that are about to be used."""
        record = work.setup.record
        if record.pool is None:
            return True
        taken = with_new(highest_incarnations(record, pods), work.create)
        if labels.DRAIN_FINALIZER in record.finalizers and taken == record.incarnations:
            return True
        return await self._writer.apply(CHIPLET_POOLS, claim_on_pool(record, taken)) is not None

    async def _let_go(self, record: PoolRecord, pods: Sequence[ExecutorPod], now: Now) -> bool:
        """Whether the pool was released: nothing runs any more, or its time is over."""
        if labels.DRAIN_FINALIZER not in record.finalizers:
            return True
        drain_s = record.pool.spec.drain_seconds if record.pool is not None else 60
        since = seconds(str(record.metadata.get("deletionTimestamp") or ""))
        overdue = now.seconds - since > drain_s + self._settings.force_after_s
        if pods and not overdue:
            return False
        if pods:
            note = f"{len(pods)} executors are still there after {now.seconds - since:.0f} s; letting go"
            happening = Happening(_about(record), EventType.WARNING, "DrainOverdue", "Release", note)
            await self._recorder.record(happening, now)
            for pod in pods:
                await self._writer.delete_pod(pod.namespace, pod.name, pod.uid, grace_s=0)
        await self._writer.apply(CHIPLET_POOLS, release_of_pool(record))
        return True

    async def _keep(
        self,
        resource: Resource,
        known: Informer[MadeObject],
        document: dict[str, Any],
        record: PoolRecord,
    ) -> None:
        metadata = document["metadata"]
        made = known.objects.get(Key(metadata["namespace"], metadata["name"]))
        if made is None or made.digest != intent_digest(document) or made.owner != record.uid:
            await self._writer.apply(resource, document)

    async def _create(self, work: PoolWork, pods: Sequence[ExecutorPod], now: Now) -> None:
        highest = highest_incarnations(work.setup.record, pods)
        told = []
        for assignment in work.create:
            incarnation = highest.get(assignment.slot, 0) + 1
            highest[assignment.slot] = incarnation
            document = pod_of(work.setup, assignment, incarnation, self._settings.pods)
            made = await self._writer.create_pod(document)
            if made is None:
                continue
            self._cluster.note_pod(made, now.seconds)
            told.append(f"{document['metadata']['name']} on node {assignment.node}")
            if assignment.replaces:
                told[-1] += f" in place of {assignment.replaces.rpartition('/')[2]}"
        if told:
            note = f"made {_listed(told)}"
            about = _about(work.setup.record)
            happening = Happening(about, EventType.NORMAL, "ExecutorCreated", "CreateExecutor", note)
            await self._recorder.record(happening, now)

    async def _end(self, work: PoolWork, pods: Sequence[ExecutorPod]) -> None:
        by_key = {pod.key: pod for pod in pods}
        told: dict[str, list[str]] = {}
        for ended, grace_s in (
            *((ended, None) for ended in work.drain),
            *((ended, 0 if ended.force else _ENDING_GRACE_S) for ended in work.delete),
        ):
            pod = by_key.get(ended.name)
            if pod is None or (pod.terminating and not ended.force):
                continue
            if not await self._writer.delete_pod(pod.namespace, pod.name, pod.uid, grace_s=grace_s):
                continue
            self._cluster.note_deleting(pod)
            told.setdefault(ended.reason.value, []).append(f"{pod.name} ({ended.message})")
        for reason, names in told.items():
            about = _about(work.setup.record)
            note = f"ending {_listed(names)}"
            happening = Happening(about, EventType.NORMAL, reason, "EndExecutor", note)
            await self._recorder.record(happening, self._recorder.now())

    async def _tell(self, work: PoolWork, now: Now) -> None:
        record = work.setup.record
        pods = [pod for pod in self._cluster.executors(now.seconds) if pod.pool == record.key]
        status = pool_status(work.setup, pods, work.outcome, now=now.text)
        if same_status(record.status, status):
            return
        written = await self._writer.apply_status(
            CHIPLET_POOLS, record.namespace, record.name, record.uid, status
        )
        if written is None:
            return
        before = record.status.get("conditions") or ()
        for happening in condition_events(_about(record), before, status["conditions"]):
            await self._recorder.record(happening, now)


def _listed(names: Sequence[str]) -> str:
    """The first few; one event tells of a whole round."""
    rest = len(names) - _TOLD
    return ", ".join(names[:_TOLD]) + (f" and {rest} more" if rest > 0 else "")


def _about(record: PoolRecord) -> About:
    return About(CHIPLETPOOL_KIND, record.namespace, record.name, record.uid)
