"""`python -m superinfer_executor serve`: an engine behind a Unix socket.

stdout carries JSON lines only: {"event":"loading","step":...} while it starts, {"event":"ready",...} once a
warm-up request has gone through. SIGTERM finishes what runs (at most the grace) and exits 0; a dead engine
exits 1 at once.
"""

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, NoReturn

from superinfer_executor.checkpoint.options import add_checkpoint_options, read_checkpoint_options
from superinfer_executor.checkpoint.settings import CheckpointSettingsInvalid
from superinfer_executor.engine.settings import (
    SCHEDULERS,
    EngineSettings,
    cpu_flags,
    engine_args,
    engine_environment,
    misleading_variables,
)
from superinfer_executor.vllm_version import (
    ALLOW_UNTESTED_ENV,
    TESTED_VLLM_VERSIONS,
    UntestedVllmError,
    check_vllm_version,
    installed_vllm_version,
)

log = logging.getLogger(__name__)

EXIT_ENGINE_DEAD: Final = 1
EXIT_USAGE: Final = 2


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """The whole command line."""

    socket: Path
    engine: EngineSettings
    grace_s: float
    allow_untested_vllm: bool


def parse_settings(argv: Sequence[str]) -> ServeSettings:
    """Settings of a command line; what follows `--` is vLLM's."""
    ours, vllm_args = list(argv), []
    if "--" in ours:
        cut = ours.index("--")
        ours, vllm_args = ours[:cut], ours[cut + 1 :]
    parser = argparse.ArgumentParser(
        prog="superinfer_executor serve",
        description="Serve a model with vLLM in process, on a Unix socket.",
        epilog="example: python -m superinfer_executor serve --socket /run/x/engine.sock "
        "--model /models/smollm2 --served-model-name smollm2 -- --max-model-len 2048 --max-num-seqs 8",
    )
    parser.add_argument("--socket", type=Path, required=True, help="Unix socket to serve on")
    parser.add_argument("--model", required=True, help="model directory")
    parser.add_argument("--served-model-name", required=True, metavar="NAME")
    parser.add_argument("--scheduler", choices=SCHEDULERS, default="superinfer")
    parser.add_argument("--profile", metavar="FILE", help="profile of this model here (superinfer profile)")
    parser.add_argument("--policy", metavar="FILE", help="scheduling policy")
    add_checkpoint_options(parser)
    parser.add_argument("--grace-s", type=float, default=30.0, help="how long SIGTERM waits (default 30)")
    parser.add_argument(
        "--allow-untested-vllm",
        action="store_true",
        help=f"try another vLLM than {', '.join(TESTED_VLLM_VERSIONS)}",
    )
    found = parser.parse_args(ours)
    try:
        checkpoint = read_checkpoint_options(found)
    except CheckpointSettingsInvalid as error:
        parser.error(str(error))
    return ServeSettings(
        socket=found.socket,
        engine=EngineSettings(
            model=found.model,
            served_model_name=found.served_model_name,
            scheduler=found.scheduler,
            vllm_args=tuple(vllm_args),
            profile=found.profile,
            policy=found.policy,
            checkpoint=checkpoint,
        ),
        grace_s=found.grace_s,
        allow_untested_vllm=found.allow_untested_vllm,
    )


class Events:
    """JSON lines on the real stdout; everything else that writes to stdout goes to stderr instead."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._started_s = time.monotonic()

    @classmethod
    def take_stdout(cls) -> "Events":
        """Keep stdout for events, also from child processes and native code."""
        ours = os.dup(1)
        os.dup2(2, 1)
        return cls(os.fdopen(ours, "w", encoding="utf-8"))

    def tell(self, event: str, **more: Any) -> None:
        """One line; a reader that is gone is no reason to stop."""
        line = {"event": event, **more, "after_s": round(time.monotonic() - self._started_s, 2)}
        try:
            self._stream.write(json.dumps(line) + "\n")
            self._stream.flush()
        except OSError:
            log.debug("nobody reads stdout")

    def step(self, step: str) -> None:
        """Progress of the start."""
        self.tell("loading", step=step)


def main(argv: Sequence[str]) -> int:
    """Serve until SIGTERM; see the module for the exit codes."""
    settings = parse_settings(argv)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    try:
        check_vllm_version(installed_vllm_version(), allow_untested=settings.allow_untested_vllm)
        if settings.allow_untested_vllm:
            os.environ[ALLOW_UNTESTED_ENV] = "1"
    except UntestedVllmError as error:
        sys.stderr.write(f"superinfer_executor: {error}\n")
        return EXIT_USAGE
    events = Events.take_stdout()
    events.step("vllm")
    facts_path = settings.socket.with_name(f".{settings.socket.name}.facts")
    settings.socket.parent.mkdir(parents=True, exist_ok=True)
    ours = facts_path if settings.engine.scheduler == "superinfer" else None
    arguments = _prepare(settings.engine, ours)
    import uvloop

    uvloop.run(_serve(settings, arguments, ours, events))
    return EXIT_ENGINE_DEAD  # not reached: _serve leaves the process


def _prepare(settings: EngineSettings, facts_path: Path | None) -> list[str]:
    """Set the environment and make vLLM's command line."""
    for name in misleading_variables(os.environ):
        log.warning("%s is a URL that Kubernetes set (use enableServiceLinks: false); ignored", name)
        del os.environ[name]
    facts = None if facts_path is None else str(facts_path)
    # Twice: asking whether this is a CPU imports vLLM, which reads part of its environment then.
    os.environ.update(engine_environment(settings, os.environ, step_facts_socket=facts, cpu=False))
    from superinfer_executor.engine.start import is_cpu

    cpu = is_cpu()
    os.environ.update(engine_environment(settings, os.environ, step_facts_socket=facts, cpu=cpu))
    scheduler_cls = None
    if settings.scheduler == "superinfer":
        from superinfer_executor.plugin.scheduler import scheduler_cls_for

        scheduler_cls = scheduler_cls_for("cpu" if cpu else "cuda")
    flags = cpu_flags(Path("/proc/cpuinfo").read_text(encoding="utf-8")) if cpu else frozenset()
    return engine_args(settings, cpu=cpu, cpu_flags=flags, scheduler_cls=scheduler_cls)


async def _serve(
    settings: ServeSettings, arguments: list[str], facts_path: Path | None, events: Events
) -> NoReturn:
    from superinfer_executor.engine import core_process
    from superinfer_executor.engine.start import start_engine
    from superinfer_executor.serving.server import start_server
    from superinfer_executor.serving.service import EngineService
    from superinfer_executor.serving.warm_up import warm_up

    engine = await start_engine(arguments, scheduler=settings.engine.scheduler, progress=events.step)
    stop_watching = core_process.watch(engine.llm, _core_ended)
    service = EngineService(engine, facts_path)
    events.step("warm-up")
    await warm_up(service, engine.info.model)
    server = await start_server(service, settings.socket)
    stop = _stop_signal()
    events.tell(
        "ready",
        engine=engine.info.version,
        model=engine.info.model,
        socket=str(settings.socket),
        generation=engine.info.generation,
        scheduler=engine.info.scheduler,
        dtype=engine.info.dtype,
        pid=os.getpid(),
    )
    code = await _until_stopped(service, stop, settings.grace_s, server.not_serving)
    await server.stop()
    service.close()
    stop_watching()
    if code == 0:
        engine.llm.shutdown(timeout=1.0)
    events.tell("stopped", code=code)
    # Skips seconds of taking native libraries down; EngineCore, if it still is, dies with this process.
    _leave(code)


def _core_ended(pid: int) -> NoReturn:
    """Nothing can be finished any more; the end of this process tells the sidecar at once."""
    log.error("EngineCore (process %d) has ended", pid)
    _leave(EXIT_ENGINE_DEAD)


def _leave(code: int) -> NoReturn:
    logging.shutdown()
    sys.stderr.flush()
    os._exit(code)


def _stop_signal() -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def _until_stopped(
    service: Any, stop: asyncio.Event, grace_s: float, not_serving: Callable[[], Any]
) -> int:
    """Wait for a signal and drain, or for the engine's death; the exit code."""
    waiting = [asyncio.create_task(stop.wait()), asyncio.create_task(service.dead.wait())]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    await not_serving()
    if not service.dead.is_set():
        draining = asyncio.create_task(service.drain(grace_s))
        await asyncio.wait({draining, waiting[1]}, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    if service.dead.is_set():
        # Streams have their error by now; give their frames a moment to leave.
        await asyncio.sleep(0.2)
        return EXIT_ENGINE_DEAD
    return 0
