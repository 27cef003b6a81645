"""`helm uninstall` while pools exist: everything ends, nothing hangs."""

from __future__ import annotations

import pytest
from e2e.conftest import LAB, SHOP
from e2e.harness import release
from e2e.harness.objects import kubectl, listed, until
from e2e.harness.traffic import Door

pytestmark = pytest.mark.at_the_end


def test_uninstall_leaves_nothing_hanging(door: Door, stubs: str) -> None:
    """Pools drained, pods gone, contracts and CRDs kept, namespaces deletable: no finalizer is left."""
    assert listed("pods", SHOP, selector="app.kubernetes.io/component=executor")
    release.uninstall()
    until(
        lambda: listed("pods", selector="app.kubernetes.io/managed-by=superinfer-operator"),
        lambda seen: not seen,
        within_s=60,
        what="executor pods are gone",
    )
    until(
        lambda: release.pods("operator"),
        lambda seen: not seen,
        within_s=60,
        what="the operator's pod is gone",
    )
    leftovers = [item for item in listed("slo") + listed("chippool") if item["metadata"].get("finalizers")]
    assert leftovers == []
    assert {
        item["metadata"]["name"] for item in listed("crd") if item["spec"]["group"] == "superinfer.dev"
    } == {
        "slocontracts.superinfer.dev",
        "chipletpools.superinfer.dev",
        "nodetopologies.superinfer.dev",
    }
    for namespace in (SHOP, LAB, release.NAMESPACE):
        kubectl("delete", "namespace", namespace, "--timeout=90s", timeout_s=120)
