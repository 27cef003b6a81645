"""The operator dies again and again, the API server is away: serving never stops, and the state converges."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from e2e.cluster import layout
from e2e.cluster.shell import run
from e2e.conftest import SHOP, until_ready
from e2e.harness import release
from e2e.harness.objects import Object, find, kubectl, listed, names, pods_of, until
from e2e.harness.report import Report
from e2e.harness.traffic import Door, Outcome, Traffic

POOL = "stubs"
KILLS = 20
AWAY_S = 120
_MANIFEST = "/etc/kubernetes/manifests/kube-apiserver.yaml"


def _pods() -> list[Object]:
    return pods_of(POOL, SHOP)


def _nothing_twice_nothing_orphaned() -> None:
    pods = _pods()
    slots = Counter(pod["metadata"]["labels"]["superinfer.dev/slot"] for pod in pods)
    assert set(slots.values()) == {1}, f"a slot has more than one pod: {slots}"
    owner = kubectl("get", "chippool", POOL, "--namespace", SHOP, "--output=jsonpath={.metadata.uid}")
    for kind in ("pods", "services", "configmaps", "secrets", "poddisruptionbudgets"):
        made = listed(kind, SHOP, selector=f"superinfer.dev/pool={POOL}")
        assert {item["metadata"]["ownerReferences"][0]["uid"] for item in made} <= {owner}, kind
    claims = Counter(pod["spec"]["nodeName"] for pod in pods)
    assert max(claims.values()) <= 2, f"more executors than chiplets on a node: {claims}"


def test_operator_killed_twenty_times(door: Door, stubs: str, gold: str, report: Report) -> None:
    """Killed mid-reconcile 20 times while the pool is scaled: converges, nothing twice, no request lost."""
    chance = random.Random(7)
    sizes = [1, 3, 2, 4]
    traffic = Traffic(door, model=POOL, contract=f"{SHOP}/{gold}", clients=3, max_tokens=30)
    with traffic.running():
        for turn in range(KILLS):
            kubectl("scale", "chippool", POOL, "--namespace", SHOP, f"--replicas={sizes[turn % 4]}")
            time.sleep(chance.uniform(0.2, 2.5))
            for pod in release.pods("operator"):
                kubectl("delete", "pod", pod["metadata"]["name"], "--namespace", release.NAMESPACE,
                        "--grace-period=0", "--force", "--ignore-not-found")  # fmt: skip
            # One that stands by does nothing: killing it would show nothing.
            until(
                lambda: (_leader(), [pod["metadata"]["name"] for pod in release.pods("operator")]),
                lambda seen: [seen[0]] == seen[1],
                within_s=60,
                what="another operator works",
                every_s=0.3,
            )
        killed = time.monotonic()
        kubectl("scale", "chippool", POOL, "--namespace", SHOP, "--replicas=3")
        until_ready(POOL, SHOP, executors=3, within_s=120)
        until(_pods, lambda seen: len(seen) == 3, within_s=90, what="exactly three pods")
        report.figures["settled_after_operator_kills_s"] = round(time.monotonic() - killed, 1)
    _nothing_twice_nothing_orphaned()
    assert traffic.failures() == []


@pytest.fixture
def two_operators(installed: None) -> Iterator[None]:
    """A second operator stands by."""
    release.upgrade("operator.replicas=2")
    yield
    release.upgrade()


def test_the_operator_that_stands_by_takes_over(
    door: Door, stubs: str, gold: str, two_operators: None, report: Report
) -> None:
    """The operator that works is killed: the other one does what is asked next, and no request is lost."""
    working = until(_leader, bool, within_s=60, what="an operator works")
    traffic = Traffic(door, model=POOL, contract=f"{SHOP}/{gold}", clients=3, max_tokens=30)
    with traffic.running():
        killed = time.monotonic()
        kubectl("delete", "pod", working, "--namespace", release.NAMESPACE, "--grace-period=0", "--force")
        kubectl("scale", "chippool", POOL, "--namespace", SHOP, "--replicas=4")
        until(_leader, lambda seen: seen not in ("", working), within_s=60, what="the other operator works")
        report.figures["operator_takeover_s"] = round(time.monotonic() - killed, 1)
        until_ready(POOL, SHOP, executors=4)
        kubectl("scale", "chippool", POOL, "--namespace", SHOP, "--replicas=3")
        until_ready(POOL, SHOP, executors=3)
        until(_pods, lambda seen: len(seen) == 3, within_s=90, what="exactly three pods")
    _nothing_twice_nothing_orphaned()
    assert traffic.failures() == []


def test_api_server_away_for_two_minutes(door: Door, stubs: str, gold: str, report: Report) -> None:
    """The API server is gone for 2 minutes: requests are served throughout; edits work afterwards."""
    before = names(_pods())
    traffic = Traffic(door, model=POOL, contract=f"{SHOP}/{gold}", clients=3, max_tokens=30)
    node = f"{layout.CLUSTER}-control-plane"
    with traffic.running():
        run(["docker", "exec", node, "mv", _MANIFEST, "/root/kube-apiserver.yaml"])
        try:
            until(_api_is_away, bool, within_s=90, what="the API server is gone")
            gone = time.monotonic()
            time.sleep(AWAY_S)
            served = traffic.count(Outcome.SERVED, since=gone)
        finally:
            run(["docker", "exec", node, "mv", "/root/kube-apiserver.yaml", _MANIFEST])
            until(_api_is_away, lambda seen: not seen, within_s=180, what="the API server is back")
        assert served >= AWAY_S / 10, "requests were served while the API server was away"
        until_ready(POOL, SHOP, executors=3, within_s=180)
    assert traffic.failures() == []
    assert not traffic.codes()
    assert names(_pods()) == before, "no executor was replaced only because the API server was away"
    kubectl("scale", "chippool", POOL, "--namespace", SHOP, "--replicas=2")
    until_ready(POOL, SHOP, executors=2)
    kubectl("scale", "chippool", POOL, "--namespace", SHOP, "--replicas=3")
    until_ready(POOL, SHOP, executors=3)
    report.figures["served_while_api_server_away"] = served
    _nothing_twice_nothing_orphaned()


def _leader() -> str:
    """The operator's pod that holds the Lease, "" while none does."""
    lease = find("lease", "superinfer-operator", release.NAMESPACE) or {"spec": {}}
    return str(lease["spec"].get("holderIdentity") or "").partition("_")[0]


def _api_is_away() -> bool:
    try:
        kubectl("get", "--raw=/readyz", "--request-timeout=3s", timeout_s=10)
    except Exception:  # noqa: BLE001 - however it does not answer
        return True
    return False
