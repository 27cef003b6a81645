"""The large cluster of the operator's benchmark: what it holds, and what its aims say."""

import pytest

from superinfer_bench.operator.__main__ import Figures, aims
from superinfer_bench.operator.population import GPUS, Size, documents
from superinfer_bench.operator.watching import Progress
from superinfer_core.api.v1alpha1.chipletpool import ChipletPool
from superinfer_core.api.v1alpha1.nodetopology import NodeTopology
from superinfer_core.api.v1alpha1.slocontract import SLOContract

SIZE = Size(nodes=20, pools=10, contracts=60, namespaces=5)
MODELS = {"ChipletPool": ChipletPool, "SLOContract": SLOContract, "NodeTopology": NodeTopology}


def test_it_is_as_large_as_it_says_and_every_object_is_valid():
    counts = {}
    for resource, document in documents(SIZE):
        counts[resource.plural] = counts.get(resource.plural, 0) + 1
        if resource.kind in MODELS:
            MODELS[resource.kind].model_validate(document, by_alias=True, by_name=False)
    assert counts == {
        "namespaces": 5,
        "nodes": 20,
        "nodetopologies": 20,
        "chipletpools": 10,
        "slocontracts": 60,
    }


def test_executors_fit_on_the_gpus():
    specs = [document["spec"] for resource, document in documents(Size()) if resource.kind == "ChipletPool"]
    assert sum(spec["replicas"] for spec in specs) == Size().executors
    asked = [
        spec["replicas"] * spec["chiplet"].get("count", 1)
        for spec in specs
        if spec["chiplet"]["shape"] == "GPU"
    ]
    assert 0 < sum(asked) <= Size().nodes * GPUS


def test_contracts_inherit_only_from_contracts_of_their_namespace():
    names = {
        (d["metadata"]["namespace"], d["metadata"]["name"])
        for r, d in documents(SIZE)
        if r.kind == "SLOContract"
    }
    parents = [
        (d["metadata"]["namespace"], d["spec"]["parentRef"]["name"])
        for r, d in documents(SIZE)
        if r.kind == "SLOContract" and "parentRef" in d["spec"]
    ]
    assert parents
    assert set(parents) <= names


@pytest.mark.parametrize(
    ("progress", "want"),
    [
        pytest.param(Progress(2, 2, 3, 3), True, id="done"),
        pytest.param(Progress(2, 1, 3, 3), False, id="an edit was not looked at yet"),
        pytest.param(Progress(2, 2, 3, 2), False, id="an executor is missing"),
        pytest.param(Progress(1, -1), False, id="never looked at"),
    ],
)
def test_what_is_settled(progress, want):
    assert progress.is_current is want


def test_what_was_not_measured_is_not_met():
    assert [aim.met for aim in aims(Figures())] == [False] * 4
    good = Figures(settled_s=100, edit_s=0.5, rss_mb=200, idle_requests_per_min=2)
    assert all(aim.met for aim in aims(good))
