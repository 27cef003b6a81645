"""The part of a ChipletPool about the model and the engine that runs it, and what they take of a GPU."""

from typing import Annotated, Final

from pydantic import AfterValidator, Field, StringConstraints

from superinfer_core.api.v1alpha1.meta import ApiModel, LongText, ShortText
from superinfer_core.api.v1alpha1.pool_status import EngineType
from superinfer_core.api.v1alpha1.schema_marks import (
    ATOMIC,
    Rule,
    each_name_once,
    map_by,
    rules,
    unchanged,
)

DEFAULT_OVERHEAD_MIB: Final = 2048
"""Of one GPU where nobody says otherwise: activations, CUDA context and graphs."""

_NO_MEMORY_ON_CPU: Final = Rule(
    "!has(self.model.memory) || self.chiplet.shape != 'CPU'",
    "model.memory is GPU memory, and shape CPU has none",
    "remove memory, or write shape: MIG or GPU",
)
_KV_TOKENS_ARE_KNOWN: Final = Rule(
    "!has(self.model.memory) || has(self.model.memory.kvTokens) || "
    "(has(self.engine.maxModelLen) && has(self.engine.maxNumSeqs))",
    "model.memory does not say how much KV cache is needed",
    "add engine.maxModelLen and engine.maxNumSeqs, or model.memory.kvTokens",
)
_LONGEST_REQUEST_FITS: Final = Rule(
    "!has(self.model.memory) || !has(self.model.memory.kvTokens) || "
    "!has(self.engine.maxModelLen) || self.model.memory.kvTokens >= self.engine.maxModelLen",
    "model.memory.kvTokens is below engine.maxModelLen: the longest request could not run",
    "write kvTokens of at least maxModelLen",
)
MEMORY_RULES: Final = (_NO_MEMORY_ON_CPU, _KV_TOKENS_ARE_KNOWN, _LONGEST_REQUEST_FITS)
"""Of the spec of a pool; `check_memory` raises what they say."""


class ModelSource(ApiModel):
    """Where the weights are."""

    path: Annotated[str, StringConstraints(strict=True, min_length=1, max_length=4096)] = Field(
        description="Directory inside the executor's container, e.g. a mounted volume."
    )


class ModelMemorySpec(ApiModel):
    """What the model takes of a GPU's memory; `superinfer memory DIR` prints it for a model directory."""

    weights_mib: Annotated[int, Field(strict=True, ge=1, le=16_777_216)] = Field(
        alias="weightsMiB", description="All of the weights as they are loaded, in MiB."
    )
    kv_bytes_per_token: Annotated[int, Field(strict=True, ge=1, le=1_073_741_824)] = Field(
        description=(
            "Bytes of KV cache one token takes: 2 x layers x KV heads x head size x bytes of a value."
        )
    )
    kv_heads: Annotated[int, Field(strict=True, ge=1, le=65_536)] | None = Field(
        default=None,
        description=(
            "KV heads of the model. Executors of more GPUs than that keep each head on several of them; "
            "where unset, kvBytesPerToken is taken to divide over any number of GPUs."
        ),
    )
    overhead_mib: Annotated[int, Field(strict=True, ge=0, le=1_048_576)] = Field(
        default=DEFAULT_OVERHEAD_MIB,
        alias="overheadMiB",
        description="What the engine takes besides on every GPU (activations, CUDA context), in MiB.",
    )
    kv_tokens: Annotated[int, Field(strict=True, ge=16, le=1_000_000_000)] | None = Field(
        default=None,
        description=(
            "Tokens the KV cache of one executor must hold. Where unset, engine.maxModelLen for each of "
            "engine.maxNumSeqs requests, or fewer where all contracts of the pool have a quota.concurrency."
        ),
    )


class ModelSpec(ApiModel):
    """Which model is served, under which name."""

    model_config = rules(unchanged("name", "model.name"))

    name: ShortText = Field(description="What clients write as `model`.")
    source: ModelSource | None = Field(default=None, description="Where the weights are.")
    memory: ModelMemorySpec | None = Field(
        default=None,
        description=(
            "GPU memory it takes; a chiplet with less is refused. Not checked where unset, and the status "
            "says so."
        ),
    )


class EnvVar(ApiModel):
    """One environment variable of the engine."""

    name: Annotated[
        str, StringConstraints(strict=True, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=253)
    ] = Field(description="Name of the variable.")
    value: LongText = Field(default="", description="Its value.")


class EngineSpec(ApiModel):
    """What runs the model, with its limits."""

    type: EngineType = Field(
        default=EngineType.VLLM, description="VLLM; or Stub: no model behind it, for tests and benchmarks."
    )
    image: Annotated[str, StringConstraints(strict=True, min_length=1, max_length=1024)] | None = Field(
        default=None, description="Container image of the executor; the chart's default where unset."
    )
    max_model_len: Annotated[int, Field(strict=True, ge=16, le=16_777_216)] | None = Field(
        default=None, description="Longest prompt plus output in tokens; the model's own where unset."
    )
    max_num_seqs: Annotated[int, Field(strict=True, ge=1, le=4096)] | None = Field(
        default=None, description="Requests in one batch; the engine's default where unset."
    )
    args: list[LongText] | None = Field(
        default=None, max_length=128, description="Further engine arguments.", json_schema_extra=ATOMIC
    )
    env: Annotated[list[EnvVar], AfterValidator(each_name_once)] | None = Field(
        default=None,
        max_length=128,
        description="Environment of the engine.",
        json_schema_extra=map_by("name"),
    )


def check_memory(memory: ModelMemorySpec, engine: EngineSpec, *, on_gpu: bool) -> None:
    """Raise what MEMORY_RULES says."""
    if not on_gpu:
        raise _NO_MEMORY_ON_CPU.broken()
    if memory.kv_tokens is None:
        if engine.max_model_len is None or engine.max_num_seqs is None:
            raise _KV_TOKENS_ARE_KNOWN.broken()
    elif memory.kv_tokens < (engine.max_model_len or 0):
        raise _LONGEST_REQUEST_FITS.broken()
