"""Upgrades under load: a pool's engine, then the release itself; removed and installed again."""

from __future__ import annotations

import pytest
from e2e.conftest import LAB, SHOP, until_contract, until_ready
from e2e.harness import release, samples
from e2e.harness.objects import Object, apply, get, kubectl, pods_of, until
from e2e.harness.traffic import Door, Outcome, Traffic, ask

POOL = "stubs"


def _pods() -> list[Object]:
    return pods_of(POOL, SHOP)


def test_pool_upgraded_under_load(door: Door, stubs: str, gold: str) -> None:
    """Engine arguments and model path changed under load: every executor is replaced, none fails."""
    old = {pod["metadata"]["labels"]["superinfer.dev/revision"] for pod in _pods()}
    traffic = Traffic(door, model=POOL, contract=f"{SHOP}/{gold}", clients=4, max_tokens=40)
    with traffic.running():
        until(lambda: traffic.count(Outcome.SERVED), lambda seen: seen >= 4, within_s=60, what="it serves")
        apply(
            samples.stub_pool(
                POOL, SHOP, replicas=3, step_ms=15.0, model={"name": POOL, "source": {"path": "/models/next"}}
            )
        )
        until(
            _pods,
            lambda seen: (
                len(seen) == 3
                and not old & {pod["metadata"]["labels"]["superinfer.dev/revision"] for pod in seen}
            ),
            within_s=300,
            what="every executor is of the new revision",
        )
        until_ready(POOL, SHOP, executors=3)
    assert traffic.failures() == []
    assert not traffic.codes()
    assert get("chippool", POOL, SHOP)["status"]["updatedReplicas"] == 3


def test_operator_killed_in_the_middle_of_a_rollout(door: Door, stubs: str, gold: str) -> None:
    """The operator is killed between the first new executor and the last: the next one finishes it."""
    until_ready(POOL, SHOP, executors=3)
    old = {pod["metadata"]["labels"]["superinfer.dev/revision"] for pod in _pods()}

    def new() -> list[Object]:
        return [pod for pod in _pods() if pod["metadata"]["labels"]["superinfer.dev/revision"] not in old]

    traffic = Traffic(door, model=POOL, contract=f"{SHOP}/{gold}", clients=3, max_tokens=40)
    with traffic.running():
        apply(samples.stub_pool(POOL, SHOP, replicas=3, step_ms=17.0))
        until(new, lambda seen: 0 < len(seen) < 3, within_s=60, what="the rollout has begun", every_s=0.2)
        for pod in release.pods("operator"):
            where = ("--namespace", release.NAMESPACE, "--grace-period=0", "--force")
            kubectl("delete", "pod", pod["metadata"]["name"], *where)
        until(
            lambda: (len(new()), len(_pods())),
            lambda seen: seen == (3, 3),
            within_s=300,
            what="every executor is of the new revision, and none of the old is left",
        )
        until_ready(POOL, SHOP, executors=3)
    assert traffic.failures() == []
    assert not traffic.codes()


def test_helm_upgrade_under_load(door: Door, stubs: str, gold: str) -> None:
    """`helm upgrade` that restarts operator and ingress: executors stay, and streams end as they should."""
    before = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in _pods()}
    ingresses = {pod["metadata"]["name"] for pod in release.pods("ingress")}
    traffic = Traffic(door, model=POOL, contract=f"{SHOP}/{gold}", clients=3, max_tokens=20)
    with traffic.running():
        until(lambda: traffic.count(Outcome.SERVED), lambda seen: seen >= 3, within_s=60, what="it serves")
        release.upgrade("ingress.podAnnotations.upgraded=yes", "operator.podAnnotations.upgraded=yes")
        until(
            lambda: {pod["metadata"]["name"] for pod in release.pods("ingress")},
            lambda seen: not seen & ingresses,
            within_s=120,
            what="every ingress was replaced",
        )
    assert {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in _pods()} == before
    assert traffic.failures() == []


@pytest.mark.at_the_end
def test_installed_again_after_uninstall(door: Door) -> None:
    """Uninstalled and installed again: kept contracts are taken up, and a pool applied anew serves."""
    release.clear()
    release.install()
    apply(samples.namespace(SHOP), samples.real_engine_namespace(LAB), samples.api_keys("e2e-keys", SHOP))
    apply(samples.contract("kept", SHOP, **samples.within(5000, poolRef={"name": POOL})))
    apply(samples.stub_pool(POOL, SHOP, replicas=1))
    until_ready(POOL, SHOP, executors=1)
    release.uninstall()
    assert get("slo", "kept", SHOP)["spec"]["poolRef"]["name"] == POOL
    release.install()
    apply(samples.stub_pool(POOL, SHOP, replicas=1))
    until_ready(POOL, SHOP, executors=1)
    until_contract("kept", SHOP, "Ready")
    until(
        lambda: ask(door, model=POOL, contract=f"{SHOP}/kept"),
        lambda seen: seen.outcome is Outcome.SERVED,
        within_s=60,
        what="it serves again",
    )
