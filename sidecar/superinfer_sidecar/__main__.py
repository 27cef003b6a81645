"""`python -m superinfer_sidecar`: one sidecar until SIGTERM; one JSON line on stdout when its port is up."""

import asyncio
import json
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import uvloop

from superinfer_core.prediction.profile import Profile, ProfileInvalid
from superinfer_core.scheduling.policy import PolicyInvalid, SchedulingPolicy
from superinfer_core.small_input import small_input
from superinfer_proto.processes import spare_from_collection
from superinfer_sidecar.planner import Planner
from superinfer_sidecar.service import Sidecar
from superinfer_sidecar.settings import SidecarSettings, parse_settings

EXIT_USAGE: Final = 2
_LOG = logging.getLogger(__name__)
_Parsed = TypeVar("_Parsed")


class SettingsUnusable(Exception):
    """A file that an option names cannot be used; says which, and why."""


def make_planner(settings: SidecarSettings) -> Planner:
    """The planner of the given files.

    Raises:
        SettingsUnusable: one of them cannot be used.
    """
    policy = SchedulingPolicy()
    if settings.policy is not None:
        policy = _read("--policy", settings.policy, SchedulingPolicy.from_yaml)
    profile = None
    if settings.profile is not None:
        profile = _read("--profile", settings.profile, Profile.load_json)
    return Planner(policy, profile, learn_overhead=settings.learn_overhead)


def _read(option: str, path: Path, parse: Callable[[str], _Parsed]) -> _Parsed:
    try:
        with path.open("rb") as stream:
            return parse(small_input(stream.read, str(path)).decode("utf-8"))
    except OSError as error:
        raise SettingsUnusable(f"{option} {path}: {error.strerror or error}") from None
    except (UnicodeDecodeError, ProfileInvalid, PolicyInvalid) as error:
        raise SettingsUnusable(f"{option} {path}: {error}") from None


async def _run(settings: SidecarSettings, planner: Planner) -> int:
    if not planner.profiled:
        _LOG.warning("no --profile: step times are guessed until enough steps were seen")
    if settings.drained_file is not None:
        # One of a former life of this container would let the engine go at once.
        settings.drained_file.unlink(missing_ok=True)
    stop = asyncio.Event()
    # Before anything else: the first process of a container has no default action for signals.
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    sidecar = Sidecar(settings, planner)
    try:
        await sidecar.start()
    except OSError as error:
        sys.stderr.write(f"superinfer_sidecar: {error}\n")
        return EXIT_USAGE
    spare_from_collection()
    ready = {"event": "ready", "executor": settings.executor_name, "port": sidecar.port}
    if settings.metrics_port >= 0:
        ready["metrics_port"] = sidecar.metrics_port
    sys.stdout.write(json.dumps(ready) + "\n")
    sys.stdout.flush()
    await stop.wait()
    try:
        await sidecar.drain()
    finally:
        if settings.drained_file is not None:
            settings.drained_file.touch()
    return 0


def main(argv: Sequence[str]) -> int:
    """Run a sidecar; 0 after a clean drain, 2 for settings that cannot be used."""
    settings = parse_settings(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        planner = make_planner(settings)
    except SettingsUnusable as error:
        sys.stderr.write(f"superinfer_sidecar: {error}\n")
        return EXIT_USAGE
    code: int = uvloop.run(_run(settings, planner))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
