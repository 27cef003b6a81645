"""Nodes and devices fail under serving executors: replaced elsewhere, told in events, no thrash."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from e2e.conftest import SHOP, until_ready
from e2e.harness import hardware, release, samples
from e2e.harness.losses import node_of, node_stopped
from e2e.harness.objects import Object, condition, events, kubectl, names, pods_of, until
from e2e.harness.traffic import Door, Outcome, Traffic

POOL = "stubs"


def _pods() -> list[Object]:
    return pods_of(POOL, SHOP)


def _living() -> list[Object]:
    return [pod for pod in _pods() if "deletionTimestamp" not in pod["metadata"]]


def _made() -> int:
    """How many executors the pool ever had: the incarnations of all its slots."""
    return sum(int(pod["metadata"]["labels"]["superinfer.dev/incarnation"]) for pod in _living())


@pytest.fixture
def settled(stubs: str) -> Iterator[str]:
    """The pool of three executors, before and after."""
    until_ready(stubs, SHOP, executors=3)
    yield stubs
    until_ready(stubs, SHOP, executors=3, within_s=240)


def test_cordoned_node_gets_nothing_new(door: Door, settled: str, gold: str) -> None:
    """A cordoned node keeps what runs there; what is lost there is replaced on another node."""
    victim = _living()[0]
    node = node_of(victim)
    traffic = Traffic(door, model=POOL, contract=f"{SHOP}/{gold}", clients=3, max_tokens=40)
    kubectl("cordon", node)
    try:
        with traffic.running():
            until(
                lambda: traffic.count(Outcome.SERVED), lambda seen: seen >= 3, within_s=60, what="it serves"
            )
            assert victim["metadata"]["name"] in names(_living()), (
                "a cordon is no reason to take an executor away"
            )
            kubectl("delete", "pod", victim["metadata"]["name"], "--namespace", SHOP, "--wait=false")
            _until_left(node)
    finally:
        kubectl("uncordon", node)
    assert traffic.failures() == []


def test_drained_node_is_left_without_a_broken_stream(door: Door, settled: str, gold: str) -> None:
    """`kubectl drain` under load: executors go one at a time, their streams go on, the node is empty."""
    node = next(node_of(pod) for pod in _living() if node_of(pod) != release.door_node())
    traffic = Traffic(door, model=POOL, contract=f"{SHOP}/{gold}", clients=3, max_tokens=40)
    try:
        with traffic.running():
            until(lambda: traffic.count(Outcome.SERVED), lambda n: n >= 3, within_s=60, what="it serves")
            how = ("--ignore-daemonsets", "--delete-emptydir-data", "--timeout=180s")
            kubectl("drain", node, *how, timeout_s=200)
            _until_left(node)
    finally:
        kubectl("uncordon", node)
    assert traffic.failures() == []
    assert not traffic.codes()


def test_unhealthy_device_is_left(door: Door, settled: str, gold: str) -> None:
    """A MOCK device turns unhealthy: its executor moves elsewhere; recovery causes no thrash."""
    victim = _living()[0]
    node = node_of(victim)
    traffic = Traffic(door, model=POOL, contract=f"{SHOP}/{gold}", clients=3, max_tokens=40)
    with traffic.running():
        hardware.mock(node, "fail", "--gpu", "0", "--xid", "79")
        try:
            until(
                lambda: release.offered(node, samples.MIG_RESOURCE),
                lambda seen: seen == 0,
                within_s=60,
                what="the kubelet takes the GPU's instances off the offer",
            )
            until(
                _living,
                lambda seen: len(seen) == 3 and all(node_of(pod) not in ("", node) for pod in seen),
                within_s=180,
                what=f"no executor is left on {node}, whose devices are unhealthy",
            )
            until_ready(POOL, SHOP, executors=3)
        finally:
            hardware.mock(node, "recover", "--gpu", "0")
        until(
            lambda: release.offered(node, samples.MIG_RESOURCE),
            lambda seen: seen == samples.MIG_PER_NODE,
            within_s=60,
            what="the devices are offered again",
        )
        made = _made()
        _stays(lambda: _made() == made, for_s=20, what="nothing moves because a device came back")
    assert traffic.failures() == []
    assert "DeviceUnhealthy" in {event["reason"] for event in events(SHOP, POOL)}


def test_stopped_node_is_replaced(door: Door, settled: str, gold: str) -> None:
    """A node is stopped: its executor is made anew elsewhere, streams go on; its return moves nothing."""
    target = _far_from_the_ingress()
    victim = next(pod for pod in _living() if node_of(pod) == target)
    traffic = Traffic(door, model=POOL, contract=f"{SHOP}/{gold}", clients=4, max_tokens=60)
    with traffic.running():
        until(lambda: traffic.count(Outcome.SERVED), lambda seen: seen >= 4, within_s=60, what="it serves")
        with node_stopped(victim):
            until(
                _living,
                lambda seen: (
                    victim["metadata"]["name"] not in names(seen)
                    and len([pod for pod in seen if condition(pod, "Ready").get("status") == "True"]) == 3
                    and all(node_of(pod) != target for pod in seen)
                ),
                within_s=240,
                what=f"three executors are ready, none on the stopped {target}",
            )
        until_ready(POOL, SHOP, executors=3)
        made = _made()
        _stays(lambda: _made() == made, for_s=20, what="nothing moves because a node came back")
    assert traffic.failures() == []
    assert "NodeLost" in {event["reason"] for event in events(SHOP, POOL)}


def _far_from_the_ingress() -> str:
    """A worker with an executor but neither operator nor the door: what is tested is the executor's loss."""
    used = {node_of(pod) for pod in release.pods("operator")} | {release.door_node()}
    return next(node_of(pod) for pod in _living() if node_of(pod) not in used)


def _stays(holds: Callable[[], bool], *, for_s: float, what: str) -> None:
    deadline = time.monotonic() + for_s
    while time.monotonic() < deadline:
        assert holds(), f"did not hold: {what}"
        time.sleep(2)


def _until_left(node: str) -> None:
    until(
        _living,
        lambda seen: len(seen) == 3 and all(node_of(pod) not in ("", node) for pod in seen),
        within_s=120,
        what=f"three executors, none on {node}",
    )
    until_ready(POOL, SHOP, executors=3)
