"""`superinfer serve`: a real model behind contracts on this machine, until Ctrl-C."""

import asyncio
import time
from pathlib import Path
from typing import Annotated

import typer

from superinfer import exit_codes
from superinfer.numbers import finite
from superinfer.output import console, errors, fail
from superinfer.serving.console import Progress, progress_on
from superinfer.serving.interrupts import Interrupted, StopRequest, stop_on_signals
from superinfer.serving.models import KNOWN, model_directory, stopped_while_preparing
from superinfer.serving.options import Auth, CannotServe, Checkpoint, Policy, ServeOptions
from superinfer.serving.session import Session, StartFailed, serving
from superinfer.serving.shared_memory import SHARED_MEMORY, free_mib

HELP = """Serve a model behind SLO contracts on this machine.

Starts one ingress, and an executor and a sidecar per engine. Crashed processes are started again.
Ctrl-C or SIGTERM lets open streams finish (--grace-s); a second one does not wait.

\b
Examples:
  superinfer serve
  superinfer serve --contracts ./contracts --port 8080
  superinfer serve --auth required --keys keys.yaml
  superinfer serve --stub --step-ms 5       no model: answers are made up, and say so
  superinfer serve --model /models/llama --executors 2 -- --max-num-batched-tokens 1024

\b
Exit codes:
  0  stopped on request
  1  a process could not be kept running
  2  wrong option: port in use, no such model
  130, 143  stopped by Ctrl-C, SIGTERM before it served; nothing half-made is left"""


NO_PROFILE = "none: predictions start from defaults; `superinfer profile` measures this machine"


def serve(
    model: Annotated[
        str, typer.Option(help=f"{', '.join(KNOWN)}, or a Hugging Face model directory.")
    ] = "smollm2",
    stub: Annotated[bool, typer.Option("--stub", help="No model: a stub with made-up answers.")] = False,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="HTTP port.")] = 8000,
    executors: Annotated[int, typer.Option(min=1, max=64, help="Engines; each loads the model once.")] = 1,
    contracts: Annotated[
        Path | None, typer.Option(help="Directory of contract YAML; watched while serving.")
    ] = None,
    auth: Annotated[Auth, typer.Option(help="Who may ask: anyone, or holders of a key.")] = Auth.OPEN,
    keys: Annotated[Path | None, typer.Option(help="Hashed API keys (`superinfer keys create`).")] = None,
    profile: Annotated[Path | None, typer.Option(help="Measured profile (`superinfer profile`).")] = None,
    policy: Annotated[Path | None, typer.Option(help="Scheduling policy YAML.")] = None,
    scheduler: Annotated[
        Policy, typer.Option(help="superinfer, or vLLM's own fcfs and priority without admission.")
    ] = Policy.SUPERINFER,
    served_model_name: Annotated[str | None, typer.Option(help="What clients put in `model`.")] = None,
    max_num_seqs: Annotated[int | None, typer.Option(min=1, help="Places in the batch of an engine.")] = None,
    max_model_len: Annotated[
        int | None, typer.Option(min=1, help="Longest prompt plus answer (tokens).")
    ] = None,
    kv_gib: Annotated[int, typer.Option(min=1, help="KV cache of each engine on CPU, in GiB.")] = 1,
    grace_s: Annotated[
        float, typer.Option(callback=finite, min=0.1, help="Time for open streams when stopping.")
    ] = 30.0,
    step_ms: Annotated[float, typer.Option(callback=finite, min=0, help="Stub: time of one step.")] = 20.0,
    prefill_ms_per_token: Annotated[
        float, typer.Option(callback=finite, min=0, help="Stub: time of one prompt token.")
    ] = 0.2,
    checkpoint: Annotated[
        Checkpoint | None,
        typer.Option(help="Keep KV of running requests outside their engine [default: where it fits]."),
    ] = None,
    checkpoint_mib: Annotated[
        int, typer.Option(min=2, help="Shared memory of each executor for that, in MiB.")
    ] = 512,
    engine_args: Annotated[list[str] | None, typer.Argument(help="After --: arguments for vLLM.")] = None,
) -> None:
    """See HELP."""
    progress = progress_on(errors)
    began_s = time.monotonic()
    try:
        directory = None if stub else model_directory(model, progress.step)
        prepared_s = time.monotonic() - began_s
        options = ServeOptions(
            served_name=served_model_name or ("stub" if stub else _name_of(model)),
            model=directory,
            host=host,
            port=port,
            executors=executors,
            contracts=contracts,
            auth=auth,
            keys=keys,
            profile=profile,
            scheduling_policy=policy,
            scheduler=scheduler,
            max_num_seqs=max_num_seqs,
            max_model_len=max_model_len,
            kv_gib=kv_gib,
            grace_s=grace_s,
            step_ms=step_ms,
            prefill_ms_per_token=prefill_ms_per_token,
            checkpoint=_checkpoint(checkpoint, stub, scheduler, checkpoint_mib * executors),
            checkpoint_mib=checkpoint_mib,
            engine_args=tuple(engine_args or ()),
        )
        options.check()
    except CannotServe as problem:
        progress.done()
        fail(str(problem), fix=problem.fix, code=exit_codes.USAGE)
    except Interrupted as interrupted:
        progress.done()
        fail(stopped_while_preparing(model), code=interrupted.exit_code)
    try:
        clean = asyncio.run(_serve(options, progress, prepared_s))
    except StartFailed as failure:
        fail(str(failure))
    except Interrupted as interrupted:
        kept = (
            "" if directory is None else f" The model in {directory} stays; the next start goes on with it."
        )
        fail(f"stopped before it served; nothing is left running.{kept}", code=interrupted.exit_code)
    raise typer.Exit(exit_codes.OK if clean else exit_codes.FAILED)


def _checkpoint(asked: Checkpoint | None, stub: bool, scheduler: Policy, needed_mib: int) -> Checkpoint:
    """What was asked for, or what fits; a stub and vLLM's own schedulers save nothing."""
    saves = not stub and scheduler is Policy.SUPERINFER
    if asked is Checkpoint.ON and not saves:
        who = "--stub" if stub else f"--scheduler {scheduler}"
        raise CannotServe(f"--checkpoint on: {who} saves no checkpoints", "Leave out one of the two.")
    return asked or _checkpoints_where_they_fit(needed_mib if saves else 0)


def _checkpoints_where_they_fit(needed_mib: int) -> Checkpoint:
    """On, unless this machine has too little shared memory: then off, and said."""
    free = free_mib()
    if free >= needed_mib:
        return Checkpoint.ON
    errors.print(
        f"No checkpoints: they need {needed_mib} MiB of shared memory, {free} MiB are free in {SHARED_MEMORY}"
        " (--checkpoint-mib asks for less). A request that loses its engine is computed again.",
        markup=False,
    )
    return Checkpoint.OFF


async def _serve(options: ServeOptions, progress: Progress, prepared_s: float) -> bool:
    stop = StopRequest()
    with stop_on_signals(stop):
        async with serving(options, progress, stop) as session:
            errors.print(session.startup.summary([("preparing the model", prepared_s)]), markup=False)
            _introduce(session, options)
            return await _until_stopped(session, stop)


async def _until_stopped(session: Session, stop: StopRequest) -> bool:
    stopped = asyncio.create_task(stop.wait())
    lost = asyncio.create_task(session.supervisor.wait_given_up())
    await asyncio.wait({stopped, lost}, return_when=asyncio.FIRST_COMPLETED)
    for task in (stopped, lost):
        task.cancel()
    if stop.is_set():
        console.print("Stopping: open streams may finish (Ctrl-C again to end now).")
    return stop.is_set()


def _name_of(model: str) -> str:
    return model if model in KNOWN else Path(model).resolve().name


def _introduce(session: Session, options: ServeOptions) -> None:
    what = "a stub: no model, answers are made up" if options.stub else str(options.model)
    key = ' \\\n  -H "Authorization: Bearer $SUPERINFER_KEY"' if options.auth is Auth.REQUIRED else ""
    body = (
        f'{{"model": "{session.model}", "messages": [{{"role": "user", "content": "What is a promise?"}}]}}'
    )
    console.print(
        f"\nServing {session.model} ({what}) at {session.url}\n"
        f"  contracts  {options.contracts or 'none yet; POST them to ' + session.url + '/v1/contracts'}\n"
        f"  profile    {options.profile or NO_PROFILE}\n"
        f"  metrics    {session.url}/metrics\n"
        f"  logs       {session.run_dir / 'logs'}\n\n"
        f"Try it:\n\ncurl {session.url}/v1/chat/completions{key} \\\n"
        f"  -H 'content-type: application/json' \\\n  -d '{body}'\n",
        markup=False,
    )
