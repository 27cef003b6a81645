"""What a pool may change about the pods of its executors."""

from typing import Annotated, Any, Final, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from superinfer_core.api.v1alpha1.meta import GROUP, ApiModel, MapValue, ShortText
from superinfer_core.api.v1alpha1.schema_marks import OPAQUE, Rule, broken_rule, rules

_OWN_LABELS_STAY: Final = Rule(
    f"!has(self.labels) || self.labels.all(name, !name.startsWith('{GROUP}/'))",
    f"labels of {GROUP} are SuperInfer's own",
    "use another prefix",
)

MOST_LEVELS: Final = 64
"""A PodSpec has about ten; what is nested without end could be neither merged nor compared."""


class PodTemplateMetadata(ApiModel):
    """Labels and annotations of the executor pods."""

    model_config = rules(_OWN_LABELS_STAY)

    labels: dict[ShortText, Annotated[str, StringConstraints(strict=True, max_length=63)]] | None = Field(
        default=None,
        max_length=64,
        description="Further labels; those of SuperInfer itself stay as they are.",
    )
    annotations: dict[ShortText, MapValue] | None = Field(
        default=None, max_length=64, description="Further annotations."
    )

    @model_validator(mode="after")
    def _own_labels_only(self) -> Self:
        if any(name.startswith(f"{GROUP}/") for name in self.labels or {}):
            raise _OWN_LABELS_STAY.broken()
        return self


class PodTemplateSpec(ApiModel):
    """What is merged over the generated pod: lists of named things merge by name, the rest replaces."""

    metadata: PodTemplateMetadata | None = Field(
        default=None, description="Labels and annotations of the pods."
    )
    spec: dict[str, Any] | None = Field(
        default=None,
        max_length=64,
        description="A PodSpec with only what should be different.",
        json_schema_extra=OPAQUE,
    )

    @field_validator("spec", mode="before")
    @classmethod
    def _not_too_deep(cls, spec: Any) -> Any:
        level = [spec]
        for _ in range(MOST_LEVELS):
            level = [part for whole in level for part in _parts(whole)]
            if not level:
                return spec
        raise broken_rule(f"is nested deeper than {MOST_LEVELS} levels", "write a PodSpec")


def _parts(whole: Any) -> list[Any]:
    held = whole.values() if isinstance(whole, dict) else whole if isinstance(whole, list) else ()
    return [part for part in held if isinstance(part, dict | list)]
