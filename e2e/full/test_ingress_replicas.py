"""Replicas of the ingress come and go under load, as an autoscaler or an impatient person would have it."""

from __future__ import annotations

import pytest
from e2e.conftest import SHOP
from e2e.harness import release
from e2e.harness.objects import kubectl, until
from e2e.harness.traffic import Door, Outcome, Traffic

POOL = "stubs"
DEPLOYMENT = "deployment/superinfer-ingress"


def _scale(replicas: int) -> None:
    kubectl("--namespace", release.NAMESPACE, "scale", DEPLOYMENT, f"--replicas={replicas}")
    until(
        lambda: [pod["metadata"]["name"] for pod in release.pods("ingress")],
        lambda seen: len(seen) == replicas,
        within_s=120,
        what=f"{replicas} replicas of the ingress are there, and no other",
    )
    status = ("rollout", "status", DEPLOYMENT, "--timeout=120s")
    kubectl("--namespace", release.NAMESPACE, *status, timeout_s=150)


@pytest.mark.usefixtures("stubs")
def test_replicas_of_the_ingress_come_and_go(door: Door, gold: str) -> None:
    """Scaled to 1, 3, 1 and 2 while clients stream: a replica that goes ends what it began, none breaks."""
    traffic = Traffic(door, model=POOL, contract=f"{SHOP}/{gold}", clients=4, max_tokens=40)
    with traffic.running():
        until(lambda: traffic.count(Outcome.SERVED), lambda seen: seen >= 4, within_s=60, what="it serves")
        for replicas in (1, 3, 1, 2):
            _scale(replicas)
    assert traffic.failures() == []
    assert not traffic.codes()
