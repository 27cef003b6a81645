"""A world that does what plans say, and looks at what came of it."""

from dataclasses import dataclass, field, replace

from superinfer_core.api.v1alpha1.chipletpool import Allocation, ChipletShape, Interconnect
from superinfer_core.placement import plan
from superinfer_core.placement.demand import PoolDemand
from superinfer_core.placement.geometry import can_lie_together, product_named
from superinfer_core.placement.node import Node
from superinfer_core.placement.outcome import Assignment, Plan
from superinfer_core.placement.snapshot import (
    ExecutorPhase,
    ForeignUse,
    PlannerMemory,
    PlannerSettings,
    RunningExecutor,
    Snapshot,
)


@dataclass
class World:
    """Nodes and pools with the executors that plans have made."""

    nodes: tuple[Node, ...]
    pools: tuple[PoolDemand, ...]
    executors: dict[str, RunningExecutor] = field(default_factory=dict)
    memory: PlannerMemory = field(default_factory=PlannerMemory)
    settings: PlannerSettings = field(default_factory=PlannerSettings)
    foreign: tuple[ForeignUse, ...] = ()
    incarnations: dict[tuple[str, int], int] = field(default_factory=dict)
    starts_ready: bool = True

    def snapshot(self) -> Snapshot:
        return Snapshot(
            self.nodes,
            self.pools,
            tuple(self.executors.values()),
            self.foreign,
            self.memory,
            self.settings,
        )

    def step(self, now: float = 0.0) -> Plan:
        """Plan and do it."""
        made = plan(self.snapshot(), now)
        self.do(made)
        return made

    def do(self, made: Plan) -> None:
        self.memory = made.memory
        for ended in (*made.drain, *made.delete):
            del self.executors[ended.name]
        for assignment in made.create:
            self._create(assignment)

    def _create(self, assignment: Assignment) -> None:
        key = (assignment.pool, assignment.slot)
        self.incarnations[key] = number = self.incarnations.get(key, 0) + 1
        pool = next(p for p in self.pools if p.key == assignment.pool)
        name = f"{assignment.pool.partition('/')[2]}-{assignment.slot}-{number}"
        assert name not in self.executors
        self.executors[name] = RunningExecutor(
            name,
            assignment.pool,
            assignment.slot,
            number,
            assignment.node,
            assignment.revision,
            ExecutorPhase.READY if self.starts_ready else ExecutorPhase.PENDING,
            planned_devices=assignment.chiplet.devices,
            devices=assignment.chiplet.devices or None,
            recreations=assignment.recreations,
            resource=assignment.chiplet.resource,
            count=assignment.chiplet.count,
            requests=pool.requests,
        )

    def change(self, name: str, **fields: object) -> None:
        self.executors[name] = replace(self.executors[name], **fields)  # type: ignore[arg-type]

    def replace_node(self, node: Node) -> None:
        self.nodes = tuple(node if old.name == node.name else old for old in self.nodes)

    def replace_pool(self, pool: PoolDemand) -> None:
        self.pools = tuple(pool if old.key == pool.key else old for old in self.pools)

    def on(self, pool: str) -> list[str]:
        """Nodes of a pool's executors, sorted."""
        return sorted(e.node for e in self.executors.values() if e.pool == f"ns/{pool}")


def check_valid(world: World) -> None:
    """No device twice, no instance that cannot exist, nothing where it must not be, counts kept."""
    nodes = {node.name: node for node in world.nodes}
    pools = {pool.key: pool for pool in world.pools}
    taken: set[str] = set()
    cut: dict[str, list[tuple[str, int]]] = {}
    used: dict[tuple[str, str], int] = {}
    for executor in world.executors.values():
        node, pool = nodes[executor.node], pools[executor.pool]
        for device in executor.held_devices:
            assert device not in taken, f"{device} given twice"
            taken.add(device)
            uuid, _, piece = device.partition(":")
            if piece:
                profile, _, start = piece.rpartition(":")
                cut.setdefault(uuid, []).append((profile, int(start)))
        if executor.resource is not None:
            key = (executor.node, executor.resource)
            used[key] = used.get(key, 0) + executor.count
        for resource, amount in executor.requests.items():
            used[(executor.node, resource)] = used.get((executor.node, resource), 0) + amount
        _check_chiplet(executor, pool, node)
    for (name, resource), amount in used.items():
        assert amount <= nodes[name].allocatable.get(resource, 0), f"{name} has too little {resource}"
    for uuid, pieces in cut.items():
        assert uuid not in taken, f"{uuid} is used whole and cut"
        gpu = next(g for n in world.nodes if n.topology for g in n.topology.gpus if g.uuid == uuid)
        by_name = {profile.name: profile for profile in gpu.profiles}
        assert can_lie_together([(by_name[name], start) for name, start in pieces]), pieces


def _check_chiplet(executor: RunningExecutor, pool: PoolDemand, node: Node) -> None:
    demand = pool.chiplet
    assert all(node.labels.get(key) == value for key, value in pool.node_selector.items())
    if demand.shape is ChipletShape.CPU:
        assert not executor.held_devices
        return
    assert (executor.resource is not None) == (pool.allocation is Allocation.DEVICE_PLUGIN)
    if node.topology is None:
        assert demand.count == 1 or demand.interconnect is not Interconnect.NVLINK_REQUIRED
        return
    gpus = {gpu.uuid: gpu for gpu in node.topology.gpus}
    instances = {one.uuid: one for gpu in node.topology.gpus for one in gpu.instances}
    assert len(executor.held_devices) == demand.count
    if demand.shape is ChipletShape.MIG:
        (device,) = executor.held_devices
        uuid, _, piece = device.partition(":")
        if piece:
            assert piece.startswith(f"{demand.profile}:")
            assert node.topology.dynamic_mig
            assert product_named(gpus[uuid].product) is not None
        else:
            assert instances[device].profile == demand.profile
        return
    held = [gpus[device] for device in executor.held_devices]
    assert all(demand.product in (None, gpu.product) for gpu in held)
    assert sum(gpu.memory_mib for gpu in held) >= (demand.memory_mib or 0)
    assert node.topology.dynamic_mig or not any(gpu.mig_enabled for gpu in held)
    if demand.count > 1 and demand.interconnect is Interconnect.NVLINK_REQUIRED:
        linked = {frozenset((link.a, link.b)) for link in node.topology.links}
        for a in held:
            for b in held:
                assert a is b or (a.nvswitch and b.nvswitch) or frozenset((a.index, b.index)) in linked
