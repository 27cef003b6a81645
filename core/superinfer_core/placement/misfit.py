"""Why a kind of GPU can never serve a demand, however idle it is.

Promise: pure. The first thing a person would check is told: product, allocator, shape, isolation, links,
memory. Bandwidth is guaranteed on whole GPUs and MIG instances only, so isolation is refused where GPUs are
shared.
"""

from dataclasses import dataclass

from superinfer_core.api.v1alpha1.chipletpool import ChipletShape, Interconnect
from superinfer_core.placement.demand import ChipletDemand
from superinfer_core.placement.geometry import MigProfile
from superinfer_core.placement.hardware import GpuKind, GpuMode
from superinfer_core.placement.outcome import Constraint
from superinfer_core.slo import Isolation


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a kind of GPU can never serve a demand."""

    constraint: Constraint
    message: str


def misfit(kind: GpuKind, demand: ChipletDemand) -> Misfit | None:
    """Why no GPU of this kind could ever serve the demand; None if one could."""
    if demand.product is not None and kind.product != demand.product.replace(" ", "-"):
        return Misfit(
            Constraint.WRONG_PRODUCT,
            f"with {kind.product or 'GPUs of unknown product'}, not {demand.product}",
        )
    if demand.named and not kind.known:
        return Misfit(
            Constraint.TOPOLOGY_UNKNOWN, "without a NodeTopology that names devices for DRA to claim"
        )
    if kind.mode is GpuMode.DYNAMIC and not demand.named:
        return Misfit(Constraint.NO_SUCH_DEVICE, "with GPUs only DRA hands out")
    if demand.shape is ChipletShape.GPU:
        return _whole_misfit(kind, demand)
    return _instance_misfit(kind, demand)


def _whole_misfit(kind: GpuKind, demand: ChipletDemand) -> Misfit | None:
    if kind.mode is GpuMode.INSTANCES:
        return Misfit(Constraint.NO_SUCH_DEVICE, "with GPUs in MIG mode, so none can be had whole")
    if kind.shared and demand.isolation is not Isolation.SHARED:
        return Misfit(
            Constraint.ISOLATION_UNAVAILABLE,
            f"with GPUs time-sliced or under MPS: no isolation {demand.isolation.value}, no own bandwidth",
        )
    if demand.count > 1 and demand.interconnect is Interconnect.NVLINK_REQUIRED and not kind.known:
        return Misfit(Constraint.TOPOLOGY_UNKNOWN, "without a NodeTopology that says which GPUs have NVLink")
    return _memory_misfit(kind.memory_mib, demand)


def _instance_misfit(kind: GpuKind, demand: ChipletDemand) -> Misfit | None:
    profile = instance_profile(kind, demand)
    if profile is None:
        return _layout_misfit(kind, demand)
    if kind.shared and demand.isolation is not Isolation.SHARED:
        return Misfit(
            Constraint.ISOLATION_UNAVAILABLE, f"with shared instances: no isolation {demand.isolation.value}"
        )
    return _profile_misfit(profile, demand)


def _layout_misfit(kind: GpuKind, demand: ChipletDemand) -> Misfit:
    """Not in the layout there is; another layout is the way out only where its instance would do."""
    offered = next((profile for profile in kind.profiles if profile.name == demand.profile), None)
    if offered is None or kind.mode is GpuMode.DYNAMIC:
        return Misfit(Constraint.NO_SUCH_DEVICE, f"with GPUs that have no MIG profile {demand.profile}")
    return _profile_misfit(offered, demand) or Misfit(
        Constraint.MIG_LAYOUT, f"without {demand.profile} in the MIG layout, though the GPU could have it"
    )


def _profile_misfit(profile: MigProfile, demand: ChipletDemand) -> Misfit | None:
    if demand.isolation is Isolation.DEVICE and not profile.whole:
        return Misfit(
            Constraint.ISOLATION_UNAVAILABLE,
            f"where {profile.name} shares its GPU with others: isolation Device needs a whole GPU",
        )
    return _memory_misfit(profile.memory_mib, demand)


def _memory_misfit(memory_mib: int, demand: ChipletDemand) -> Misfit | None:
    """Memory of one GPU or instance; weights and KV cache are split over all of the chiplet evenly."""
    if demand.memory_mib is None:
        return None
    if memory_mib == 0:
        return Misfit(
            Constraint.TOPOLOGY_UNKNOWN,
            f"with unknown GPU memory, {demand.memory_mib} MiB needed (label nvidia.com/gpu.memory)",
        )
    if memory_mib * demand.count < demand.memory_mib:
        have = f"{demand.count} x {memory_mib}" if demand.count > 1 else str(memory_mib)
        return Misfit(
            Constraint.NOT_ENOUGH_MEMORY,
            f"with {have} MiB a chiplet, weights and KV cache need {demand.memory_mib} MiB",
        )
    return None


def instance_profile(kind: GpuKind, demand: ChipletDemand) -> MigProfile | None:
    """The profile a MIG demand names, as this kind of GPU offers it now; None if it does not."""
    if kind.mode is GpuMode.DYNAMIC:
        return next((profile for profile in kind.profiles if profile.name == demand.profile), None)
    return next((piece.profile for piece in kind.pieces if piece.profile.name == demand.profile), None)
