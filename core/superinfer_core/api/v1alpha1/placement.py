"""Where the executors of a pool may run."""

from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from superinfer_core.api.v1alpha1.meta import ApiModel, ShortText
from superinfer_core.api.v1alpha1.schema_marks import (
    ATOMIC,
    SET,
    Rule,
    each_once,
    immutable,
    rules,
    validations,
)

_NO_KEY_MEANS_EXISTS: Final = Rule(
    "has(self.key) || (has(self.operator) && self.operator == 'Exists')",
    "without a key the operator must be Exists",
    "add key, or operator: Exists",
)
_VALUE_ONLY_WITH_EQUAL: Final = Rule(
    "!has(self.value) || !has(self.operator) || self.operator == 'Equal'",
    "a value is only for operator Equal",
    "remove value, or write operator: Equal",
)
_SECONDS_ONLY_FOR_NO_EXECUTE: Final = Rule(
    "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
    "tolerationSeconds is only for effect NoExecute",
    "add effect: NoExecute",
)


class Allocation(StrEnum):
    """Who picks the device."""

    DEVICE_PLUGIN = "DevicePlugin"
    DRA = "DRA"


class FaultDomain(StrEnum):
    """What replicas are spread over."""

    GPU = "GPU"
    CLIQUE = "Clique"
    NODE = "Node"
    RACK = "Rack"
    ZONE = "Zone"


class TolerationSpec(ApiModel):
    """A taint executors tolerate, as in a pod."""

    model_config = rules(_NO_KEY_MEANS_EXISTS, _VALUE_ONLY_WITH_EQUAL, _SECONDS_ONLY_FOR_NO_EXECUTE)

    key: ShortText | None = Field(default=None, description="Taint key; all keys where unset.")
    operator: Annotated[str, StringConstraints(pattern=r"^(Exists|Equal)$", max_length=6)] | None = Field(
        default=None, description="Exists or Equal; Equal where unset."
    )
    value: Annotated[str, StringConstraints(strict=True, max_length=63)] | None = Field(
        default=None, description="Taint value, with Equal."
    )
    effect: (
        Annotated[str, StringConstraints(pattern=r"^(NoSchedule|PreferNoSchedule|NoExecute)$", max_length=16)]
        | None
    ) = Field(default=None, description="Taint effect; all effects where unset.")
    toleration_seconds: Annotated[int, Field(strict=True, ge=0, le=86_400)] | None = Field(
        default=None, description="How long a NoExecute taint is tolerated."
    )

    @model_validator(mode="after")
    def _as_a_pod_takes_it(self) -> Self:
        if self.key is None and self.operator != "Exists":
            raise _NO_KEY_MEANS_EXISTS.broken()
        if self.value is not None and self.operator == "Exists":
            raise _VALUE_ONLY_WITH_EQUAL.broken()
        if self.toleration_seconds is not None and self.effect != "NoExecute":
            raise _SECONDS_ONLY_FOR_NO_EXECUTE.broken()
        return self


class PlacementSpec(ApiModel):
    """Where executors may run."""

    allocation: Allocation = Field(
        default=Allocation.DEVICE_PLUGIN,
        description="DevicePlugin: the kubelet picks the device. DRA: a ResourceClaim names it.",
        # On the field itself: it has a default, so it is always there to be compared.
        json_schema_extra=validations(immutable("self == oldSelf", "placement.allocation")),
    )
    spread: Annotated[list[FaultDomain], AfterValidator(each_once)] | None = Field(
        default=None,
        max_length=5,
        description="Fault domains replicas are spread over, most important first.",
        json_schema_extra=SET,
    )
    node_selector: dict[ShortText, Annotated[str, StringConstraints(strict=True, max_length=63)]] | None = (
        Field(default=None, max_length=64, description="Labels a node must have.")
    )
    tolerations: list[TolerationSpec] | None = Field(
        default=None, max_length=32, description="Taints executors tolerate.", json_schema_extra=ATOMIC
    )
