"""A plan of what was read, and the status it would give every pool. Pure, by the operator's own functions."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from superinfer.planning.documents import World
from superinfer_core.contract.pool_promises import NO_PROMISES, promises_by_pool
from superinfer_core.contract.resolution import Resolution, resolve_contracts
from superinfer_core.placement import Plan, PlannerMemory, PlannerSettings, Snapshot
from superinfer_core.placement.idle_hardware import HardwareView
from superinfer_core.placement.index import PlacementIndex
from superinfer_core.placement.pool_shapes import PoolShapes
from superinfer_core.pods.settings import PodSettings
from superinfer_operator.contracts.pool_facts import pool_facts
from superinfer_operator.placing.parts import PlanPart, by_pool_of
from superinfer_operator.placing.promised import promised
from superinfer_operator.placing.setup import PoolSetup, set_up
from superinfer_operator.placing.snapshot import make_snapshot
from superinfer_operator.pools.foretold import foretold_status
from superinfer_operator.reconciling.clock import Now
from superinfer_operator.watching.pods import ExecutorPod
from superinfer_operator.watching.pools import pool_record

_SETTINGS: Final = PodSettings(engine_image="engine", stub_image="stub")


@dataclass(frozen=True, slots=True)
class Outlook:
    """What would come of a world.

    Attributes:
        setups: its pools, those that are not accepted too, by key.
        contracts: what they come to.
        snapshot, index, plan: what was planned from, with, and how it came out.
        statuses: what the operator would write into each pool, by key.
    """

    setups: Mapping[str, PoolSetup]
    contracts: Resolution
    snapshot: Snapshot
    index: PlacementIndex
    plan: Plan
    statuses: Mapping[str, dict[str, Any]]


def look_ahead(world: World, replicas: Mapping[str, int], now: float) -> Outlook:
    """Plan a world.

    Args:
        world: what was read.
        replicas: what if: other numbers of replicas, by pool.
        now: seconds since 1970.
    """
    bare = [_ready_made(document, world, replicas) for document in world.pools]
    executors = _up_to_date(world.executors, bare)
    pods = _by_pool(executors)
    # Without pools among the files nobody knows them: contracts are then taken at their word.
    facts = [pool_facts(setup, pods.get(setup.key, ()), world.nodes) for setup in bare]
    known = [one for one in facts if one is not None] if bare else None
    contracts = resolve_contracts(world.contracts, known)
    setups = _promised(world, bare, contracts)
    snapshot = _snapshot(world, setups, executors)
    index = PlacementIndex(snapshot)
    plan = index.plan(now)
    parts = by_pool_of(plan)
    text = Now(datetime.fromtimestamp(now, UTC)).text
    statuses = {
        key: foretold_status(setup, pods.get(key, ()), parts.get(key, PlanPart()), _SETTINGS, now=text)
        for key, setup in setups.items()
    }
    return Outlook(setups, contracts, snapshot, index, plan, statuses)


def _ready_made(document: dict[str, Any], world: World, replicas: Mapping[str, int]) -> PoolSetup:
    metadata, spec = document["metadata"], dict(document.get("spec") or {})
    spec.pop("policyRef", None)
    if _profile_map(document) not in world.texts:
        spec.pop("profileRef", None)
    key = f"{metadata['namespace']}/{metadata['name']}"
    if key in replicas:
        spec["replicas"] = replicas[key]
    return set_up(pool_record({**document, "spec": spec}), world.texts, _SETTINGS)


def _profile_map(document: dict[str, Any]) -> tuple[str, str]:
    reference = (document.get("spec") or {}).get("profileRef")
    name = reference.get("name") if isinstance(reference, dict) else None
    return document["metadata"]["namespace"], str(name or "")


def _up_to_date(executors: list[ExecutorPod], setups: list[PoolSetup]) -> list[ExecutorPod]:
    revisions = {setup.key: setup.revision for setup in setups}
    made = [replace(pod, revision=revisions.get(pod.pool, pod.revision)) for pod in executors]
    return sorted(made, key=lambda pod: pod.key)


def _promised(world: World, bare: list[PoolSetup], contracts: Resolution) -> dict[str, PoolSetup]:
    promises = promises_by_pool(contracts.effective.values())
    demands = [setup.demand for setup in bare if setup.demand is not None]
    hardware = HardwareView().of(world.nodes.values(), world.topologies, demands)
    made = {
        setup.key: promised(setup, promises.get(setup.key, NO_PROMISES), hardware)
        for setup in sorted(bare, key=lambda setup: setup.key)
    }
    for document in world.pools:
        namespace, name = _profile_map(document)
        setup = made[f"{namespace}/{document['metadata']['name']}"]
        if name and setup.demand is not None and (namespace, name) not in world.texts:
            told = f"ConfigMap {name} of spec.profileRef is not among the files: no speed is known"
            made[setup.key] = replace(setup, shapes=PoolShapes(message=told))
    return made


def _by_pool(executors: list[ExecutorPod]) -> dict[str, list[ExecutorPod]]:
    grouped: dict[str, list[ExecutorPod]] = {}
    for pod in executors:
        grouped.setdefault(pod.pool, []).append(pod)
    return grouped


def _snapshot(world: World, setups: Mapping[str, PoolSetup], executors: list[ExecutorPod]) -> Snapshot:
    return make_snapshot(
        setups=setups.values(),
        nodes=[node for _, node in sorted(world.nodes.items())],
        topologies=world.topologies,
        executors=executors,
        held=world.held,
        given={pod: ids for one in world.hardware.values() for pod, ids in one.given.items()},
        memory=PlannerMemory(),
        settings=PlannerSettings(),
    )
