"""`superinfer profile`: measure a model on an engine of this machine."""

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer

from superinfer import exit_codes
from superinfer.output import Output, OutputOption, emit_json, errors, fail
from superinfer.output import console as stdout
from superinfer.profiling.engine import EngineTroubleError
from superinfer.profiling.measure import Measurement, measure
from superinfer.serving.console import Progress, progress_on
from superinfer.serving.interrupts import Interrupted, StopRequest, stop_on_signals, unless_stopped
from superinfer.serving.models import KNOWN, model_directory, stopped_while_preparing
from superinfer.serving.options import CannotServe, ServeOptions
from superinfer.serving.plan import engine_plan, engine_socket
from superinfer.serving.session import StartFailed, start_failure
from superinfer.serving.startup import StartUp
from superinfer.serving.supervisor import Supervisor

HELP = """Measure how long steps of a model take here, and write the profile predictions start from.

Starts an engine of its own (or measures an idle one behind --socket), runs prompts of several lengths and
batches of several sizes, and fits a step model. About a minute for SmolLM2 on a CPU.

\b
Examples:
  superinfer profile --out smollm2.json
  superinfer profile --model /models/llama --max-num-seqs 64 --out llama.json
  superinfer profile --socket /run/superinfer/engine.sock --output json

\b
Exit codes:
  0  measured
  1  the engine did not start or could not be measured
  2  wrong option: no such model
  130, 143  stopped by Ctrl-C, SIGTERM; nothing is written"""


def profile(
    model: Annotated[str, typer.Option(help=f"{', '.join(KNOWN)}, or a model directory.")] = "smollm2",
    out: Annotated[Path | None, typer.Option(help="Where to write the profile (JSON, < 50 KB).")] = None,
    socket: Annotated[Path | None, typer.Option(help="Measure the idle engine behind this socket.")] = None,
    max_num_seqs: Annotated[int | None, typer.Option(min=1, help="Places in the batch.")] = None,
    max_model_len: Annotated[int | None, typer.Option(min=32, help="Longest prompt plus answer.")] = None,
    longest_prompt: Annotated[int, typer.Option(min=16, help="Longest prompt to measure.")] = 1024,
    repeats: Annotated[int, typer.Option(min=1, help="Times each prompt length is measured.")] = 2,
    output: OutputOption = Output.TEXT,
    engine_args: Annotated[list[str] | None, typer.Argument(help="After --: arguments for vLLM.")] = None,
) -> None:
    """See HELP."""
    progress = progress_on(errors)
    try:
        options = None
        if socket is None:
            options = ServeOptions(
                served_name=model if model in KNOWN else Path(model).resolve().name,
                model=model_directory(model, progress.step),
                max_num_seqs=max_num_seqs,
                max_model_len=max_model_len,
                engine_args=tuple(engine_args or ()),
            )
            options.check_model()
    except CannotServe as problem:
        progress.done()
        fail(str(problem), fix=problem.fix, code=exit_codes.USAGE)
    except Interrupted as interrupted:
        progress.done()
        fail(stopped_while_preparing(model), code=interrupted.exit_code)
    work = measure_here(options, socket, progress, longest_prompt=longest_prompt, repeats=repeats)
    try:
        measurement = asyncio.run(_until_signalled(work))
    except (StartFailed, EngineTroubleError) as trouble:
        fail(str(trouble))
    except Interrupted as interrupted:
        fail("stopped before it was measured; nothing is written", code=interrupted.exit_code)
    finally:
        progress.done()
    text = measurement.profile.dump_json()
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text + "\n")
    if output is Output.JSON:
        emit_json(measurement.profile.model_dump(mode="json", exclude_none=True))
    else:
        _show(measurement, out)


async def _until_signalled(work: Coroutine[Any, Any, Measurement]) -> Measurement:
    stop = StopRequest()
    with stop_on_signals(stop):
        return await unless_stopped(work, stop)


async def measure_here(
    options: ServeOptions | None,
    socket: Path | None,
    progress: Progress,
    *,
    longest_prompt: int,
    repeats: int,
) -> Measurement:
    """Measure the engine behind `socket`, or one of our own started with `options`.

    Raises:
        StartFailed: our engine does not start.
        EngineTroubleError: the engine cannot be measured.
    """
    async with contextlib.AsyncExitStack() as stack:
        if options is not None:
            socket = await stack.enter_async_context(_own_engine(options, progress))
        if socket is None:
            raise EngineTroubleError("there is no engine to measure")
        return await measure(socket, progress.step, longest_prompt=longest_prompt, repeats=repeats)


@contextlib.asynccontextmanager
async def _own_engine(options: ServeOptions, progress: Progress) -> AsyncIterator[Path]:
    with tempfile.TemporaryDirectory(prefix="superinfer-profile-", ignore_cleanup_errors=True) as scratch:
        spec = engine_plan(options, run_dir=Path(scratch), environment=os.environ)
        supervisor = Supervisor([spec], StartUp(progress).event)
        supervisor.start()
        try:
            if not await supervisor.wait_ready():
                raise StartFailed(start_failure(supervisor))
            yield engine_socket(Path(scratch), spec.name)
        finally:
            await supervisor.stop()


def _show(measurement: Measurement, out: Path | None) -> None:
    console = stdout if out is not None else errors  # without --out, stdout is for the profile itself
    profile, fit = measurement.profile, measurement.fit
    steps = profile.steps
    console.print(f"{profile.model} on {profile.engine}, {profile.dtype}\n{profile.machine}\n", markup=False)
    for entry in profile.unloaded_ttft:
        predicted = steps.prefill_ms(entry.prompt_tokens, chunk_tokens=profile.max_step_tokens)
        console.print(
            f"  prompt of {entry.prompt_tokens:5d} tokens   first token {entry.ttft_ms:8.1f} ms"
            f"   (model {predicted:8.1f} ms)"
        )
    for itl in profile.unloaded_itl:
        console.print(f"  {itl.seqs:5d} answers at a time   a token every {itl.itl_ms:8.1f} ms")
    factors = ", ".join(f"P{100 * q:g} ×{factor:.2f}" for q, factor in fit.residuals)
    console.print(f"\nFitted to {fit.steps} steps: mean error {100 * fit.mape:.1f} %; totals {factors}")
    if out is not None:
        console.print(f"Written to {out} ({out.stat().st_size} bytes)", markup=False)
    else:
        sys.stdout.write(profile.dump_json() + "\n")
