"""What has failed, how far the failure reaches, and for how long what recovered is still avoided.

Promise: pure. A failure reaches as far as its recovery does: an instance alone, a GPU with all of its
instances (reset), the GPUs of an NVLink clique, or the whole node (reboot). What failed gets nothing new
until it has been well for the hold-down, which doubles with every failure that follows soon; that damps
flapping. Names of domains are those of `Assignment.fault_domain`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf

from superinfer_core.doubling import doubled
from superinfer_core.placement.node import Gpu, HealthState, Node, RecoveryAction, Taint, TaintEffect
from superinfer_core.placement.outcome import Constraint
from superinfer_core.placement.snapshot import HoldDown, PlannerSettings

_NODE_ACTIONS = (RecoveryAction.NODE_REBOOT, RecoveryAction.SYSTEM_REBOOT)
_CLIQUE_ACTIONS = (RecoveryAction.RECOVER_IMEX_DOMAIN,)

_STANDING_TAINTS = (
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/unschedulable",
)
"""Taints Kubernetes sets for what `ready` and `schedulable` already say, with more patience than ours."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Why a node gets nothing new."""

    constraint: Constraint
    message: str


def node_domain(name: str) -> str:
    """Fault domain of a node."""
    return f"node/{name}"


def gpu_domain(uuid: str) -> str:
    """Fault domain of a GPU."""
    return f"gpu/{uuid}"


def instance_domain(uuid: str) -> str:
    """Fault domain of a GPU instance."""
    return f"instance/{uuid}"


def lost(node: Node, settings: PlannerSettings, now: float) -> bool:
    """Whether a node has been away for longer than its executors wait."""
    if node.ready:
        return False
    return node.not_ready_since is None or now - node.not_ready_since >= settings.node_grace_s


def failing(node: Node, settings: PlannerSettings, now: float) -> Iterator[tuple[str, str]]:
    """Fault domains of a node that have failed, with the reason."""
    if lost(node, settings, now):
        yield node_domain(node.name), "the node is not ready"
    if node.topology is None:
        return
    for gpu in node.topology.gpus:
        if gpu.health.state is HealthState.UNHEALTHY:
            yield from _reach(gpu, node)
        for instance in gpu.instances:
            if instance.health.state is HealthState.UNHEALTHY:
                yield instance_domain(instance.uuid), instance.health.reason or "unhealthy"


def _reach(gpu: Gpu, node: Node) -> Iterator[tuple[str, str]]:
    reason = gpu.health.reason or "unhealthy"
    action = gpu.health.recovery_action
    yield gpu_domain(gpu.uuid), reason
    if action in _NODE_ACTIONS:
        yield node_domain(node.name), f"{reason} of GPU {gpu.index}: the node has to be rebooted"
    if action in _CLIQUE_ACTIONS and node.topology is not None:
        for other in node.topology.gpus:
            if other.uuid != gpu.uuid and other.clique == gpu.clique:
                yield gpu_domain(other.uuid), f"{reason} of GPU {gpu.index} in the same NVLink clique"


def next_holds(
    holds: Mapping[str, HoldDown],
    failed: Iterable[str],
    settings: PlannerSettings,
    now: float,
) -> dict[str, HoldDown]:
    """Hold-downs after what was seen now.

    Args:
        holds: as they were.
        failed: all domains that have failed now.
        settings: durations.
        now: the moment.
    """
    failing_now = set(failed)
    after: dict[str, HoldDown] = {}
    for domain, hold in holds.items():
        if domain in failing_now:
            continue
        if hold.until == inf:
            length = doubled(settings.hold_down_s, hold.strikes, settings.hold_down_max_s)
            after[domain] = HoldDown(hold.failed_at, hold.strikes, now + length)
        elif now < hold.until + settings.flap_window_s:
            after[domain] = hold
    for domain in failing_now:
        before = holds.get(domain)
        if before is None:
            after[domain] = HoldDown(now, 1, inf)
        elif before.until == inf:
            after[domain] = before
        else:
            recent = now < before.until + settings.flap_window_s
            after[domain] = HoldDown(now, before.strikes + 1 if recent else 1, inf)
    return after


def held(holds: Mapping[str, HoldDown], domain: str, now: float) -> bool:
    """Whether a domain gets nothing new because it has failed or did so lately."""
    hold = holds.get(domain)
    return hold is not None and now < hold.until


def standing(node: Node, holds: Mapping[str, HoldDown], now: float) -> Standing | None:
    """Why a node gets nothing new, whoever asks; None if it may."""
    if not node.ready:
        return Standing(Constraint.NODE_NOT_READY, "not ready")
    if not node.schedulable:
        return Standing(Constraint.NODE_CORDONED, "cordoned")
    if held(holds, node_domain(node.name), now):
        until = holds[node_domain(node.name)].until
        if until == inf:
            return Standing(Constraint.DEVICE_UNHEALTHY, "waiting for a reboot")
        return Standing(Constraint.NODE_HELD_DOWN, "held down after a failure")
    return None


def repelling(taints: tuple[Taint, ...]) -> tuple[Taint, ...]:
    """Taints that keep new executors away unless tolerated."""
    return tuple(
        taint
        for taint in taints
        if taint.effect is not TaintEffect.PREFER_NO_SCHEDULE and taint.key not in _STANDING_TAINTS
    )


def evicting(taints: tuple[Taint, ...]) -> tuple[Taint, ...]:
    """Taints that end running executors unless tolerated."""
    return tuple(
        taint
        for taint in taints
        if taint.effect is TaintEffect.NO_EXECUTE and taint.key not in _STANDING_TAINTS
    )
