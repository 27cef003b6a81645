"""Pools land on the devices the plan chose, read back from the kubelets, and leave exactly those that fail.

Three workers of different MOCK hardware; node agents tell the operator about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from e2e.cluster.nodes import worker_names
from e2e.conftest import SHOP, until_ready
from e2e.harness import hardware, release, samples
from e2e.harness.hardware import BRIDGED, MIXED, PAIRS, SWITCHED
from e2e.harness.objects import (
    Object,
    apply,
    condition,
    delete,
    events,
    find,
    get,
    kubectl,
    listed,
    pods_of,
    until,
)

SWITCHED_NODE, BRIDGED_NODE, MIXED_NODE = worker_names()
PROMISE = {
    "poolRef": {"name": "measured"},
    "objectives": [
        {"metric": "TTFT", "percentile": 99, "targetMs": 2000},
        {"metric": "ITL", "percentile": 99, "targetMs": 100},
    ],
    "quota": {"concurrency": 8},
}


@pytest.fixture(scope="module")
def nodes(installed: None) -> Iterator[None]:
    """Different hardware, for this module alone; the pool other cases share is away meanwhile."""
    shared = find("chippool", "stubs", SHOP)
    if shared is not None:
        _scale("stubs", 0)
        until(lambda: _pods("stubs"), lambda seen: not seen, within_s=120, what="the shared pool is away")
    with hardware.different_nodes():
        yield
    if shared is not None:
        _scale("stubs", 3)
        until_ready("stubs", SHOP, executors=3)


@pytest.fixture
def made(nodes: None) -> Iterator[Callable[[Object], list[Object]]]:
    """Makes a pool, waits until it serves, gives its pods; the pool is gone after the case."""
    names: list[str] = []

    def make(document: Object) -> list[Object]:
        name = document["metadata"]["name"]
        names.append(name)
        apply(document)
        until_ready(name, SHOP, executors=document["spec"]["replicas"])
        return _pods(name)

    yield make
    for name in names:
        delete("chippool", name, SHOP, wait_s=120)
        until(lambda name=name: _pods(name), lambda seen: not seen, within_s=120, what=f"{name} is gone")


def _scale(pool: str, replicas: int) -> None:
    kubectl("scale", "chippool", pool, "--namespace", SHOP, f"--replicas={replicas}")


def _pods(pool: str) -> list[Object]:
    return pods_of(pool, SHOP)


def _uids(pods: list[Object]) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}


def _holdings(node: str, pods: list[Object]) -> dict[str, list[str]]:
    """Devices by pod once the node agent has seen all of the pods."""
    names = {pod["metadata"]["name"] for pod in pods}
    held = until(
        lambda: hardware.held(node),
        lambda seen: names <= set(seen),
        within_s=60,
        what=f"the kubelet of {node} says what {sorted(names)} hold",
    )
    return {name: sorted(held[name][1]) for name in names}


def _told(pool: str) -> dict[str, list[str]]:
    """Devices by executor as the pool's status says."""
    chiplets = get("chippool", pool, SHOP)["status"].get("chiplets") or ()
    return {item["executor"]: sorted(item.get("deviceIDs") or ()) for item in chiplets}


def _as_told(pool: str, holdings: dict[str, list[str]]) -> None:
    until(
        lambda: _told(pool),
        lambda seen: seen == holdings,
        within_s=60,
        what=f"the status of {pool} names the devices its executors hold: {holdings}",
    )


def test_what_is_described_is_published(nodes: None) -> None:
    """`kubectl get nodetopo`: products, instances, links and free placements of three different nodes."""
    seen = {node: hardware.topology(node) for node in worker_names()}
    assert [status["product"] for status in seen.values()] == [SWITCHED, BRIDGED, MIXED]
    assert {status["source"] for status in seen.values()} == {"Mock"}
    index = {gpu["uuid"]: gpu["index"] for gpu in seen[BRIDGED_NODE]["gpus"]}
    links = seen[BRIDGED_NODE]["links"]
    linked = {
        tuple(sorted((index[link["a"]], index[link["b"]]))) for link in links if link["type"] == "NVLink"
    }
    assert linked == set(PAIRS)
    assert {link["type"] for link in seen[SWITCHED_NODE]["links"]} == {"NVSwitch"}


def test_two_linked_gpus_are_a_bridged_pair(made: Callable[[Object], list[Object]]) -> None:
    """A pool that requires NVLink gets bridged pairs, which are not neighbours, from the device plugin."""
    pods = made(hardware.pool("pairs", SHOP, BRIDGED, 2, chiplet=hardware.two_linked_gpus()))
    holdings = _holdings(BRIDGED_NODE, pods)
    index = {gpu["uuid"]: gpu["index"] for gpu in hardware.topology(BRIDGED_NODE)["gpus"]}
    got = {tuple(sorted(index[uuid] for uuid in devices)) for devices in holdings.values()}
    assert len(got) == 2
    assert got <= set(PAIRS)
    _as_told("pairs", holdings)


def test_an_error_in_an_instance_moves_its_executor_alone(made: Callable[[Object], list[Object]]) -> None:
    """Xid 94 on one MIG instance: its executor goes to another instance, its neighbours stay; it recovers."""
    chiplet = {"shape": "MIG", "profile": "1g.10gb"}
    before = made(hardware.pool("slices", SHOP, MIXED, 3, chiplet=chiplet))
    holdings = _holdings(MIXED_NODE, before)
    _as_told("slices", holdings)
    victim, (device,) = sorted(holdings.items())[0]
    gpu = next(
        gpu["index"]
        for gpu in hardware.topology(MIXED_NODE)["gpus"]
        if device in {instance["uuid"] for instance in gpu.get("instances") or ()}
    )
    where = ("--gpu", str(gpu), "--instance", device)
    hardware.mock(MIXED_NODE, "fail", *where, "--xid", "94")
    try:
        after = until(
            lambda: _pods("slices"),
            lambda seen: len(seen) == 3 and victim not in _uids(seen),
            within_s=120,
            what=f"{victim} is replaced",
        )
        until_ready("slices", SHOP, executors=3)
        others = {name: uid for name, uid in _uids(before).items() if name != victim}
        assert others.items() <= _uids(after).items(), "executors on healthy instances stay"
        moved = _holdings(MIXED_NODE, after)
        assert device not in {uuid for devices in moved.values() for uuid in devices}
    finally:
        hardware.mock(MIXED_NODE, "recover", *where)
    until(
        lambda: hardware.device_health(MIXED_NODE, device),
        lambda seen: seen == "Healthy",
        within_s=90,
        what="the instance is healthy again",
    )
    assert _uids(_pods("slices")) == _uids(after), "nothing moves because an instance came back"


def test_a_gpu_that_needs_a_reset_loses_all_of_its_executors(made: Callable[[Object], list[Object]]) -> None:
    """Recovery action GPUReset: every executor of that GPU moves, none of another GPU; it recovers."""
    chiplet = {"shape": "MIG", "profile": "1g.10gb"}
    before = made(hardware.pool("many", SHOP, MIXED, 4, chiplet=chiplet))
    holdings = _holdings(MIXED_NODE, before)
    gpus = hardware.topology(MIXED_NODE)["gpus"]
    parent = {item["uuid"]: gpu["index"] for gpu in gpus for item in gpu.get("instances") or ()}
    by_gpu = {name: parent[devices[0]] for name, devices in holdings.items()}
    target = 1  # two 1g.10gb instances; the other GPU has seven
    victims = {name for name, gpu in by_gpu.items() if gpu == target}
    assert victims, f"the pool is spread over GPUs: {by_gpu}"
    hardware.mock(MIXED_NODE, "fail", "--gpu", str(target), "--recovery-action", "GPUReset")
    try:
        after = until(
            lambda: _pods("many"),
            lambda seen: len(seen) == 4 and victims.isdisjoint(_uids(seen)),
            within_s=180,
            what=f"{sorted(victims)} are replaced",
        )
        until_ready("many", SHOP, executors=4)
        stayed = {name: uid for name, uid in _uids(before).items() if name not in victims}
        assert stayed.items() <= _uids(after).items()
        moved = _holdings(MIXED_NODE, after)
        assert {parent[devices[0]] for devices in moved.values()} == {2}
    finally:
        hardware.mock(MIXED_NODE, "recover", "--gpu", str(target))
    until(
        lambda: hardware.topology(MIXED_NODE)["healthyGpuCount"],
        lambda seen: seen == 4,
        within_s=90,
        what="the GPU is healthy again",
    )


@pytest.mark.parametrize(
    ("name", "chiplet", "devices"),
    [
        ("claimed-slice", {"shape": "MIG", "profile": "3g.71gb"}, 1),
        ("claimed-pair", hardware.two_linked_gpus(), 2),
    ],
    ids=["MIG instance", "NVLink pair"],
)
def test_a_claim_gets_exactly_the_planned_devices(
    made: Callable[[Object], list[Object]], name: str, chiplet: dict[str, object], devices: int
) -> None:
    """Allocation DRA: the ResourceClaim names the devices, and the kubelet gives exactly those."""
    pods = made(hardware.pool(name, SHOP, SWITCHED, 1, chiplet=chiplet, allocation="DRA"))
    holdings = _holdings(SWITCHED_NODE, pods)
    assert [len(found) for found in holdings.values()] == [devices]
    _as_told(name, holdings)
    allocated = [
        claim["status"]["allocation"]["devices"]["results"]
        for claim in listed("resourceclaims", SHOP)
        if (claim.get("status") or {}).get("allocation")
    ]
    results = [result for found in allocated for result in found]
    assert {result["pool"] for result in results} == {SWITCHED_NODE}
    assert len(results) == devices


def _until_four_of_five_serve(pool: str) -> Object:
    return until(
        lambda: get("chippool", pool, SHOP).get("status") or {},
        lambda seen: seen.get("readyReplicas") == 4 and seen.get("unplaced"),
        within_s=180,
        what="four pairs serve and the fifth is refused",
    )


def test_what_fits_nowhere_says_why_node_by_node(nodes: None) -> None:
    """Five pairs where there are four: four serve, and the status says what each node lacks for the fifth."""
    apply(hardware.pool("crowd", SHOP, BRIDGED, 5, chiplet=hardware.two_linked_gpus()))
    try:
        status = _until_four_of_five_serve("crowd")
        refusals = {node["node"]: node["constraint"] for node in status["unplaced"][0]["nodes"]}
        assert refusals[BRIDGED_NODE] in {"DevicesInUse", "NoNVLinkGroup"}
        assert refusals[MIXED_NODE] == "SelectorMismatch"
    finally:
        delete("chippool", "crowd", SHOP, wait_s=120)


def _plan_and_statuses_agree(*pools: str) -> None:
    """Wait until `superinfer plan` changes nothing and foresees of every pool the very status it has."""

    def look() -> tuple[Object, dict[str, tuple[Object, Object]]]:
        made = hardware.plan()
        return made, {
            name: (
                hardware.timeless(made["pools"][f"{SHOP}/{name}"]),
                hardware.timeless(get("chippool", name, SHOP).get("status") or {}),
            )
            for name in pools
        }

    made, statuses = until(
        look,
        lambda seen: all(foreseen == told for foreseen, told in seen[1].values()),
        within_s=60,
        what=f"`superinfer plan` foresees the statuses of {pools}",
    )
    assert not any(made[verb] for verb in ("create", "drain", "delete", "flagged", "not_accepted"))
    for name, (_, told) in statuses.items():
        kept = {
            item["executor"].rpartition("/")[2]: sorted(item["devices"])
            for item in made["keep"]
            if item["pool"] == f"{SHOP}/{name}"
        }
        listed_devices = {item["executor"]: sorted(item["deviceIDs"]) for item in told.get("chiplets") or ()}
        assert kept == listed_devices


def test_superinfer_plan_says_what_the_statuses_say(made: Callable[[Object], list[Object]]) -> None:
    """Executors, devices, refusals, memory and Pareto set of shapes: the same in and outside the cluster."""
    apply(samples.profile("measured", SHOP), samples.contract("promised", SHOP, **PROMISE))
    memory = {"weightsMiB": 15_000, "kvBytesPerToken": 65_536}
    chiplet = {"shape": "MIG", "profile": "3g.40gb"}
    document = hardware.pool("measured", SHOP, MIXED, 2, chiplet=chiplet, profileRef={"name": "measured"})
    document["spec"]["model"]["memory"] = memory
    made(document)
    apply(hardware.pool("crowd", SHOP, BRIDGED, 5, chiplet=hardware.two_linked_gpus()))
    try:
        _until_four_of_five_serve("crowd")
        _plan_and_statuses_agree("measured", "crowd")
        status = get("chippool", "measured", SHOP)["status"]
        assert status["memory"]["check"] == "Enforced"
        assert len(status["shapes"]) > 1, status["shapesMessage"]
        assert "Measured" in {shape["speed"] for shape in status["shapes"]}
    finally:
        delete("chippool", "crowd", SHOP, wait_s=120)
        delete("slo", "promised", SHOP)


def test_a_model_too_large_for_its_chiplet_is_refused_until_the_spec_is_mended(nodes: None) -> None:
    """Weights and KV cache that no instance holds: unplaced, with the figures; a smaller model serves."""
    document = hardware.pool("heavy", SHOP, MIXED, 1, chiplet={"shape": "MIG", "profile": "1g.10gb"})
    document["spec"]["model"]["memory"] = {"weightsMiB": 15_000, "kvBytesPerToken": 65_536}
    apply(document)
    try:
        status = until(
            lambda: get("chippool", "heavy", SHOP).get("status") or {},
            lambda seen: seen.get("unplaced"),
            within_s=60,
            what="the pool is refused",
        )
        assert status["unplaced"][0]["reason"] == "NotEnoughMemory"
        refusals = {node["node"]: node for node in status["unplaced"][0]["nodes"]}
        assert refusals[MIXED_NODE]["constraint"] == "NotEnoughMemory"
        assert str(status["memory"]["neededMiB"]) in refusals[MIXED_NODE]["message"]
        assert condition({"status": status}, "Placed")["reason"] == "NotPlaced"
        _plan_and_statuses_agree("heavy")
        document["spec"]["model"]["memory"]["weightsMiB"] = 2_000
        apply(document)
        until_ready("heavy", SHOP, executors=1)
        _plan_and_statuses_agree("heavy")
    finally:
        delete("chippool", "heavy", SHOP, wait_s=120)


def test_an_idle_node_is_laid_out_where_that_is_allowed(nodes: None) -> None:
    """Only the MIG layout is in the way: the status names one; once allowed, the operator has it made."""
    chiplet = {"shape": "MIG", "profile": "4g.40gb"}
    apply(hardware.pool("cut", SHOP, BRIDGED, 2, chiplet=chiplet))
    try:
        advice = until(
            lambda: (get("chippool", "cut", SHOP).get("status") or {}).get("migConfigAdvice"),
            bool,
            within_s=60,
            what="the status names a layout",
        )
        assert [(item["node"], item["config"]) for item in advice] == [(BRIDGED_NODE, "all-4g.40gb")]
        assert hardware.MIG_CONFIG not in get("node", BRIDGED_NODE)["metadata"]["labels"]
        release.upgrade("migLabels.enabled=true")
        until_ready("cut", SHOP, executors=2, within_s=240)
        _as_told("cut", _holdings(BRIDGED_NODE, _pods("cut")))
        assert {gpu["migEnabled"] for gpu in hardware.topology(BRIDGED_NODE)["gpus"]} == {True}
        assert any(event["reason"] == "MIGLayoutChanging" for event in events(SHOP, "cut"))
    finally:
        delete("chippool", "cut", SHOP, wait_s=120)
        release.upgrade()
