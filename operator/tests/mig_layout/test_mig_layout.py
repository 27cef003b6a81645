from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from superinfer_core.placement.geometry import PRODUCTS
from superinfer_core.placement.mig_layout import MIG_STATE_LABEL, PATIENCE_S
from superinfer_core.placement.node import Gpu, MigInstance, Node, Topology
from superinfer_core.placement.outcome import LayoutAdvice
from superinfer_kube.resources import NODES
from superinfer_operator.mig_layout.tending import MigLayoutTender
from superinfer_operator.reconciling.clock import Now
from superinfer_operator.reconciling.recording import Recorder
from superinfer_operator.reconciling.writing import Writer

CONFIG = "nvidia.com/mig.config"
H200 = PRODUCTS["NVIDIA H200"]
LAYOUTS = {"all-disabled": (), "all-3g.71gb": (("3g.71gb", 0), ("3g.71gb", 4))}


class Cluster:
    """Nodes whose labels the tender writes, and a MIG manager by hand."""

    def __init__(self, *names: str) -> None:
        self.nodes: dict[str, Node] = {}
        self.events: list[dict[str, Any]] = []
        self.instant = datetime(2026, 1, 1, tzinfo=UTC)
        for name in names:
            self.nodes[name] = Node(name, labels={MIG_STATE_LABEL: "success"})
            self.lay(name, "all-disabled")
        self.tender = MigLayoutTender(Writer(self), Recorder(self, instance="o", clock=self.now))
        self.in_use: set[str] = set()

    def now(self) -> Now:
        return Now(self.instant)

    async def apply(self, resource: Any, document: dict[str, Any], **_: Any) -> dict[str, Any]:
        assert resource is NODES
        self.label(document["metadata"]["name"], **document["metadata"]["labels"])
        return document

    async def create(self, resource: Any, document: dict[str, Any]) -> dict[str, Any]:
        self.events.append(document)
        return document

    def label(self, name: str, **labels: str) -> None:
        node = self.nodes[name]
        self.nodes[name] = replace(node, labels={**node.labels, **labels})

    def lay(self, name: str, config: str) -> None:
        made = tuple(
            MigInstance(f"MIG-{name}-{start}", profile, start, 4) for profile, start in LAYOUTS[config]
        )
        gpu = Gpu(f"GPU-{name}", 0, H200.label, 143771, mig_enabled=bool(made), instances=made)
        self.nodes[name] = replace(self.nodes[name], topology=Topology((gpu,)))

    async def round(self, *advice: LayoutAdvice) -> dict[str, str]:
        """One round; what the nodes are told after it."""
        await self.tender.tend(advice, self.nodes, self.in_use, {"shop/p": "uid-p"}, self.now())
        return {name: node.labels[CONFIG] for name, node in self.nodes.items() if CONFIG in node.labels}


def advice(node: str, config: str | None = "all-3g.71gb", device: str = "all") -> LayoutAdvice:
    return LayoutAdvice(
        node, device, config, ("3g.71gb",) * 2, ("shop/p",), "would make room for 2 of shop/p"
    )


async def test_an_idle_node_is_told_and_the_pool_hears_of_it() -> None:
    cluster = Cluster("a", "b")
    assert await cluster.round(advice("a")) == {"a": "all-3g.71gb"}
    (event,) = cluster.events
    assert (event["reason"], event["regarding"]["uid"]) == ("MIGLayoutChanging", "uid-p")
    assert "would make room for 2 of shop/p" in event["note"]


async def test_one_node_at_a_time_until_the_driver_shows_the_layout() -> None:
    cluster = Cluster("a", "b")
    both = (advice("a"), advice("b"))
    assert await cluster.round(*both) == {"a": "all-3g.71gb"}
    assert await cluster.round(*both) == {"a": "all-3g.71gb"}
    cluster.label("a", **{MIG_STATE_LABEL: "pending"})
    assert await cluster.round(*both) == {"a": "all-3g.71gb"}
    cluster.label("a", **{MIG_STATE_LABEL: "success"})
    cluster.lay("a", "all-3g.71gb")
    assert await cluster.round(*both) == {"a": "all-3g.71gb", "b": "all-3g.71gb"}


async def test_a_change_that_failed_is_not_tried_again_and_others_go_on() -> None:
    cluster = Cluster("a", "b")
    await cluster.round(advice("a"))
    cluster.label("a", **{MIG_STATE_LABEL: "failed"})
    assert await cluster.round(advice("a"), advice("b")) == {"a": "all-3g.71gb", "b": "all-3g.71gb"}
    assert [event["note"].split()[1] for event in cluster.events] == ["a", "b"]


async def test_a_change_that_never_shows_has_failed() -> None:
    cluster = Cluster("a", "b")
    await cluster.round(advice("a"))
    assert cluster.tender.next_at == cluster.now().seconds + PATIENCE_S
    cluster.instant += timedelta(seconds=PATIENCE_S)
    assert await cluster.round(advice("b")) == {"a": "all-3g.71gb", "b": "all-3g.71gb"}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda cluster: cluster.in_use.add("a"),
        lambda cluster: cluster.label("a", **{MIG_STATE_LABEL: ""}),
        lambda cluster: cluster.label("a", **{MIG_STATE_LABEL: "failed"}),
        lambda cluster: cluster.label("b", **{MIG_STATE_LABEL: "rebooting"}),
        lambda cluster: cluster.nodes.update(a=replace(cluster.nodes["a"], topology=None)),
        lambda cluster: cluster.nodes.update(a=replace(cluster.nodes["a"], ready=False)),
        lambda cluster: cluster.nodes.pop("a"),
    ],
    ids=["in use", "no manager", "manager failed", "another reboots", "unknown GPUs", "not ready", "gone"],
)
async def test_nobody_is_told_where_it_may_not_be(spoil: Any) -> None:
    cluster = Cluster("a", "b")
    spoil(cluster)
    assert await cluster.round(advice("a")) == {}
    assert cluster.events == []


async def test_advice_on_a_single_gpu_is_for_people() -> None:
    assert await Cluster("a").round(advice("a", None, "GPU-a")) == {}
