"""One whole round: gather what is known, decide in core, write what differs.

Level-triggered: a round looks at everything and never at what the change was. It may be cut off anywhere and
begun again. A round runs alone (the loop sees to that), and its decisions are pure functions, called in a
thread where they may take long, so that watches and probes go on.
"""

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from superinfer_core.api.v1alpha1.chipletpool import CHIPLETPOOL_KIND
from superinfer_core.api.v1alpha1.pool_status import PoolReason
from superinfer_core.placement import Plan, PlannerMemory, Snapshot, Topology
from superinfer_core.placement.rounds import RoundPlanner
from superinfer_core.pods.settings import PodSettings
from superinfer_core.pools.backoff import Backoff, observe
from superinfer_core.pools.standing import PoolRefusal
from superinfer_kube.errors import KubeError
from superinfer_kube.informer import Key
from superinfer_operator.certificates.keeping import CertificateKeeper
from superinfer_operator.contracts.tending import ContractTender
from superinfer_operator.keys.tending import KeysTender
from superinfer_operator.mig_layout.tending import GPU_DOMAIN, MigLayoutTender
from superinfer_operator.placing.parts import PlanPart, by_pool_of
from superinfer_operator.placing.promised import PromisedSetups
from superinfer_operator.placing.repacking import Repacker, told
from superinfer_operator.placing.setup import PoolSetup, Texts, set_up
from superinfer_operator.placing.snapshot import Gathered, make_snapshot
from superinfer_operator.pools.references import ReferenceKeeper
from superinfer_operator.pools.refusals import Refusals
from superinfer_operator.pools.status import outcome_of
from superinfer_operator.pools.tending import PoolTender, PoolWork
from superinfer_operator.reconciling.clock import Clock, Now
from superinfer_operator.reconciling.events import About, EventType, Happening
from superinfer_operator.reconciling.recording import Recorder
from superinfer_operator.reconciling.writing import Api, Writer
from superinfer_operator.settings import OperatorSettings
from superinfer_operator.watching.cluster import Cluster
from superinfer_operator.watching.objects import TextRecord
from superinfer_operator.watching.pods import ExecutorPod
from superinfer_operator.watching.pools import PoolRecord

_log = logging.getLogger("superinfer.operator")


Pods = Mapping[str, Sequence[ExecutorPod]]


class NotWritten(Exception):
    """Some writes failed; the round has to be done again."""


class Reconciler:
    """Does rounds."""

    def __init__(self, cluster: Cluster, api: Api, settings: OperatorSettings, clock: Clock) -> None:
        self._cluster = cluster
        self._settings = settings
        self._clock = clock
        self._writer = Writer(api, at_once=settings.writes_at_once)
        recorder = Recorder(api, instance=settings.instance, clock=clock)
        self._refusals = Refusals()
        self._pools = PoolTender(cluster, self._writer, recorder, settings, self._refusals)
        # Thousands of contracts must not stand in line before the next pool's pods.
        self._statuses = Writer(api, at_once=max(1, settings.writes_at_once // 2))
        self._contracts = ContractTender(cluster, self._statuses, recorder)
        self._promised = PromisedSetups()
        self._bare: Mapping[str, PoolSetup] = {}
        self._keys = KeysTender(cluster, self._writer, recorder)
        self._certificates = CertificateKeeper(cluster, self._writer, settings, self._refusals)
        self._references = ReferenceKeeper(self._writer)
        self._mig = MigLayoutTender(self._writer, recorder) if settings.follow_mig_advice else None
        self._repacker = Repacker() if settings.repack else None
        self._recorder = recorder
        self._texts: Mapping[tuple[str, str], TextRecord] = {}
        self._memory = PlannerMemory()
        self._planner = RoundPlanner()
        self._gathered = Gathered()
        self._backoff = Backoff()
        self.last_plan = Plan()
        """The plan of the last round, for metrics."""
        self.setups: Mapping[str, PoolSetup] = {}
        """The pools of the last round, for metrics."""

    @property
    def writes(self) -> int:
        """Writes so far."""
        return self._writer.writes + self._statuses.writes

    @property
    def keys_left_out(self) -> int:
        """API keys that have no room in the Secret of their digests, for metrics."""
        return sum(self._keys.left_out.values())

    async def round(self) -> float | None:
        """Do everything there is to do; after how many seconds time alone makes it due again.

        Raises:
            NotWritten: some of it could not be written.
        """
        now = self._clock()
        executors = self._cluster.executors(now.seconds)
        by_pool = _by_pool(executors)
        self._bare = self._set_up()
        setups = await self._promise(by_pool)
        self._backoff = observe(self._backoff, [pod.sighting for pod in executors], now.seconds)
        snapshot = self._snapshot(setups, executors)
        decided = await self._plan(snapshot, now)
        self._memory, self.last_plan, self.setups = decided.memory, decided, setups
        parts = by_pool_of(decided)
        works = [self._work(setup, parts.get(setup.key, PlanPart()), now) for setup in setups.values()]
        self._pools.forget_missing(setups)
        self._refusals.forget_missing(setups)
        await self._certificates.keep(setups.values(), now)
        async with asyncio.TaskGroup() as group:
            for work in works:
                pods = by_pool.get(work.setup.key, [])
                tending = self._pools.tend(work, pods, now)
                group.create_task(self._alone(f"pool {work.setup.key}", tending))
            group.create_task(self._alone("orphans", self._end_orphans(parts, by_pool)))
            group.create_task(self._alone("API keys", self._keys.tend(now)))
            references = self._references.keep(setups.values(), now)
            group.create_task(self._alone("references", references))
            group.create_task(self._alone("contracts", self._contracts.tend(now)))
            if self._mig is not None:
                advice = self._follow_advice(self._mig, snapshot, decided, executors, now)
                group.create_task(self._alone("MIG layouts", advice))
        if failures := [*self._writer.taken_failures(), *self._statuses.taken_failures()]:
            msg = f"{len(failures)} writes failed, the first: {failures[0]}"
            raise NotWritten(msg)
        return self._wake_s(decided, now)

    async def _alone(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        """Do a part of the round; a mistake of ours in it must not stop the others."""
        try:
            await work
        except Exception as error:  # noqa: BLE001 - told, counted as a failure, and tried again
            _log.exception("%s: not done", what)
            self._writer.failures.append(KubeError(repr(error), what=what))

    def _set_up(self) -> dict[str, PoolSetup]:
        """Every pool made ready; one that is as it was, with texts as they were, is not looked at again."""
        texts = {(key.namespace, key.name): text for key, text in self._cluster.texts.objects.items()}
        same_texts = texts == self._texts
        self._texts = texts
        setups = {}
        for record in sorted(self._cluster.pools.objects.values(), key=lambda record: record.key):
            known = self._bare.get(record.key)
            if known is None or not same_texts or known.record is not record:
                known = _ready_made(record, texts, self._settings.pods)
            setups[record.key] = known
        return setups

    async def _promise(self, by_pool: Pods) -> dict[str, PoolSetup]:
        """Every pool with what its contracts make of it; as it is by itself where that goes wrong."""
        topologies = {key.name: one.topology for key, one in self._cluster.hardware.objects.items()}
        known = {name: topology for name, topology in topologies.items() if topology is not None}
        nodes = list(self._cluster.nodes.objects.values())
        try:
            promises = await self._contracts.resolve(self._bare.values(), by_pool)
            return await asyncio.to_thread(self._promised.of, self._bare.values(), promises, nodes, known)
        except Exception as error:  # noqa: BLE001 - told, counted as a failure, and tried again
            _log.exception("what contracts promise of pools: not found out")
            self._writer.failures.append(KubeError(repr(error), what="promises of pools"))
            return dict(self._bare)

    def _snapshot(self, setups: Mapping[str, PoolSetup], executors: Sequence[ExecutorPod]) -> Snapshot:
        topologies: dict[str, Topology] = {}
        given: dict[str, tuple[str, ...]] = {}
        for key, hardware in self._cluster.hardware.objects.items():
            given |= hardware.given
            if hardware.topology is not None:
                topologies[key.name] = hardware.topology
        return make_snapshot(
            setups=setups.values(),
            nodes=[node for _, node in sorted(self._cluster.nodes.objects.items())],
            topologies=topologies,
            executors=executors,
            held=self._cluster.held_by_others(),
            given=given,
            memory=self._memory,
            settings=self._settings.planner,
            gathered=self._gathered,
        )

    async def _plan(self, snapshot: Snapshot, now: Now) -> Plan:
        decided = await asyncio.to_thread(self._planner.plan, snapshot, now.seconds)
        if self._repacker is None:
            return decided
        return await self._repacked(self._repacker, snapshot, decided, now)

    async def _repacked(self, repacker: Repacker, snapshot: Snapshot, decided: Plan, now: Now) -> Plan:
        """The plan with moves that make room, where there are any worth it."""
        found = await repacker.moves(snapshot, decided, now.seconds)
        if found is None:
            return decided
        for key in sorted({move.pool for move in found.moves}):
            namespace, _, name = key.partition("/")
            uid = self._cluster.pools.objects[Key(namespace, name)].uid
            about = About(CHIPLETPOOL_KIND, namespace, name, uid)
            happening = Happening(about, EventType.NORMAL, "Repacking", "MoveExecutor", told(found, key))
            await self._recorder.record(happening, now)
        return replace(decided, create=found.moves)

    def _work(self, setup: PoolSetup, part: PlanPart, now: Now) -> PoolWork:
        create, waits = [], []
        for assignment in part.create:
            slot = (assignment.pool, assignment.slot)
            if self._backoff.wait_s(slot, now.seconds) > 0:
                waits.append(self._backoff.records[slot].until)
            else:
                create.append(assignment)
        until = Now(datetime.fromtimestamp(min(waits), UTC)).text if waits else ""
        return PoolWork(
            setup=setup,
            create=tuple(create),
            drain=tuple(part.drain),
            delete=tuple(part.delete),
            outcome=outcome_of(part, (len(waits), until)),
        )

    async def _end_orphans(self, parts: Mapping[str, PlanPart], by_pool: Pods) -> None:
        """Executors whose pool is gone; the garbage collector does the same, where there is one."""
        for key, part in parts.items():
            if key in self.setups:
                continue
            going = {ended.name for ended in (*part.drain, *part.delete)}
            for pod in by_pool.get(key, ()):
                if pod.key in going and not pod.terminating:
                    await self._writer.delete_pod(pod.namespace, pod.name, pod.uid)

    async def _follow_advice(
        self,
        mig: MigLayoutTender,
        snapshot: Snapshot,
        decided: Plan,
        executors: Sequence[ExecutorPod],
        now: Now,
    ) -> None:
        """Layouts of idle nodes, where the administrator allows it."""
        held = self._cluster.held_by_others().items()
        in_use = {pod.node for pod in executors} | {item.node for item in decided.create}
        in_use |= {node for (node, resource), count in held if count and resource.startswith(GPU_DOMAIN)}
        uids = {key: setup.record.uid for key, setup in self.setups.items()}
        nodes = {node.name: node for node in snapshot.nodes}
        await mig.tend(decided.advice, nodes, in_use, uids, now)

    def _wake_s(self, decided: Plan, now: Now) -> float | None:
        due = (
            decided.wake_at,
            self._backoff.next_at(now.seconds),
            self._references.next_at,
            self._certificates.next_at,
            self._pools.next_at,
            self._refusals.next_at(now.seconds),
            None if self._mig is None else self._mig.next_at,
            None if self._repacker is None else self._repacker.next_at,
        )
        times = [at for at in due if at is not None]
        return max(0.0, min(times) - now.seconds) if times else None


def _ready_made(record: PoolRecord, texts: Texts, settings: PodSettings) -> PoolSetup:
    """What a pool comes to; one that trips us up is refused, and the others are not."""
    try:
        return set_up(record, texts, settings)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is about this pool alone
        _log.exception("pool %s cannot be handled", record.key)
        words = f"the operator cannot handle this spec ({error!r}); please report it"
        return PoolSetup(record, refusal=PoolRefusal(PoolReason.INVALID_SPEC, words[:1024]))


def _by_pool(executors: Sequence[ExecutorPod]) -> dict[str, list[ExecutorPod]]:
    grouped: dict[str, list[ExecutorPod]] = {}
    for pod in executors:
        grouped.setdefault(pod.pool, []).append(pod)
    return grouped
