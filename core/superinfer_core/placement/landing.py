"""From a choice to a chiplet with names: which GPU of the node, which instance, which fault domain.

Promise: deterministic; on nodes whose GPUs are equal the GPU with fewest executors of the pool is taken,
whole GPUs from as few NUMA nodes as possible.
"""

from dataclasses import dataclass

from superinfer_core.api.v1alpha1.chipletpool import Allocation, ChipletShape
from superinfer_core.placement.demand import ChipletDemand, PoolDemand
from superinfer_core.placement.devices import made_instance
from superinfer_core.placement.fit import Choice, Fitting, needs_exact_devices
from superinfer_core.placement.fleet import FleetNode
from superinfer_core.placement.hardware import GpuMode
from superinfer_core.placement.node import Gpu
from superinfer_core.placement.outcome import Chiplet
from superinfer_core.placement.spread import Spread
from superinfer_core.placement.standing import instance_domain


@dataclass(slots=True)
class Landing:
    """Where one executor goes."""

    node: FleetNode
    chiplet: Chiplet
    fault_domain: tuple[str, ...]


def land(node: FleetNode, pool: PoolDemand, choice: Choice, fitting: Fitting, spread: Spread) -> Landing:
    """Take the devices of a choice on a node; the node has still to be listed anew."""
    demand = pool.chiplet
    if demand.shape is ChipletShape.CPU:
        return Landing(node, Chiplet(ChipletShape.CPU), node.base_domain)
    gpus = node.gpus
    choice = _apart(node, choice, demand, fitting, spread)
    places = choice.positions or _pick(node, choice, spread)
    states = node.devices.states
    for place in places:
        states[place] = choice.new
    taken = [gpus[place] for place in places] if gpus else []
    chiplet = _chiplet(node, pool, choice, places, taken)
    if not taken:
        return Landing(node, chiplet, node.base_domain)
    inner = tuple([node.gpu_domains[place] for place in places])
    if demand.shape is ChipletShape.MIG:
        inner += (instance_domain(chiplet.devices[0]),)
    return Landing(node, chiplet, node.base_domain + inner)


def _apart(
    node: FleetNode,
    choice: Choice,
    demand: ChipletDemand,
    fitting: Fitting,
    spread: Spread,
) -> Choice:
    """The choice, unless executors of the pool are on the node already and a GPU without them would do."""
    # Only a node that holds a GPU's allowance can have a GPU that does.
    if demand.shape is not ChipletShape.MIG or not node.gpus:
        return choice
    if spread.counts.get(node.domain, 0) < spread.allowed or "gpu" not in spread.levels:
        return choice
    crowd = tuple([spread.excess(domain) for domain in node.gpu_domains])
    if not any(crowd):
        return choice
    return fitting.choose_apart(node.kind, node.devices.states, demand, crowd) or choice


def _pick(node: FleetNode, choice: Choice, spread: Spread) -> tuple[int, ...]:
    """On a flat node: which of the GPUs in the chosen state."""
    counts = spread.counts
    states = node.devices.states
    if choice.count == 1:
        first = states.index(choice.old)
        if not node.gpus or not counts.get(node.gpu_domains[first]):
            return (first,)
    alike = [place for place, state in enumerate(states) if state == choice.old]
    if choice.count == 1:
        held = [counts.get(node.gpu_domains[place], 0) for place in alike]
        return (alike[held.index(min(held))],)
    if len(alike) == choice.count:
        return tuple(alike)
    by_numa: dict[int, list[int]] = {}
    for place in alike:
        by_numa.setdefault(node.kind.numa[place], []).append(place)
    # The tightest NUMA node that has them all, else the fullest ones together.
    enough = [places for places in by_numa.values() if len(places) >= choice.count]
    if enough:
        return tuple(min(enough, key=lambda places: (len(places), places))[: choice.count])
    ordered = sorted(by_numa.values(), key=lambda places: (-len(places), places))
    return tuple(sorted([place for places in ordered for place in places][: choice.count]))


def _chiplet(
    node: FleetNode, pool: PoolDemand, choice: Choice, places: tuple[int, ...], gpus: list[Gpu]
) -> Chiplet:
    demand = pool.chiplet
    with_plugin = pool.allocation is Allocation.DEVICE_PLUGIN
    resource = node.resource_of(demand) if with_plugin else None
    kind = node.kind.gpus[places[0]]
    if demand.shape is ChipletShape.GPU:
        exact = with_plugin and needs_exact_devices(node.kind, demand)
        return Chiplet(
            ChipletShape.GPU, resource, demand.count, tuple([gpu.uuid for gpu in gpus]), exact=exact
        )
    if kind.mode is GpuMode.DYNAMIC:
        uuid, start = gpus[0].uuid, choice.place
        devices = (made_instance(uuid, demand.profile or "", start),)
    elif gpus:
        instance = gpus[0].instances[choice.place]
        uuid, start, devices = gpus[0].uuid, instance.start, (instance.uuid,)
    else:
        if with_plugin:
            resource = kind.resource
        return Chiplet(ChipletShape.MIG, resource, 1, (), demand.profile)
    return Chiplet(ChipletShape.MIG, resource, 1, devices, demand.profile, uuid, start)
