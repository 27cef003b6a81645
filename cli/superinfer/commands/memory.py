"""`superinfer memory`: the GPU memory a model takes, as a pool states it, and the chiplets that have it."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from superinfer import exit_codes
from superinfer.output import Output, OutputOption, console, emit_json, fail
from superinfer.planning.model_config import LONGEST_TOKENS
from superinfer.planning.model_files import CannotMeasure, KvType, ModelFiles, read_model
from superinfer_core.api.v1alpha1.pool_model import DEFAULT_OVERHEAD_MIB
from superinfer_core.placement.geometry import PRODUCTS, GpuProduct
from superinfer_core.placement.memory import (
    DEFAULT_ENGINE_PERCENT,
    MemoryNeed,
    ModelMemory,
    kept_heads,
    kv_tokens_wanted,
    memory_need,
)
from superinfer_core.placement.shapes import WHOLE_GPU, shape_name

HELP = """Tell how much GPU memory a model takes, and print it as a ChipletPool states it.

Reads config.json and the headers of the weights, nothing else. What is printed under `memory` goes into
spec.model.memory of a pool: placement then refuses chiplets that are too small, and says by how much. With
more GPUs than KV heads (--gpus, tensor parallel), heads are kept on several GPUs and count on each.

\b
Examples:
  superinfer memory /models/llama --max-model-len 8192 --max-num-seqs 32
  superinfer memory /models/llama --kv-tokens 65536 --gpus 2
  superinfer memory /models/llama -o json

\b
Exit codes:
  0  told
  2  the directory cannot be read, or the model cannot run on that many GPUs"""

DEFAULT_SEQUENCES: Final = 8


def memory(
    directory: Annotated[Path, typer.Argument(help="Hugging Face model directory.", metavar="MODEL_DIR")],
    max_model_len: Annotated[
        int | None,
        typer.Option(
            min=16, max=LONGEST_TOKENS, help="Longest prompt plus answer [default: the model's own]."
        ),
    ] = None,
    max_num_seqs: Annotated[
        int, typer.Option(min=1, max=4096, help="Requests in one batch.")
    ] = DEFAULT_SEQUENCES,
    kv_tokens: Annotated[
        int | None,
        typer.Option(
            min=16, max=1_000_000_000, help="Tokens of KV cache, where not all requests are that long."
        ),
    ] = None,
    gpus: Annotated[int, typer.Option(min=1, max=72, help="GPUs of one executor (tensor parallel).")] = 1,
    kv_cache_dtype: Annotated[
        KvType, typer.Option(help="As vLLM's; auto is two bytes a value.")
    ] = KvType.AUTO,
    overhead_mib: Annotated[
        int, typer.Option(min=0, max=1_048_576, help="What the engine takes besides, on every GPU.")
    ] = DEFAULT_OVERHEAD_MIB,
    engine_percent: Annotated[
        int, typer.Option(min=1, max=100, help="vLLM's --gpu-memory-utilization, in percent.")
    ] = DEFAULT_ENGINE_PERCENT,
    output: OutputOption = Output.TEXT,
) -> None:
    """See HELP."""
    try:
        files = read_model(directory, gpus=gpus)
        length = max_model_len or (None if kv_tokens is not None else files.longest_sequence())
    except CannotMeasure as problem:
        fail(str(problem), code=exit_codes.USAGE)
    tokens = _tokens(kv_tokens, max_model_len, length, max_num_seqs)
    model = ModelMemory(
        files.weights_mib,
        files.kv.bytes_per_token(kv_cache_dtype.value_bytes),
        overhead_mib,
        files.kv.kv_heads,
    )
    need = memory_need(model, kv_tokens=tokens, gpus=gpus, engine_percent=engine_percent)
    stated: dict[str, Any] = {"model": {"memory": _stated(model, kv_tokens)}}
    if kv_tokens is None:
        stated["engine"] = {"maxModelLen": length, "maxNumSeqs": max_num_seqs}
    if output is Output.JSON:
        told = {**asdict(need), "engine_mib": need.engine_mib, "chiplet_mib": need.chiplet_mib}
        emit_json({"spec": stated, "need": told, "chiplets": _fitting(need, gpus)})
    else:
        _show(files, model, need, stated, gpus)


def _tokens(kv_tokens: int | None, asked: int | None, length: int | None, sequences: int) -> int:
    """Tokens the cache is for: as asked, else the longest sequence for every request."""
    if kv_tokens is not None:
        if kv_tokens < (asked or 0):
            fail(
                f"--kv-tokens {kv_tokens} is below --max-model-len {asked}: the longest request cannot run",
                fix="Give at least as many.",
                code=exit_codes.USAGE,
            )
        return kv_tokens
    if length is None:
        fail(
            "config.json does not say how long a sequence may be",
            fix="Give --max-model-len or --kv-tokens.",
            code=exit_codes.USAGE,
        )
    return kv_tokens_wanted(length, sequences)


def _stated(model: ModelMemory, kv_tokens: int | None) -> dict[str, Any]:
    stated = {
        "weightsMiB": model.weights_mib,
        "kvBytesPerToken": model.kv_bytes_per_token,
        "kvHeads": model.kv_heads,
    }
    if model.overhead_mib != DEFAULT_OVERHEAD_MIB:
        stated["overheadMiB"] = model.overhead_mib
    return stated if kv_tokens is None else {**stated, "kvTokens": kv_tokens}


def _fitting(need: MemoryNeed, gpus: int) -> dict[str, str | None]:
    """The smallest chiplet of every product that is large enough; None where none is."""
    return {product.label: _smallest(product, need.chiplet_mib, gpus) for product in PRODUCTS.values()}


def _smallest(product: GpuProduct, needed_mib: int, gpus: int) -> str | None:
    sizes = [(product.memory_mib * gpus, gpus * 8, shape_name(WHOLE_GPU, gpus))]
    if gpus == 1:
        # Tensor parallel is for whole GPUs.
        plain = [profile for profile in product.mig_profiles if "+" not in profile.name]
        sizes += [(one.memory_mib, one.compute_slices, one.name) for one in plain]
    return min((one for one in sizes if one[0] >= needed_mib), default=(0, 0, None))[2]


def _show(files: ModelFiles, model: ModelMemory, need: MemoryNeed, stated: dict[str, Any], gpus: int) -> None:
    console.print(f"weights    {files.weights_mib:>9} MiB  in {_files(files.weights_files)}", markup=False)
    kept = kept_heads(files.kv.kv_heads, gpus)
    shared = f", each head on {kept // files.kv.kv_heads} GPUs" if kept > files.kv.kv_heads else ""
    console.print(
        f"KV cache   {need.kv_mib:>9} MiB  {need.kv_tokens} tokens of {model.kv_bytes_per_token} bytes"
        f"{shared}",
        markup=False,
    )
    per_gpu = (
        f"{need.overhead_mib // gpus} MiB on each of {gpus} GPUs" if gpus > 1 else "context, activations"
    )
    console.print(f"overhead   {need.overhead_mib:>9} MiB  {per_gpu}", markup=False)
    console.print(
        f"a chiplet  {need.chiplet_mib:>9} MiB  of which the engine takes {need.engine_percent} %\n",
        markup=False,
    )
    for product, shape in _fitting(need, gpus).items():
        console.print(f"  {product:28} {shape or 'too small'}", markup=False)
    console.print("\nIn the ChipletPool:\n\nspec:\n  model:", markup=False)
    console.print(f"    memory: {_flow(stated['model']['memory'])}", markup=False)
    if "engine" in stated:
        console.print(f"  engine: {_flow(stated['engine'])}", markup=False)


def _flow(fields: dict[str, Any]) -> str:
    return "{" + ", ".join(f"{name}: {value}" for name, value in fields.items()) + "}"


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"
