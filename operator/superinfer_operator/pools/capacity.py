"""What a pool's status says of hardware: the memory a chiplet must have, the shapes that would do. Pure."""

from typing import Final

from superinfer_core.api.v1alpha1.chipletpool import ChipletShape
from superinfer_core.api.v1alpha1.pool_status import (
    MAX_SHAPES,
    MemoryCheck,
    MemoryStatus,
    ShapeSpeed,
    ShapeStatus,
)
from superinfer_core.placement.shapes import ShapeOffer
from superinfer_operator.placing.setup import PoolSetup

_MAX_MESSAGE: Final = 1024
NOT_STATED: Final = (
    "spec.model.memory is not set: whether the model fits its chiplet is not checked; "
    "`superinfer memory MODEL_DIR` prints what to write"
)
NO_GPUS: Final = "chiplets of shape CPU have no GPU memory; what the pod asks of its node is checked"


def memory_status(setup: PoolSetup) -> MemoryStatus | None:
    """Whether memory is checked, and against what; None of a pool that is not accepted."""
    if setup.demand is None:
        return None
    if setup.need is not None:
        return MemoryStatus(
            check=MemoryCheck.ENFORCED, needed_mib=setup.need.chiplet_mib, message=setup.need.describe()
        )
    if setup.demand.chiplet.shape is ChipletShape.CPU:
        return MemoryStatus(check=MemoryCheck.NOT_APPLICABLE, message=NO_GPUS)
    return MemoryStatus(check=MemoryCheck.NOT_STATED, message=NOT_STATED)


def shape_statuses(setup: PoolSetup) -> list[ShapeStatus]:
    """The shapes that keep all of its contracts, cheapest first."""
    offered = setup.shapes.offers if setup.shapes is not None else ()
    return [_shape(one) for one in offered[:MAX_SHAPES]]


def shapes_message(setup: PoolSetup) -> str | None:
    """What they are for, or why there are none; None where nobody looked."""
    return setup.shapes.message[:_MAX_MESSAGE] if setup.shapes is not None else None


def _shape(one: ShapeOffer) -> ShapeStatus:
    return ShapeStatus(
        shape=one.option.name,
        speed=ShapeSpeed.MEASURED if one.option.measured else ShapeSpeed.ESTIMATED,
        executors=one.executors,
        gpus_per_executor=f"{one.option.gpus:.3f}".rstrip("0").rstrip("."),
        latency_margin_percent=max(0, min(100, int(one.margin * 100))),
        tightest=one.tightest.value if one.tightest is not None else None,
        nodes=min(one.executors, one.option.domains),
        lost_with_a_node_percent=min(100, round(one.loss_share * 100)),
    )
