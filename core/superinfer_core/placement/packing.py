"""The packing problem behind a repacking: items, the spots each may take, and what spots consume.

Promise: pure and bounded; everything is in a fixed order, so that equal snapshots give equal problems. A cell
is what only one item can have: a memory slice, an instance that exists, or a whole GPU that is not cut.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations, islice

from superinfer_core.api.v1alpha1.chipletpool import ChipletShape, FaultDomain, Interconnect
from superinfer_core.placement.demand import PoolDemand
from superinfer_core.placement.devices import made_instance
from superinfer_core.placement.fit import size_in_slices
from superinfer_core.placement.fleet import FleetNode
from superinfer_core.placement.geometry import COMPUTE_SLICES, MEMORY_SLICES
from superinfer_core.placement.hardware import COMPUTE_SHIFT, FULL, GpuKind, GpuMode
from superinfer_core.placement.index import PlacementIndex
from superinfer_core.placement.misfit import instance_profile
from superinfer_core.placement.outcome import Assignment, Chiplet, Plan
from superinfer_core.placement.search import admits, device_count
from superinfer_core.placement.snapshot import ExecutorPhase, RunningExecutor
from superinfer_core.placement.standing import gpu_domain, instance_domain

Cell = tuple[str, int, int]
"""Node, position of the GPU, number of the slice or piece."""
Gpu = tuple[str, int]

MAX_GROUPS = 80
"""Groups of GPUs considered on one node for one item."""


@dataclass(frozen=True, slots=True)
class Option:
    """One spot: cells and compute slices it takes, and how to name it."""

    node: str
    cells: tuple[Cell, ...]
    compute: tuple[tuple[Gpu, int], ...]
    places: tuple[int, ...]
    place: int


@dataclass(frozen=True, slots=True)
class Item:
    """An executor that runs and may move, or one that has no place (executor None)."""

    name: str
    pool: PoolDemand
    size: int
    executor: RunningExecutor | None
    home: Option | None
    options: tuple[Option, ...]

    @property
    def needs(self) -> tuple[tuple[str, int], ...]:
        """What it takes of its node besides cells."""
        wanted = {name: amount for name, amount in self.pool.requests.items() if amount > 0}
        count = device_count(self.pool)
        if count and self.pool.chiplet.resource is not None:
            wanted[self.pool.chiplet.resource] = count
        return tuple(sorted(wanted.items()))


@dataclass(slots=True, eq=False)
class Problem:
    """Everything the solver decides over."""

    items: list[Item] = field(default_factory=list)
    movable: list[Item] = field(default_factory=list)
    compute_used: dict[Gpu, int] = field(default_factory=dict)
    room: dict[tuple[str, str], int] = field(default_factory=dict)


def build_problem(index: PlacementIndex, plan: Plan, *, max_nodes: int, max_unplaced: int) -> Problem:
    """The problem around what has no place, on the nodes that have most left."""
    wanted = [
        index.pools[one.pool]
        for one in plan.unplaced
        for _ in range(one.count)
        if index.pools[one.pool].chiplet.shape is not ChipletShape.CPU
    ][:max_unplaced]
    nodes = _nodes(index, wanted, max_nodes)
    kinds = gpu_kinds(index)
    problem = Problem()
    owned: set[Cell] = set()
    for node in nodes:
        for place, state in enumerate(node.devices.states):
            kind = node.kind.gpus[place]
            if kind.mode is GpuMode.DYNAMIC:
                problem.compute_used[(node.node.name, place)] = state >> COMPUTE_SHIFT & COMPUTE_SLICES
        for resource, amount in node.free.items():
            problem.room[(node.node.name, resource)] = amount
        for executor in sorted(index.of_node.get(node.node.name, {}).values(), key=lambda one: one.name):
            item = _movable(index, node, executor, nodes, kinds)
            if item is not None and item.home is not None:
                problem.movable.append(item)
                owned.update(item.home.cells)
    for number, pool in enumerate(wanted):
        options = tuple(o for node in nodes for o in _options(index, node, pool, frozenset(owned)))
        if options:
            problem.items.append(
                Item(f"{pool.key}#{number}", pool, size_of(pool, kinds), None, None, options)
            )
    return problem


def gpu_kinds(index: PlacementIndex) -> tuple[GpuKind, ...]:
    """Every kind of GPU there is, once."""
    nodes = {id(node.kind): node.kind for node in index.fleet}
    return tuple({id(kind): kind for node in nodes.values() for kind in node.gpus}.values())


def size_of(pool: PoolDemand, kinds: Iterable[GpuKind]) -> int:
    """Size of an executor of a pool, in memory slices: what it is on the kind where it takes least.

    The name of an instance does not tell: 1g.10gb has one slice of an A100 of 80 GB and two of one of 40 GB.
    """
    sizes = (size_in_slices(kind, pool.chiplet) for kind in kinds)
    return min((size for size in sizes if size > 0), default=1)


def _nodes(index: PlacementIndex, wanted: list[PoolDemand], most: int) -> list[FleetNode]:
    """Nodes that could hold what is wanted if they were idle, the emptiest first."""
    found = []
    for node in index.fleet:
        if node.group is None or not node.gpus:
            continue
        idle = [0] * len(node.kind.gpus)
        could = any(
            admits(pool, index.fleet.label_keys)(node.facts)
            and index.fitting.choose(node.kind, idle, pool.chiplet) is not None
            for pool in {pool.key: pool for pool in wanted}.values()
        )
        if could:
            free = sum(state == 0 for state in node.devices.states)
            partly = sum(state not in (0, FULL) for state in node.devices.states)
            found.append((-(2 * free + partly), node.number, node))
    return [node for _, _, node in sorted(found, key=lambda item: item[:2])[:most]]


def _movable(
    index: PlacementIndex,
    node: FleetNode,
    executor: RunningExecutor,
    nodes: list[FleetNode],
    kinds: tuple[GpuKind, ...],
) -> Item | None:
    pool = index.pools.get(executor.pool)
    if pool is None or executor.terminating or executor.phase is not ExecutorPhase.READY:
        return None
    slots = [e for e in index.of_pool[executor.pool].values() if e.slot == executor.slot]
    if executor.revision != pool.revision or len(slots) > 1 or pool.chiplet.shape is ChipletShape.CPU:
        return None
    home = _home(node, pool, executor)
    if home is None:
        return None
    # A move never makes a pool's spread over nodes worse.
    crowd = _crowd(index, executor.pool) if FaultDomain.NODE in pool.spread else {}
    options = tuple(
        option
        for other in nodes
        if other.node.name == node.node.name
        or crowd.get(other.node.name, 0) < max(1, crowd.get(node.node.name, 0))
        for option in _options(index, other, pool, frozenset())
    )
    return Item(executor.name, pool, size_of(pool, kinds), executor, home, options)


def _crowd(index: PlacementIndex, pool: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for executor in index.of_pool[pool].values():
        counts[executor.node] = counts.get(executor.node, 0) + 1
    return counts


def _home(node: FleetNode, pool: PoolDemand, executor: RunningExecutor) -> Option | None:
    """What a running executor holds, as an option."""
    gpus = node.gpus
    where: list[int] = []
    for device in executor.held_devices:
        uuid, _, piece = device.partition(":")
        for place, gpu in enumerate(gpus):
            if gpu.uuid == uuid and not piece:
                where.append(place)
            elif gpu.uuid == uuid:
                return _laid(node, pool, place, int(piece.rpartition(":")[2]))
            else:
                for number, instance in enumerate(gpu.instances):
                    if instance.uuid == device:
                        dynamic = node.kind.gpus[place].mode is GpuMode.DYNAMIC
                        return _laid(node, pool, place, instance.start if dynamic else number)
    return _whole(node, tuple(where)) if where and len(where) == pool.chiplet.count else None


def _options(
    index: PlacementIndex, node: FleetNode, pool: PoolDemand, besides: frozenset[Cell]
) -> Iterator[Option]:
    """Spots on a node whose cells are free now, or are among `besides`."""
    if node.group is None or not admits(pool, index.fleet.label_keys)(node.facts):
        return
    demand = pool.chiplet
    fits = [index.fitting.misfit(kind, demand) is None for kind in node.kind.gpus]
    if demand.shape is ChipletShape.MIG:
        for place, kind in enumerate(node.kind.gpus):
            profile = instance_profile(kind, demand)
            if not fits[place] or profile is None:
                continue
            spots = (
                [n for n, piece in enumerate(kind.pieces) if piece.profile.name == demand.profile]
                if kind.mode is GpuMode.INSTANCES
                else list(profile.starts)
            )
            for spot in spots:
                option = _laid(node, pool, place, spot)
                if option is not None and _free(node, option, besides):
                    yield option
        return
    usable = [
        place
        for place in range(len(node.kind.gpus))
        if fits[place] and _free(node, _whole(node, (place,)), besides)
    ]
    linked = demand.count > 1 and demand.interconnect is Interconnect.NVLINK_REQUIRED
    groups = (group for group in combinations(usable, demand.count) if not linked or node.kind.linked(group))
    for group in islice(groups, MAX_GROUPS):
        yield _whole(node, group)


def _laid(node: FleetNode, pool: PoolDemand, place: int, spot: int) -> Option | None:
    kind = node.kind.gpus[place]
    name = node.node.name
    if kind.mode is GpuMode.INSTANCES:
        return Option(name, ((name, place, spot),), (), (place,), spot)
    profile = instance_profile(kind, pool.chiplet)
    if profile is None:
        return None
    cells = tuple((name, place, spot + step) for step in range(profile.memory_slices))
    return Option(name, cells, (((name, place), profile.compute_slices),), (place,), spot)


def _whole(node: FleetNode, places: tuple[int, ...]) -> Option:
    name = node.node.name
    cells: list[Cell] = []
    compute: list[tuple[Gpu, int]] = []
    for place in places:
        if node.kind.gpus[place].mode is GpuMode.DYNAMIC:
            cells += [(name, place, number) for number in range(MEMORY_SLICES)]
            compute.append(((name, place), COMPUTE_SLICES))
        else:
            cells.append((name, place, 0))
    return Option(name, tuple(cells), tuple(compute), places, -1)


def _free(node: FleetNode, option: Option, besides: frozenset[Cell]) -> bool:
    """Whether every cell is free now or among `besides`."""
    return all(cell in besides or not _bit(node.devices.states[cell[1]], node, cell) for cell in option.cells)


def _bit(state: int, node: FleetNode, cell: Cell) -> bool:
    if node.kind.gpus[cell[1]].mode is GpuMode.WHOLE:
        return state != 0
    return bool(state >> cell[2] & 1)


def move_of(index: PlacementIndex, item: Item, option: Option) -> Assignment:
    """A move as the assignment of the executor's successor."""
    executor, pool = item.executor, item.pool
    assert executor is not None
    node = index.fleet.get(option.node)
    assert node is not None
    gpus = node.gpus
    taken = [gpus[place] for place in option.places]
    start: int | None = None
    devices = tuple(gpu.uuid for gpu in taken)
    if pool.chiplet.shape is ChipletShape.MIG:
        if node.kind.gpus[option.places[0]].mode is GpuMode.DYNAMIC:
            start = option.place
            devices = (made_instance(taken[0].uuid, pool.chiplet.profile or "", start),)
        else:
            start = taken[0].instances[option.place].start
            devices = (taken[0].instances[option.place].uuid,)
    mig = pool.chiplet.shape is ChipletShape.MIG
    chiplet = Chiplet(
        shape=pool.chiplet.shape,
        resource=executor.resource,
        count=executor.count,
        devices=devices,
        profile=pool.chiplet.profile,
        gpu=taken[0].uuid if mig else "",
        start=start,
    )
    inner = [gpu_domain(gpu.uuid) for gpu in taken] + ([instance_domain(devices[0])] if mig else [])
    return Assignment(
        pool=pool.key,
        slot=executor.slot,
        node=option.node,
        chiplet=chiplet,
        fault_domain=(*node.base_domain, *inner),
        replaces=executor.name,
        revision=pool.revision,
    )
