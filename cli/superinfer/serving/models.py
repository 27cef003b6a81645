"""Model names a user may give instead of a directory, prepared once per machine."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from superinfer.paths import models_dir
from superinfer.serving.options import CannotServe
from superinfer.serving.plan import UNWANTED_ENVIRONMENT

KNOWN: Final = {
    "smollm2": "SmolLM2-135M-Instruct",
    "tiny": "a tiny Llama with random weights",
}


def model_directory(model: str, say: Callable[[str], None]) -> Path:
    """The directory of `model`, a known name (prepared when it is not there yet) or a path.

    Raises:
        CannotServe: there is no such model, or it could not be prepared.
    """
    path = Path(model)
    if model not in KNOWN:
        if not path.is_dir():
            names = " or ".join(KNOWN)
            raise CannotServe(
                f"no model {model!r}", f"Give {names}, or the path of a Hugging Face model directory."
            )
        return path.resolve()
    directory = models_dir() / model
    _prepare(model, directory, say)  # at once when it is there already and current
    return directory


def _prepare(model: str, directory: Path, say: Callable[[str], None]) -> None:
    directory.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "superinfer_executor", "models", model, "--out", str(directory)]
    env = {key: value for key, value in os.environ.items() if key not in UNWANTED_ENVIRONMENT}
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    last = ""

    def relay() -> None:
        nonlocal last
        for line in process.stderr or ():
            last = line.strip().removeprefix("superinfer models: ") or last
            say(f"preparing {KNOWN[model]}: {last[-100:]}")

    reader = threading.Thread(target=relay, daemon=True)
    reader.start()
    try:
        returncode = process.wait()
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise
    reader.join(timeout=5)
    if returncode != 0:
        raise CannotServe(f"{model} could not be prepared: {last}", f"Try again with: {' '.join(command)}")
