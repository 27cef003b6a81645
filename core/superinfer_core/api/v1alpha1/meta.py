"""What every kind of superinfer.dev/v1alpha1 shares: base model, metadata, references, conditions.

The models are read leniently (the API server has pruned unknown fields already, and newer servers may send
more) and written by their camelCase names. Documents from people are checked for unknown fields first, in
`superinfer_core.contract.parse`. They hold only what a CRD can say: no tuples, no unions, no floats.
"""

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from superinfer_core.api.v1alpha1.schema_marks import TIMESTAMP

GROUP: Final = "superinfer.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

DNS_LABEL: Final = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
DNS_SUBDOMAIN: Final = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"

DnsLabel = Annotated[str, StringConstraints(strict=True, pattern=DNS_LABEL, min_length=1, max_length=63)]
DnsName = Annotated[str, StringConstraints(strict=True, pattern=DNS_SUBDOMAIN, min_length=1, max_length=253)]
ShortText = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=253)]
LongText = Annotated[str, StringConstraints(strict=True, max_length=4096)]
Generation = Annotated[int, Field(ge=0, le=9_007_199_254_740_991)]
MapValue = Annotated[str, StringConstraints(strict=True, max_length=262_144)]


class ApiModel(BaseModel):
    """Frozen, camelCase outside, snake_case inside."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        serialize_by_alias=True,
        extra="ignore",
        frozen=True,
    )


class ObjectMeta(ApiModel):
    """The parts of Kubernetes metadata SuperInfer reads or keeps."""

    name: DnsName | None = Field(default=None, description="Name of the object, unique in its namespace.")
    namespace: DnsLabel | None = Field(default=None, description="Namespace of the object.")
    labels: dict[ShortText, MapValue] | None = Field(default=None, max_length=64)
    annotations: dict[ShortText, MapValue] | None = Field(default=None, max_length=64)
    uid: ShortText | None = None
    generation: int | None = None
    resource_version: ShortText | None = None
    creation_timestamp: ShortText | None = None
    deletion_timestamp: ShortText | None = None


_WHOLE: Final = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})
"""A reference has one owner: half of one writer's and half of another's would name a third object."""


class LocalRef(ApiModel):
    """An object of the same namespace, by name."""

    model_config = _WHOLE

    name: DnsName = Field(description="Name of the object, in the same namespace.")


class NamespacedRef(ApiModel):
    """An object by name, in the same namespace unless another is named."""

    model_config = _WHOLE

    name: DnsName = Field(description="Name of the object.")
    namespace: DnsLabel | None = Field(
        default=None, description="Namespace of the object; the referring object's own where unset."
    )


class ConditionStatus(ApiModel):
    """One condition of an object's status, as in every Kubernetes API."""

    type: ShortText = Field(description="What the condition is about, e.g. Ready.")
    status: Annotated[str, StringConstraints(pattern=r"^(True|False|Unknown)$", max_length=7)] = Field(
        description="True, False or Unknown."
    )
    reason: Annotated[
        str, StringConstraints(pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$", max_length=1024)
    ] = Field(description="Why, in one CamelCase word from a closed list.")
    message: Annotated[str, StringConstraints(max_length=32_768)] = Field(
        description="Why, in words for a person."
    )
    observed_generation: Generation | None = Field(
        default=None, description="metadata.generation this condition was computed from."
    )
    last_transition_time: ShortText | None = Field(
        default=None,
        description="When status last changed (RFC 3339).",
        json_schema_extra=TIMESTAMP,
    )
