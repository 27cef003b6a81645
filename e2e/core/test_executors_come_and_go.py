"""Executors come and go while clients stream: by scaling, and by deletion under their hands."""

from __future__ import annotations

from e2e.conftest import SHOP, until_ready
from e2e.harness import release
from e2e.harness.objects import Object, kubectl, listed, names, pods_of, until
from e2e.harness.traffic import Door, Outcome, Traffic

POOL = "stubs"


def _pods() -> list[Object]:
    return pods_of(POOL, SHOP)


def _nodes(pods: list[Object]) -> set[str]:
    return {pod["spec"].get("nodeName", "") for pod in pods}


def test_spread_over_nodes(door: Door, stubs: str) -> None:
    """Three executors stand on three nodes, one chiplet each, behind one headless Service."""
    pods = _pods()
    assert len(_nodes(pods)) == 3
    slices = listed("endpointslices", SHOP, selector=f"superinfer.dev/pool={POOL}")
    ready = [
        entry["targetRef"]["name"]
        for item in slices
        for entry in item["endpoints"]
        if entry["conditions"]["ready"]
    ]
    assert sorted(ready) == names(pods)


def test_scaled_by_kubectl_under_load(door: Door, stubs: str, gold: str) -> None:
    """`kubectl scale` up and down while clients stream: no request fails, and the pool settles each time."""
    traffic = Traffic(door, model=POOL, contract=f"{SHOP}/{gold}", clients=4, max_tokens=30)
    with traffic.running():
        kubectl("scale", "chippool", POOL, "--namespace", SHOP, "--replicas=4")
        until_ready(POOL, SHOP, executors=4)
        kubectl("scale", "chippool", POOL, "--namespace", SHOP, "--replicas=1")
        until_ready(POOL, SHOP, executors=1)
        until(_pods, lambda seen: len(seen) == 1, within_s=90, what="the others are gone")
        kubectl("scale", "chippool", POOL, "--namespace", SHOP, "--replicas=3")
        until_ready(POOL, SHOP, executors=3)
    assert traffic.failures() == []
    assert not traffic.codes()
    assert traffic.count(Outcome.SERVED) >= 10


def test_pod_deleted_while_streaming(door: Door, stubs: str, gold: str) -> None:
    """An executor pod deleted under load: its streams go on to the end, and another pod takes its slot."""
    traffic = Traffic(door, model=POOL, contract=f"{SHOP}/{gold}", clients=6, max_tokens=120)
    with traffic.running():
        until(
            lambda: traffic.count(Outcome.SERVED),
            lambda seen: seen >= 6,
            within_s=60,
            what="streams are served",
        )
        victim = names(_pods())[0]
        slot = victim.rsplit("-", 2)[1]
        kubectl("delete", "pod", victim, "--namespace", SHOP, "--wait=false")
        until(
            _pods,
            lambda seen: (
                victim not in names(seen) and any(name.rsplit("-", 2)[1] == slot for name in names(seen))
            ),
            within_s=120,
            what=f"{victim} is gone and its slot has another pod",
        )
        until_ready(POOL, SHOP, executors=3)
    assert traffic.failures() == []
    assert traffic.count(Outcome.SERVED) >= 12


def test_pod_killed_while_streaming(door: Door, stubs: str, gold: str) -> None:
    """An executor pod killed without grace: streams that ran there are resumed elsewhere, none breaks."""
    traffic = Traffic(door, model=POOL, contract=f"{SHOP}/{gold}", clients=6, max_tokens=300)
    with traffic.running():
        until(
            lambda: traffic.count(Outcome.SERVED),
            lambda seen: seen >= 6,
            within_s=60,
            what="streams are served",
        )
        resumed = release.ingress_counter("superinfer_resumes_total")
        victim = until(traffic.busiest, bool, within_s=30, what="an executor has streams")
        kubectl("delete", "pod", victim, "--namespace", SHOP, "--grace-period=0", "--force", "--wait=false")
        until(_pods, lambda seen: victim not in names(seen), within_s=60, what=f"{victim} is gone")
        until_ready(POOL, SHOP, executors=3)
    assert traffic.failures() == []
    assert release.ingress_counter("superinfer_resumes_total") > resumed, "streams were cut and went on"
    assert traffic.count(Outcome.SERVED) >= 12
