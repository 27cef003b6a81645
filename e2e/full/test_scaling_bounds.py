"""A pool's autoscaling bounds hold whoever writes its replicas, and what they cut off is told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from e2e.conftest import SHOP, until_ready
from e2e.harness import samples
from e2e.harness.objects import apply, condition, delete, events, get, kubectl, pods_of, until

POOL = "bounded"


@pytest.fixture
def bounded(installed: None) -> Iterator[str]:
    """A pool of one executor that may have one or two."""
    bounds = {"minReplicas": 1, "maxReplicas": 2}
    apply(samples.stub_pool(POOL, SHOP, replicas=1, autoscaling=bounds))
    until_ready(POOL, SHOP, executors=1)
    yield POOL
    delete("chippool", POOL, SHOP, wait_s=120)


def _scale(replicas: int) -> None:
    kubectl("scale", "chippool", POOL, "--namespace", SHOP, f"--replicas={replicas}")


def _until_limited(reason: str) -> None:
    until(
        lambda: condition(get("chippool", POOL, SHOP), "ScalingLimited"),
        lambda seen: seen.get("reason") == reason,
        within_s=30,
        what=f"ScalingLimited says {reason}",
    )


def test_scaled_beyond_its_bounds(bounded: str) -> None:
    """Scaled to five where two are allowed, and to none: two and one serve, condition and event say why."""
    _scale(5)
    _until_limited("TooManyReplicas")
    until_ready(POOL, SHOP, executors=2)
    assert "TooManyReplicas" in {event["reason"] for event in events(SHOP, POOL)}
    _scale(0)
    _until_limited("TooFewReplicas")
    until(lambda: pods_of(POOL, SHOP), lambda seen: len(seen) == 1, within_s=90, what="one executor is left")
    until_ready(POOL, SHOP, executors=1)
    _scale(2)
    _until_limited("WithinBounds")
    until_ready(POOL, SHOP, executors=2)
