"""Everything one pool needs, written in an order that holds at every point where it may be cut off.

First the claim (finalizer, and the incarnations about to be used), so that a pod never exists whose pool
could vanish or whose name could be used twice. Then what pods need, then pods, then deletions, then status.
Each step compares with what is there and writes only what differs. Concurrency: one task per pool at a time.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from superinfer_core.api.v1alpha1 import labels
from superinfer_core.api.v1alpha1.chipletpool import CHIPLETPOOL_KIND, Allocation
from superinfer_core.api.v1alpha1.conditions import read_conditions
from superinfer_core.placement import Assignment, Ended, EndReason
from superinfer_core.pods.beside import disruption_budget, executors_service
from superinfer_core.pools.refused import Refused, refused_again
from superinfer_kube.errors import KubeError
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
from superinfer_operator.pools.refusals import Refusals
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
_BAD_ENDS: Final = frozenset(
    {
        EndReason.DEVICE_UNHEALTHY,
        EndReason.DEVICE_MISMATCH,
        EndReason.NODE_LOST,
        EndReason.NODE_GONE,
        EndReason.FAILED,
    }
)
"""Ends that nobody asked for."""


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


@dataclass(frozen=True, slots=True)
class _Inputs:
    """What a pool's round depends on."""

    setup: PoolSetup
    pods: tuple[ExecutorPod, ...]
    outcome: PoolOutcome
    made: tuple[MadeObject | None, MadeObject | None]
    refused: Refused | None

    def is_same(self, other: "_Inputs") -> bool:
        """Setups and pods are replaced when they change; the rest is small enough to compare."""
        return (
            self.setup is other.setup
            and len(self.pods) == len(other.pods)
            and all(one is two for one, two in zip(self.pods, other.pods, strict=True))
            and self.outcome == other.outcome
            and (self.made, self.refused) == (other.made, other.refused)
        )


class PoolTender:
    """Does what pools need."""

    def __init__(
        self,
        cluster: Cluster,
        writer: Writer,
        recorder: Recorder,
        settings: OperatorSettings,
        refusals: Refusals,
    ) -> None:
        self._cluster = cluster
        self._writer = writer
        self._recorder = recorder
        self._settings = settings
        self._refusals = refusals
        self._claims = ClaimKeeper(writer, refusals)
        self._refused: dict[str, Refused] = {}
        self._rested: dict[str, _Inputs] = {}
        # What was written and its watch has yet to tell: the record it was written over, and what.
        self._claimed: dict[str, tuple[PoolRecord, dict[int, int]]] = {}
        self._told: dict[str, tuple[PoolRecord, dict[str, Any]]] = {}

    async def tend(self, work: PoolWork, pods: Sequence[ExecutorPod], now: Now) -> None:
        """Bring one pool closer to what it should be."""
        work = self._without_refused(work, now)
        inputs = self._inputs(work, pods)
        if self._may_rest(work, inputs):
            return
        record, wrote = work.setup.record, bool(work.drain or work.delete)
        if record.deleting or work.setup.demand is None:
            self._refusals.forget(record)
        if record.deleting:
            self._refused.pop(record.key, None)
            if await self._let_go(record, pods, now):
                return
        elif not await self._claim(work, pods):
            return
        if not record.deleting and record.pool is not None and work.setup.demand is not None:
            service, budget = executors_service(record.pool), disruption_budget(record.pool)
            wrote |= await self._keep(SERVICES, self._cluster.services, service, record, now)
            wrote |= await self._keep(POD_DISRUPTION_BUDGETS, self._cluster.budgets, budget, record, now)
            wrote |= await self._create(work, pods, now)
            if work.setup.demand.allocation is Allocation.DRA:
                await self._claims.keep(record, self._cluster.executors_of(record.key), now)
        await self._end(work, pods)
        wrote |= await self._tell(work, now)
        if not wrote:
            self._rested[record.key] = inputs

    def forget_missing(self, known: Container[str]) -> None:
        """Keep nothing of pools that are gone."""
        for kept in (self._refused, self._rested, self._claimed, self._told):
            for key in [key for key in kept if key not in known]:
                del kept[key]

    @property
    def next_at(self) -> float | None:
        """When the next refused pod is tried again."""
        return min((refused.until for refused in self._refused.values()), default=None)

    def _inputs(self, work: PoolWork, pods: Sequence[ExecutorPod]) -> "_Inputs":
        record = work.setup.record
        beside = Key(record.namespace, labels.executors_service_name(record.name))
        made = (self._cluster.services.objects.get(beside), self._cluster.budgets.objects.get(beside))
        return _Inputs(work.setup, tuple(pods), work.outcome, made, self._refusals.of(record.key))

    def _without_refused(self, work: PoolWork, now: Now) -> PoolWork:
        """The work without pods that the server would only refuse again."""
        key = work.setup.key
        refused = self._refused.get(key)
        if refused is None:
            return work
        if not work.create:
            del self._refused[key]
            return work
        if refused.holds(work.setup.revision, now.seconds):
            return replace(work, create=())
        return work

    def _may_rest(self, work: PoolWork, inputs: "_Inputs") -> bool:
        """Nothing is to be done, and everything is as it was when nothing had to be written."""
        busy = work.create or work.drain or work.delete or work.setup.record.deleting
        idle = not busy and work.setup.key not in self._refused
        dra = work.setup.demand is not None and work.setup.demand.allocation is Allocation.DRA
        before = self._rested.get(work.setup.key)
        return idle and not dra and before is not None and before.is_same(inputs)

    async def _claim(self, work: PoolWork, pods: Sequence[ExecutorPod]) -> bool:
        """Whether the pool carries our finalizer and the incarnations that are about to be used."""
        record = work.setup.record
        if record.pool is None:
            return True
        taken = with_new(self._highest(record, pods), work.create)
        if labels.DRAIN_FINALIZER in record.finalizers and taken == record.incarnations:
            return True
        if await self._writer.apply(CHIPLET_POOLS, claim_on_pool(record, taken)) is None:
            return False
        self._claimed[record.key] = (record, taken)
        return True

    def _highest(self, record: PoolRecord, pods: Sequence[ExecutorPod]) -> dict[int, int]:
        """The highest incarnations, those written just now included."""
        highest = highest_incarnations(record, pods)
        over, claimed = self._claimed.get(record.key, (None, {}))
        if over is record:
            for slot, incarnation in claimed.items():
                highest[slot] = max(incarnation, highest.get(slot, 0))
        return highest

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
        now: Now,
    ) -> bool:
        """Whether it had to be written."""
        metadata = document["metadata"]
        made = known.objects.get(Key(metadata["namespace"], metadata["name"]))
        if made is not None and made.digest == intent_digest(document) and made.owner == record.uid:
            self._refusals.settle(record, resource.plural)
            return False
        if self._refusals.holds(record, resource.plural, now.seconds):
            return True

        def refused(error: KubeError) -> None:
            self._refusals.note(record, resource.plural, error, now.seconds)

        if await self._writer.apply(resource, document, refused) is not None:
            self._refusals.settle(record, resource.plural)
        return True

    async def _create(self, work: PoolWork, pods: Sequence[ExecutorPod], now: Now) -> bool:
        """Whether anything was tried."""
        key, revision = work.setup.key, work.setup.revision
        refused = self._refused.get(key)
        if not work.create:
            return False
        # Those about to be used were claimed before; what counts here is what stood before that.
        highest = _before(self._highest(work.setup.record, pods), work.create)
        told = []
        for assignment in work.create:
            incarnation = highest.get(assignment.slot, 0) + 1
            highest[assignment.slot] = incarnation
            document = pod_of(work.setup, assignment, incarnation, self._settings.pods)
            made = await self._writer.create_pod(document)
            if isinstance(made, KubeError):
                self._refused[key] = refused_again(
                    refused, revision=revision, reason=made.reason, message=made.message, now=now.seconds
                )
                # The others are made from the same: they would be refused, too.
                break
            self._refused.pop(key, None)
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
        return True

    async def _end(self, work: PoolWork, pods: Sequence[ExecutorPod]) -> None:
        by_key = {pod.key: pod for pod in pods}
        told: dict[EndReason, list[str]] = {}
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
            told.setdefault(ended.reason, []).append(f"{pod.name} ({ended.message})")
        for reason, names in told.items():
            about = _about(work.setup.record)
            note = f"ending {_listed(names)}"
            kind = EventType.WARNING if reason in _BAD_ENDS else EventType.NORMAL
            happening = Happening(about, kind, reason.value, "EndExecutor", note)
            await self._recorder.record(happening, self._recorder.now())

    async def _tell(self, work: PoolWork, now: Now) -> bool:
        """Whether its status had to be written."""
        record, outcome = work.setup.record, work.outcome
        if (refused := self._refused.get(record.key) or self._refusals.of(record.key)) is not None:
            outcome = replace(outcome, refused=(refused.reason, refused.message))
        pods = self._cluster.executors_of(record.key)
        over, told = self._told.get(record.key, (None, {}))
        stored = told if over is record else record.status
        status = pool_status(work.setup, pods, outcome, before=stored, now=now.text)
        if same_status(stored, status):
            return False
        written = await self._writer.apply_status(
            CHIPLET_POOLS, record.namespace, record.name, record.uid, status
        )
        if written is None:
            return True
        self._told[record.key] = (record, status)
        before, after = read_conditions(stored), read_conditions(status)
        for happening in condition_events(_about(record), before, after):
            await self._recorder.record(happening, now)
        return True


def _before(highest: dict[int, int], created: Sequence[Assignment]) -> dict[int, int]:
    """The incarnations as they were before these were claimed."""
    before = dict(highest)
    for assignment in created:
        before[assignment.slot] -= 1
    return before


def _listed(names: Sequence[str]) -> str:
    """The first few; one event tells of a whole round."""
    rest = len(names) - _TOLD
    return ", ".join(names[:_TOLD]) + (f" and {rest} more" if rest > 0 else "")


def _about(record: PoolRecord) -> About:
    return About(CHIPLETPOOL_KIND, record.namespace, record.name, record.uid)
