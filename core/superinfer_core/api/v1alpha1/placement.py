"""Where the executors of a pool may run."""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from superinfer_core.api.v1alpha1.meta import ApiModel, ShortText
from superinfer_core.api.v1alpha1.schema_marks import (
    ATOMIC,
    IMMUTABLE,
    SET,
    broken_rule,
    each_once,
    rules,
    validations,
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

    model_config = rules(
        (
            "has(self.key) || (has(self.operator) && self.operator == 'Exists')",
            "without a key the operator must be Exists; add key, or operator: Exists",
        ),
        (
            "!has(self.value) || !has(self.operator) || self.operator == 'Equal'",
            "a value is only for operator Equal; remove it, or write operator: Equal",
        ),
        (
            "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
            "tolerationSeconds is only for effect NoExecute; add effect: NoExecute",
        ),
    )

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
            raise broken_rule("without a key the operator must be Exists", "add key, or operator: Exists")
        if self.value is not None and self.operator == "Exists":
            raise broken_rule("a value is only for operator Equal", "remove value, or write operator: Equal")
        if self.toleration_seconds is not None and self.effect != "NoExecute":
            raise broken_rule("tolerationSeconds is only for effect NoExecute", "add effect: NoExecute")
        return self


class PlacementSpec(ApiModel):
    """Where executors may run."""

    allocation: Allocation = Field(
        default=Allocation.DEVICE_PLUGIN,
        description="DevicePlugin: the kubelet picks the device. DRA: a ResourceClaim names it.",
        # On the field itself: it has a default, so it is always there to be compared.
        json_schema_extra=validations(("self == oldSelf", f"placement.allocation {IMMUTABLE}")),
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
