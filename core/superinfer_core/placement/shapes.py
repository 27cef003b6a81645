"""Which chiplet shape fits a contract: the trade-offs between cost, latency margin and spread.

Promise: pure. An offer is on the front (Pareto set) when no other feasible offer is at least as good in all
three and better in one. A shape nobody has profiled is estimated from one that was: decode goes with memory
bandwidth, prefill with multiprocessors; such offers say that they are estimates. Times are at the quantile
promises use, on an executor that serves as many sequences at once as its ITL target allows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from superinfer_core.api.v1alpha1.chipletpool import ChipletShape
from superinfer_core.placement.demand import ChipletDemand
from superinfer_core.placement.geometry import COMPUTE_SLICES, MEMORY_SLICES, GpuProduct, MigProfile
from superinfer_core.prediction.step_model import StepModel
from superinfer_core.slo import Metric, Objective

TARGET_UTILISATION = 0.7
"""Executors are counted so that they are busy at most this share of the time."""
LINK_EFFICIENCY = 0.9
"""What GPUs that work together keep of their speed."""
_SMS_OF_A_COMPUTE_SLICE = 16
"""Where nobody knows the multiprocessors of an instance: those of an H100's smallest one."""
WHOLE_GPU = "GPU"
"""The name of a whole GPU among MIG profiles."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a contract's requests look like.

    Attributes:
        prompt_tokens, output_tokens: of a typical request.
        requests_per_second: of all of them; executors are counted from it. None: `executors` are there.
        executors: how many there are, where no rate says how many are needed.
        sequences: requests at once on each of those.
    """

    prompt_tokens: int = 512
    output_tokens: int = 128
    requests_per_second: float | None = None
    executors: int = 1
    sequences: int = 1


@dataclass(frozen=True, slots=True)
class ShapeOption:
    """A shape with its speed.

    Attributes:
        name: for people, e.g. 3g.71gb or 2xGPU.
        chiplet: the shape.
        gpus: share of GPUs one executor takes (its cost).
        steps: time of a step.
        factor: quantile of a prediction over its mean.
        max_step_tokens, max_num_seqs: limits of the engine.
        measured: profiled, not estimated.
        domains: nodes that could hold one.
    """

    name: str
    chiplet: ChipletDemand
    gpus: float
    steps: StepModel
    factor: float
    max_step_tokens: int
    max_num_seqs: int
    measured: bool
    domains: int


@dataclass(frozen=True, slots=True)
class ShapeOffer:
    """What a shape means for a contract.

    Attributes:
        option: the shape.
        executors: how many are needed.
        gpus: cost of all of them, in GPUs.
        margin: least share of a target that is left; negative where a target is missed.
        tightest: the metric it is least for.
        loss_share: share of the executors that go with the worst node.
        feasible: all targets are met and there is room for at least one.
        reason: why not, "" where it is.
        on_front: no other feasible offer is better all in all.
    """

    option: ShapeOption
    executors: int
    gpus: float
    margin: float
    tightest: Metric | None
    loss_share: float
    feasible: bool
    reason: str = ""
    on_front: bool = False


def offers(
    objectives: Sequence[Objective],
    traffic: Traffic,
    options: Sequence[ShapeOption],
    *,
    no_room: str = "no node could hold one now",
) -> tuple[ShapeOffer, ...]:
    """Every option as an offer: those on the front first, by cost; `no_room` tells of no domain."""
    made = [_offer(objectives, traffic, option, no_room) for option in options]
    marked = [
        replace(one, on_front=one.feasible and not any(_beats(other, one) for other in made)) for one in made
    ]
    return tuple(
        sorted(
            marked,
            key=lambda one: (not one.on_front, not one.feasible, one.gpus, -one.margin, one.option.name),
        )
    )


def _beats(other: ShapeOffer, one: ShapeOffer) -> bool:
    if not other.feasible:
        return False
    theirs = (other.gpus, -other.margin, other.loss_share)
    ours = (one.gpus, -one.margin, one.loss_share)
    return theirs != ours and all(a <= b for a, b in zip(theirs, ours, strict=True))


def _offer(
    objectives: Sequence[Objective], traffic: Traffic, option: ShapeOption, no_room: str
) -> ShapeOffer:
    seqs = _sequences(objectives, traffic, option)
    times = _times(traffic, option, seqs)
    margins = [
        ((one.target_ms - times[one.metric]) / one.target_ms, one.metric)
        for one in objectives
        if one.target_ms > 0
    ]
    margin, tightest = min(margins, default=(1.0, None), key=lambda item: item[0])
    executors = _executors(traffic, option, seqs)
    spread = max(1, min(executors, option.domains))
    reason = ""
    if margin < 0 and tightest is not None:
        reason = f"{tightest.value} takes {times[tightest]:.0f} ms"
    elif option.domains == 0:
        reason = no_room
    return ShapeOffer(
        option,
        executors,
        round(option.gpus * executors, 3),
        round(margin, 4),
        tightest,
        round(ceil(executors / spread) / executors, 4),
        not reason,
        reason,
    )


def _itl_ms(traffic: Traffic, option: ShapeOption, seqs: int) -> float:
    context = traffic.prompt_tokens + traffic.output_tokens / 2
    return option.steps.step_ms(decode_seqs=seqs, decode_context_tokens=seqs * context) * option.factor


def _times(traffic: Traffic, option: ShapeOption, seqs: int) -> dict[Metric, float]:
    ttft = option.steps.prefill_ms(traffic.prompt_tokens, chunk_tokens=option.max_step_tokens) * option.factor
    # A request that arrives waits for the step under way.
    ttft += _itl_ms(traffic, option, seqs - 1) if seqs > 1 else 0.0
    itl = _itl_ms(traffic, option, seqs)
    return {Metric.TTFT: ttft, Metric.ITL: itl, Metric.E2E: ttft + itl * max(0, traffic.output_tokens - 1)}


def _sequences(objectives: Sequence[Objective], traffic: Traffic, option: ShapeOption) -> int:
    """The most sequences at once that keep every target, 1 where none does; or as many as there are."""
    if traffic.requests_per_second is None:
        return min(traffic.sequences, option.max_num_seqs)
    low, high = 1, option.max_num_seqs
    while low < high:
        middle = (low + high + 1) // 2
        times = _times(traffic, option, middle)
        if all(times[one.metric] <= one.target_ms for one in objectives):
            low = middle
        else:
            high = middle - 1
    return low


def _executors(traffic: Traffic, option: ShapeOption, seqs: int) -> int:
    if traffic.requests_per_second is None:
        return traffic.executors
    steps_ms = _itl_ms(traffic, option, seqs) * traffic.output_tokens / seqs
    request_ms = option.steps.prefill_work_ms(traffic.prompt_tokens) + steps_ms
    return max(1, ceil(traffic.requests_per_second * request_ms / 1000 / TARGET_UTILISATION))


def whole_gpu(product: GpuProduct) -> MigProfile:
    """A whole GPU in the terms of an instance."""
    return MigProfile(
        name=WHOLE_GPU,
        memory_slices=MEMORY_SLICES,
        compute_slices=COMPUTE_SLICES,
        starts=(0,),
        memory_mib=product.memory_mib,
        max_instances=1,
        multiprocessors=product.multiprocessors,
        verified=True,
    )


def estimated(
    measured: ShapeOption,
    source: MigProfile,
    target: MigProfile,
    *,
    domains: int,
    count: int = 1,
    source_count: int = 1,
) -> ShapeOption:
    """The speed of a shape nobody has profiled, from one that was on the same product.

    Args:
        measured: what was profiled.
        source: its shape on one GPU (`whole_gpu` for a whole one).
        target: the other shape, likewise.
        domains: nodes that could hold the target.
        count: GPUs of the target; each adds bandwidth and multiprocessors, less what they lose to each other.
        source_count: GPUs of the source.
    """
    together, apart = _together(count), _together(source_count)
    bandwidth = source.memory_slices * apart / (target.memory_slices * together)
    compute = _compute(source) * apart / (_compute(target) * together)
    old = measured.steps
    steps = StepModel(
        old.base_ms * bandwidth,
        old.per_decode_seq_ms * compute,
        old.per_decode_context_token_ms * bandwidth,
        old.per_prefill_token_ms * compute,
        old.per_prefill_context_token2_ms * compute,
    )
    shape = ChipletShape.GPU if target.name == WHOLE_GPU else ChipletShape.MIG
    profile = target.name if shape is ChipletShape.MIG else None
    return replace(
        measured,
        name=shape_name(target.name, count),
        chiplet=replace(measured.chiplet, shape=shape, profile=profile, count=count),
        gpus=count * target.memory_slices / MEMORY_SLICES,
        steps=steps,
        measured=False,
        domains=domains,
    )


def shape_name(name: str, count: int) -> str:
    """A shape for people: 3g.71gb, GPU or 2xGPU."""
    return name if count == 1 else f"{count}x{name}"


def _together(count: int) -> float:
    return count * (LINK_EFFICIENCY if count > 1 else 1.0)


def _compute(profile: MigProfile) -> float:
    return profile.multiprocessors or profile.compute_slices * _SMS_OF_A_COMPUTE_SLICE
