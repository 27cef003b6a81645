"""Keeps the status of every contract what it should be; writes only what differs. One task.

A status the server stores differently from how it was written (a default, an order) would be written for
ever; what came back from the last write is therefore remembered and taken for equal.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from superinfer_core.api.v1alpha1.conditions import read_conditions
from superinfer_core.api.v1alpha1.slocontract import SLOCONTRACT_KIND
from superinfer_core.contract.pool_promises import PoolPromises
from superinfer_core.contract.resolution import ResolvedContract
from superinfer_kube.informer import Key
from superinfer_kube.resources import SLO_CONTRACTS
from superinfer_operator.contracts.attainment import by_contract
from superinfer_operator.contracts.pool_facts import pool_facts
from superinfer_operator.contracts.resolving import Resolver
from superinfer_operator.contracts.status import contract_status
from superinfer_operator.placing.setup import PoolSetup
from superinfer_operator.reconciling.clock import Now
from superinfer_operator.reconciling.events import About, condition_events
from superinfer_operator.reconciling.recording import Recorder
from superinfer_operator.reconciling.writing import Writer
from superinfer_operator.watching.cluster import Cluster
from superinfer_operator.watching.contracts import ContractRecord, status_digest
from superinfer_operator.watching.pods import ExecutorPod

_PER_TURN: Final = 50
_NO_COUNTS: Final[tuple[Mapping[str, Any], ...]] = ()


class ContractTender:
    """Resolves contracts and writes their status."""

    def __init__(self, cluster: Cluster, writer: Writer, recorder: Recorder) -> None:
        self._cluster = cluster
        self._writer = writer
        self._recorder = recorder
        self._resolver = Resolver()
        self._records: Mapping[str, ContractRecord] = {}
        self._resolved: Mapping[str, ResolvedContract] = {}
        self._settled: dict[str, tuple[str, str]] = {}
        self._told: dict[str, tuple[ContractRecord, ResolvedContract, Any]] = {}

    async def resolve(
        self, setups: Iterable[PoolSetup], pods: Mapping[str, Sequence[ExecutorPod]]
    ) -> Mapping[str, PoolPromises]:
        """Find out what every contract comes to, for `tend`; what they promise, by pool."""
        nodes = {node.name: node for node in self._cluster.nodes.objects.values()}
        found = (pool_facts(setup, pods.get(setup.key, ()), nodes) for setup in setups)
        pools = [facts for facts in found if facts is not None]
        listed = sorted(self._cluster.contracts.objects.items())
        self._records = {record.key: record for _, record in listed}
        stored = [record.stored for record in self._records.values()]
        self._resolved = dict(await asyncio.to_thread(self._resolver.resolve, stored, pools))
        return self._resolver.promises

    async def tend(self, now: Now) -> None:
        """Bring the status of every contract up to date with what was resolved last."""
        records, resolved = self._records, self._resolved
        counts = by_contract(self._cluster.attainment.objects.values())
        self._forget_missing(records)
        writes = []
        for number, (key, contract) in enumerate(resolved.items()):
            if number % _PER_TURN == 0:
                await asyncio.sleep(0)
            record = records.get(key)
            if record is not None:
                told = counts.get(contract.service_key, _NO_COUNTS)
                writes += self._due(record, contract, told, now)
        async with asyncio.TaskGroup() as group:
            for record, status in writes:
                group.create_task(self._write(record, status, now))

    def _due(
        self,
        record: ContractRecord,
        contract: ResolvedContract,
        counts: Sequence[Mapping[str, Any]],
        now: Now,
    ) -> list[tuple[ContractRecord, dict[str, Any]]]:
        before = self._told.get(record.key)
        same_inputs = before is not None and before[0] is record and before[1] is contract
        if same_inputs and before is not None and before[2] == counts:
            return []
        self._told[record.key] = (record, contract, counts)
        status = contract_status(record, contract, counts, now=now.text)
        wanted = status_digest(status)
        if wanted == record.digest or self._settled.get(record.key) == (wanted, record.digest):
            return []
        return [(record, status)]

    async def _write(self, record: ContractRecord, status: dict[str, Any], now: Now) -> None:
        stored, key = record.stored, Key(record.stored.namespace, record.stored.name)
        written = await self._writer.apply_status(SLO_CONTRACTS, key.namespace, key.name, stored.uid, status)
        if written is None:
            self._told.pop(record.key, None)
            return
        self._settled[record.key] = (status_digest(status), status_digest(written.get("status") or {}))
        about = About(SLOCONTRACT_KIND, key.namespace, key.name, stored.uid)
        for happening in condition_events(about, record.conditions, read_conditions(status)):
            await self._recorder.record(happening, now)

    def _forget_missing(self, records: Mapping[str, ContractRecord]) -> None:
        for known in (self._settled, self._told):
            for key in [key for key in known if key not in records]:
                del known[key]
