"""Which chiplet shapes keep all promises of a pool: its Pareto set of cost, latency margin and spread.

Promise: pure; the operator's status and `superinfer plan` both tell what is found here. It depends on the
pool, its contracts, its profiles and the hardware, never on what is taken of it just now.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from superinfer_core.api.v1alpha1.chipletpool import ChipletShape
from superinfer_core.contract.pool_promises import PoolPromises
from superinfer_core.placement.demand import PoolDemand
from superinfer_core.placement.idle_hardware import IdleHardware
from superinfer_core.placement.shape_options import (
    ShapeKey,
    ShapeTerms,
    UnknownShape,
    shape_of,
    shape_options,
)
from superinfer_core.placement.shapes import ShapeOffer, Traffic, offers, shape_name
from superinfer_core.prediction.profile import Profile

MAX_OFFERED = 8


@dataclass(frozen=True, slots=True)
class PoolShapes:
    """What was found.

    Attributes:
        offers: the front, cheapest first; at most MAX_OFFERED.
        message: what they were worked out for, or why there are none.
    """

    offers: tuple[ShapeOffer, ...] = ()
    message: str = ""


def pool_shapes(
    pool: PoolDemand,
    promises: PoolPromises,
    profiles: Mapping[ShapeKey, Profile],
    hardware: IdleHardware,
    memory_mib: Callable[[int], int | None],
) -> PoolShapes:
    """The shapes for one pool.

    Args:
        pool: where its executors may run, and how many there are.
        promises: of its contracts.
        profiles: measured ones by shape.
        hardware: the nodes there are.
        memory_mib: what a chiplet of so many GPUs must have; None is not checked.
    """
    if pool.chiplet.shape is ChipletShape.CPU:
        return PoolShapes(message="chiplets of shape CPU hold no device to choose among")
    if not promises.contracts:
        return PoolShapes(message="no contract is in effect on this pool, so every shape would do")
    if not profiles:
        return PoolShapes(message="without spec.profileRef the speed of no shape is known")
    terms = ShapeTerms(
        lambda chiplet: hardware.nodes_for(pool, chiplet),
        memory_mib,
        pool.chiplet.isolation,
        pool.chiplet.named,
    )
    try:
        options = shape_options(hardware.products(pool), profiles, terms)
    except UnknownShape as unknown:
        return PoolShapes(message=str(unknown))
    traffic = _traffic(pool, promises)
    made = offers(promises.objectives, traffic, options, no_room="no node has it")
    front = tuple(_bounded(one) for one in made if one.on_front)
    return PoolShapes(front[:MAX_OFFERED], f"{_asked(promises, traffic)}; {_own(pool, made, front)}")


def _bounded(one: ShapeOffer) -> ShapeOffer:
    """With no more domains than executors: a node that comes or goes then seldom changes what is told."""
    return replace(one, option=replace(one.option, domains=min(one.option.domains, one.executors)))


def _traffic(pool: PoolDemand, promises: PoolPromises) -> Traffic:
    executors = max(1, pool.replicas)
    sequences = ceil(promises.at_once / executors) if promises.at_once is not None else 1
    return Traffic(
        requests_per_second=promises.requests_per_second,
        executors=executors,
        sequences=max(1, sequences),
    )


def _asked(promises: PoolPromises, traffic: Traffic) -> str:
    if traffic.requests_per_second is not None:
        load = f"{traffic.requests_per_second:g} requests a second"
    elif promises.at_once is not None:
        load = f"{traffic.sequences} requests at once on each executor"
    else:
        load = "one request at a time, because not every contract has a quota"
    plural = "contract" if promises.contracts == 1 else "contracts"
    return (
        f"for {promises.contracts} {plural}, prompts of {traffic.prompt_tokens} and answers of "
        f"{traffic.output_tokens} tokens, {load}"
    )


def _own(pool: PoolDemand, made: Sequence[ShapeOffer], front: Sequence[ShapeOffer]) -> str:
    """How the shape the pool has comes off."""
    key = shape_of(pool.chiplet)
    name = shape_name(*key)
    if any(shape_of(one.option.chiplet) == key for one in front[:MAX_OFFERED]):
        return f"the pool's own {name} is among them"
    own = [one for one in made if shape_of(one.option.chiplet) == key]
    if not own:
        return f"the pool's own {name} is too small, or of a GPU that no node has"
    best = min(own, key=lambda one: (not one.feasible, -one.margin))
    if best.feasible:
        return f"the pool's own {name} would do, but another is better all in all"
    return f"the pool's own {name} would not do: {best.reason}"
