"""The offline profile of a model on an engine and a machine: what `superinfer profile` writes.

Promise: `load_json(dump_json())` is the identity; anything unusable is a ProfileInvalid that says what is
wrong. JSON of less than 50 KB. An edge type (pydantic); decisions take `Profile.steps`.
"""

from itertools import pairwise
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from superinfer_core.prediction.step_model import StepModel

MAX_PROFILE_BYTES: Final = 50_000


class ProfileInvalid(ValueError):
    """A profile that cannot be used."""


class _Closed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class StepCoefficients(_Closed):
    """The fields of StepModel, as JSON."""

    base_ms: float = Field(gt=0)
    per_decode_seq_ms: float = Field(default=0.0, ge=0)
    per_decode_context_token_ms: float = Field(default=0.0, ge=0)
    per_prefill_token_ms: float = Field(default=0.0, ge=0)
    per_prefill_context_token2_ms: float = Field(default=0.0, ge=0)


class ResidualQuantile(_Closed):
    """With probability `quantile` a total takes at most `factor` times its prediction."""

    quantile: float = Field(gt=0, lt=1)
    factor: float = Field(gt=0)


class UnloadedTtft(_Closed):
    """Time to first token of a prompt on an idle engine."""

    prompt_tokens: int = Field(ge=1)
    ttft_ms: float = Field(gt=0)


class UnloadedItl(_Closed):
    """Time per token of `seqs` sequences decoding with nothing else."""

    seqs: int = Field(ge=1)
    itl_ms: float = Field(gt=0)


class Profile(_Closed):
    """One measured (model, engine, machine)."""

    version: int = Field(default=1, ge=1, le=1)
    model: str
    engine: str
    machine: str
    dtype: str
    step_model: StepCoefficients
    residuals: tuple[ResidualQuantile, ...] = ()
    max_num_seqs: int = Field(ge=1)
    max_step_tokens: int = Field(ge=1)
    max_model_len: int | None = Field(default=None, ge=1)
    kv_total_tokens: int | None = Field(default=None, ge=1)
    unloaded_ttft: tuple[UnloadedTtft, ...] = ()
    unloaded_itl: tuple[UnloadedItl, ...] = ()
    mape: float | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _residuals_rise(self) -> Self:
        pairs = [(r.quantile, r.factor) for r in self.residuals]
        if pairs != sorted(pairs) or any(a[1] > b[1] for a, b in pairwise(pairs)):
            msg = "residuals must be ordered by quantile, with factors that do not fall"
            raise ValueError(msg)
        return self

    @property
    def steps(self) -> StepModel:
        """The step model as decisions take it."""
        c = self.step_model
        return StepModel(
            c.base_ms,
            c.per_decode_seq_ms,
            c.per_decode_context_token_ms,
            c.per_prefill_token_ms,
            c.per_prefill_context_token2_ms,
        )

    def factor(self, quantile: float) -> float:
        """The residual factor at `quantile`: of the next listed quantile at or above it, else the last.

        1 if none.
        """
        for r in self.residuals:
            if r.quantile >= quantile - 1e-9:
                return r.factor
        return self.residuals[-1].factor if self.residuals else 1.0

    @classmethod
    def load_json(cls, text: str) -> Self:
        """Parse a profile; raises ProfileInvalid."""
        if len(text) > MAX_PROFILE_BYTES:
            msg = f"a profile has at most {MAX_PROFILE_BYTES} bytes, this one {len(text)}"
            raise ProfileInvalid(msg)
        try:
            return cls.model_validate_json(text)
        except ValidationError as e:
            problems = [(".".join(map(str, p["loc"])), p["msg"]) for p in e.errors()]
            told = "; ".join(f"{field}: {message}" if field else message for field, message in problems)
            raise ProfileInvalid(told) from None

    def dump_json(self) -> str:
        """The profile as JSON text."""
        return self.model_dump_json(indent=1, exclude_none=True)
