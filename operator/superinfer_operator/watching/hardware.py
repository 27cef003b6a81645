"""Facts about the GPUs of nodes, out of what node agents publish. Frozen."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from superinfer_core.api.v1alpha1.nodetopology import NodeTopology, NodeTopologyStatus
from superinfer_core.placement import Topology
from superinfer_core.placement.observed import HardwareFacts


@dataclass(frozen=True, slots=True)
class NodeHardware:
    """The GPUs of one node, and who was given which.

    Attributes:
        topology: None until the node agent has published something.
        given: device ids by pod (namespace/name), as the kubelet says.
    """

    topology: Topology | None
    given: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def hardware_reader() -> Callable[[Mapping[str, Any]], NodeHardware]:
    """Reads NodeTopologies; equal parts of different nodes become one object."""
    facts = HardwareFacts()

    def read(document: Mapping[str, Any]) -> NodeHardware:
        status = NodeTopology.model_validate(document, by_alias=True, by_name=False).status
        if status is None or status.gpus is None:
            return NodeHardware(None)
        return NodeHardware(facts.topology(status), _given(status))

    return read


def _given(status: NodeTopologyStatus) -> dict[str, tuple[str, ...]]:
    given: dict[str, list[str]] = {}
    for allocation in status.allocations or ():
        pod = f"{allocation.namespace}/{allocation.pod}"
        given.setdefault(pod, []).extend(allocation.device_ids or ())
    return {pod: tuple(sorted(devices)) for pod, devices in given.items()}
