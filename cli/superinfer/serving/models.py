"""Model names a user may give instead of a directory, prepared once per machine."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from superinfer.paths import models_dir
from superinfer.serving.interrupts import Interrupted, raising_on_signals
from superinfer.serving.launch import cannot_outlive_us
from superinfer.serving.options import CannotServe
from superinfer.serving.plan import UNWANTED_ENVIRONMENT

KNOWN: Final = {
    "smollm2": "SmolLM2-135M-Instruct",
    "tiny": "a tiny Llama with random weights",
}
SAID_EVERY_S: Final = 0.5
CLEANS_UP_WITHIN_S: Final = 10.0


def model_directory(model: str, say: Callable[[str], None]) -> Path:
    """The directory of `model`, a known name (prepared when it is not there yet) or a path.

    Raises:
        CannotServe: there is no such model, or it could not be prepared.
        Interrupted: the user asked to stop; nothing half-made is left.
    """
    path = Path(model)
    if model not in KNOWN:
        if not model or not path.is_dir():
            names = " or ".join(KNOWN)
            raise CannotServe(
                f"no model {model!r}", f"Give {names}, or the path of a Hugging Face model directory."
            )
        return path.resolve()
    directory = models_dir() / model
    _prepare(model, directory, say)  # at once when it is there already and current
    return directory


def stopped_while_preparing(model: str) -> str:
    """What somebody is told who stopped a command during `model_directory`."""
    return (
        f"stopped while preparing {KNOWN.get(model, model)}; nothing half-made is kept, "
        "and the next start prepares it from what is installed (no download)"
    )


def _prepare(model: str, directory: Path, say: Callable[[str], None]) -> None:
    directory.parent.mkdir(parents=True, exist_ok=True)
    command = (sys.executable, "-m", "superinfer_executor", "models", model, "--out", str(directory))
    env = {key: value for key, value in os.environ.items() if key not in UNWANTED_ENVIRONMENT}
    last = "starting"

    def relay(lines: Iterable[str]) -> None:
        nonlocal last
        for line in lines:
            last = line.strip().removeprefix("superinfer models: ") or last

    with raising_on_signals():
        process = subprocess.Popen(
            cannot_outlive_us(command),
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is ours to hand on
        )
        reader = threading.Thread(target=relay, args=(process.stderr or (),), daemon=True)
        reader.start()
        try:
            returncode = _until_ended(process, lambda: say(f"preparing {KNOWN[model]}: {last[-100:]}"))
        except Interrupted:
            _end(process)
            raise
    reader.join(timeout=5)
    if returncode != 0:
        raise CannotServe(f"{model} could not be prepared: {last}", f"Try again with: {' '.join(command)}")


def _until_ended(process: subprocess.Popen[str], say: Callable[[], None]) -> int:
    """The exit code; says what is being done until then, so that nobody waits before a silent screen."""
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=SAID_EVERY_S)
        say()


def _end(process: subprocess.Popen[str]) -> None:
    """Let it clean up after itself; a second signal does not wait for that."""
    process.terminate()
    try:
        process.wait(timeout=CLEANS_UP_WITHIN_S)
    except (subprocess.TimeoutExpired, Interrupted):
        process.kill()
        process.wait()
