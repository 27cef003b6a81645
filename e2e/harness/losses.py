"""Ways to lose an executor: its pod, its node, its device; node and device are back when the block ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from e2e.cluster.nodes import connect_nodes, has_own_network
from e2e.cluster.shell import run
from e2e.harness import hardware
from e2e.harness.objects import Object, condition, get, kubectl, until


def node_of(pod: Object) -> str:
    """The node a pod is on, "" while it has none."""
    return str(pod["spec"].get("nodeName") or "")


@contextmanager
def pod_killed(pod: Object) -> Iterator[None]:
    """The pod is deleted by force, without any grace."""
    where = ("--namespace", pod["metadata"]["namespace"])
    kubectl("delete", "pod", pod["metadata"]["name"], *where, "--grace-period=0", "--force", "--wait=false")
    yield


@contextmanager
def node_stopped(pod: Object) -> Iterator[None]:
    """The pod's node is shut down within a second, as `docker stop` does it."""
    with _node_away(node_of(pod), "stop", "--time", "1"):
        yield


@contextmanager
def node_killed(pod: Object) -> Iterator[None]:
    """The pod's node is gone from one moment to the next, as if its power had failed."""
    with _node_away(node_of(pod), "kill"):
        yield


@contextmanager
def device_failed(pod: Object) -> Iterator[None]:
    """The MOCK GPU that the pod has, or has an instance of, falls off the bus (Xid 79)."""
    node = node_of(pod)
    device = json.loads(pod["metadata"]["annotations"]["superinfer.dev/chiplet"])["devices"][0]
    gpu = next(str(gpu["index"]) for gpu in hardware.topology(node)["gpus"] if _has(gpu, device))
    hardware.mock(node, "fail", "--gpu", gpu, "--xid", "79")
    try:
        yield
    finally:
        hardware.mock(node, "recover", "--gpu", gpu)


def _has(gpu: Object, device: str) -> bool:
    return device in {gpu["uuid"], *(instance["uuid"] for instance in gpu.get("instances") or ())}


@contextmanager
def _node_away(node: str, *how: str) -> Iterator[None]:
    run(["docker", *how, node])
    try:
        yield
    finally:
        run(["docker", "start", node])
        until(lambda: _kubelet_runs(node), bool, within_s=120, what=f"the kubelet of {node} is back")
        if has_own_network(node):
            connect_nodes()
        until(
            lambda: condition(get("node", node), "Ready").get("status"),
            lambda seen: seen == "True",
            within_s=120,
            what=f"{node} is ready again",
        )


def _kubelet_runs(node: str) -> bool:
    running = run(["docker", "exec", node, "sh", "-c", "pgrep -x kubelet || true"]).strip()
    return bool(running) and bool(get("node", node)["status"].get("addresses"))
