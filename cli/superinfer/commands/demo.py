"""`superinfer demo`: the whole story on this machine, with real answers."""

import asyncio
import hashlib
from pathlib import Path
from typing import Annotated

import httpx
import typer

from superinfer import exit_codes
from superinfer.commands.profile import measure_here
from superinfer.demo.result import Result
from superinfer.demo.run import tell
from superinfer.demo.screen import Screen
from superinfer.output import console, errors, fail
from superinfer.paths import profiles_dir
from superinfer.profiling.engine import EngineTroubleError
from superinfer.profiling.measure import machine_name
from superinfer.serving.console import Progress, progress_on
from superinfer.serving.interrupts import Interrupted, StopRequest, stop_on_signals, unless_stopped
from superinfer.serving.models import KNOWN, model_directory, stopped_while_preparing
from superinfer.serving.options import CannotServe, Checkpoint, ServeOptions, omp_threads
from superinfer.serving.ports import free_port
from superinfer.serving.session import StartFailed, serving
from superinfer.serving.shared_memory import free_mib
from superinfer_core.prediction.profile import Profile, ProfileInvalid
from superinfer_ingress.small_file import read_small_text

HELP = """Show the whole story with a real model on this machine.

A gold request kept within its contract, a bronze backlog overtaken, a request refused with the reason,
running work that gives way and finishes with the same words, an answer that goes on after kill -9 of its
engine, and the fulfilment of every contract. The profile of this machine is measured the first time and kept.

\b
Examples:
  superinfer demo
  superinfer demo --measure-again --out result.json

\b
Exit codes:
  0  the story happened, every part of it
  1  it did not; the screen and the result file say what
  2  the model is not there and cannot be made
  130, 143  stopped by Ctrl-C, SIGTERM; what was measured before is kept"""

PLACES = 2
"""Few, so that a handful of requests fills the engine and giving way is real."""
MAX_MODEL_LEN = 1024
POLICY = """\
# Two places: to keep one free for gold would leave bronze none. Gold displaces instead.
reserve_places: 0
"""
EXACT = ("--dtype", "float32")
"""Displaced work must come back to the same words; in 16 bits a recomputed token may differ."""
LONGEST_PROMPT = 512
MOST_ERROR = 0.3
"""Mean error of a profile's steps above which the machine was busy elsewhere when it was measured."""
UNSTEADY = (
    "this machine is busy: steps took {percent:.0f} % more or less than the fit says. It is used for this"
    " run, and measured again by the next"
)
CHECKPOINT_MIB = 256
"""Shared memory for the KV of running requests; some containers have no more than this."""


def demo(
    out: Annotated[Path, typer.Option(help="Where to write the record.")] = Path("build/demo/result.json"),
    model: Annotated[str, typer.Option(help=f"{', '.join(KNOWN)}, or a model directory.")] = "smollm2",
    measure_again: Annotated[
        bool, typer.Option("--measure-again", help="Measure this machine anew instead of using what is kept.")
    ] = False,
) -> None:
    """See HELP."""
    progress = progress_on(errors)
    try:
        options = _options(model, out.parent / "contracts", progress)
    except CannotServe as problem:
        progress.done()
        fail(str(problem), fix=problem.fix, code=exit_codes.USAGE)
    except Interrupted as interrupted:
        progress.done()
        fail(stopped_while_preparing(model), code=interrupted.exit_code)
    try:
        result = asyncio.run(_demo(options, progress, measure_again=measure_again))
    except (StartFailed, EngineTroubleError) as trouble:
        fail(str(trouble))
    except httpx.HTTPError as trouble:
        fail(
            f"the story broke off: {type(trouble).__name__} while waiting for an answer",
            fix="Is the machine busy with something else? Run it again.",
        )
    except Interrupted as interrupted:
        fail("stopped before the end of the story; nothing is left running", code=interrupted.exit_code)
    finally:
        progress.done()
    result.write(out)
    missed = [aim.name for aim in result.aims if not aim.met]
    told = "The story happened" if result.told else f"Did not happen: {', '.join(missed) or 'anything'}"
    console.print(f"\n{told}. Record: {out}", markup=False)
    if not result.told:
        console.print(
            "A machine that is busy with other things tells it badly; once it is quiet:"
            " superinfer demo --measure-again",
            markup=False,
        )
    raise typer.Exit(exit_codes.OK if result.told else exit_codes.FAILED)


def _options(model: str, contracts: Path, progress: Progress) -> ServeOptions:
    contracts.mkdir(parents=True, exist_ok=True)
    for old in contracts.glob("*.yaml"):
        old.unlink()
    policy = contracts.with_name("policy.yaml")
    policy.write_text(POLICY)
    options = ServeOptions(
        served_name=model if model in KNOWN else Path(model).resolve().name,
        model=model_directory(model, progress.step),
        port=free_port(),
        contracts=contracts,
        max_num_seqs=PLACES,
        max_model_len=MAX_MODEL_LEN,
        grace_s=10.0,
        scheduling_policy=policy,
        engine_args=EXACT,
        checkpoint=_checkpoint(),
        checkpoint_mib=CHECKPOINT_MIB,
    )
    options.check()
    return options


def _checkpoint() -> Checkpoint:
    """Some containers have next to no shared memory; the story is the same then, with more computed again."""
    if free_mib() >= CHECKPOINT_MIB:
        return Checkpoint.ON
    errors.print(f"less than {CHECKPOINT_MIB} MiB of shared memory: KV is computed again, not restored")
    return Checkpoint.OFF


async def _demo(options: ServeOptions, progress: Progress, *, measure_again: bool) -> Result:
    stop = StopRequest()
    with stop_on_signals(stop):
        path = _kept_profile(options)
        profile = None if measure_again else _load(path)
        if profile is None:
            progress.step("measuring this machine: once, then kept where it was steady")
            work = measure_here(options, None, progress, longest_prompt=LONGEST_PROMPT, repeats=2)
            measurement = await unless_stopped(work, stop)
            profile = measurement.profile
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(profile.dump_json() + "\n")
            if not steady(profile):
                errors.print(UNSTEADY.format(percent=100 * (profile.mape or 0)), markup=False)
        progress.done()
        async with serving(options.with_profile(path), progress, stop) as session:
            return await unless_stopped(tell(session, profile, options, Screen(console)), stop)


def _kept_profile(options: ServeOptions) -> Path:
    """One per machine and engine limits: times of another machine would be lies."""
    what = (machine_name(), omp_threads(options.executors), options.max_num_seqs, options.max_model_len)
    digest = hashlib.sha256(repr(what).encode()).hexdigest()[:12]
    return profiles_dir() / f"{options.served_name}-{digest}.json"


def _load(path: Path) -> Profile | None:
    """The profile that is kept, unless it is of a moment that will not come back."""
    try:
        profile = Profile.load_json(read_small_text(path))
    except (OSError, UnicodeDecodeError, ProfileInvalid):
        return None
    return profile if steady(profile) else None


def steady(profile: Profile) -> bool:
    """Whether the steps it was fitted to were alike enough to say how fast this machine usually is."""
    return (profile.mape or 0.0) <= MOST_ERROR
