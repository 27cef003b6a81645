"""The proxies we measure ourselves against, each in a virtual environment of its own, pinned and cached.

An environment is made with uv the first time (litellm's takes half a minute) and again when the pinned
requirements change.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from superinfer.serving.plan import UNWANTED_ENVIRONMENT
from superinfer.serving.ports import free_port
from superinfer_bench.report import ROOT
from superinfer_bench.stack import BenchFailed

REQUIREMENTS: Final = ROOT / "bench" / "peers" / "requirements.txt"
VENVS: Final = ROOT / "build" / "peers"
MODEL: Final = "stub"
PACKAGES: Final = {"vllm-router": "vllm-router", "litellm": "litellm[proxy]"}


@dataclass(frozen=True, slots=True)
class Peer:
    """One proxy: how to start it in front of an OpenAI server, and where it says it is up."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    health: str
    version: str


def install_peer(name: str, say: Callable[[str], None]) -> Path:
    """The bin directory of a peer's environment; made when it is not there or not current."""
    venv = VENVS / name
    stamp, wanted = venv / ".requirements", hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return venv / "bin"
    say(f"installing {name} into {venv} (once)")
    uv = _uv()
    venv.parent.mkdir(parents=True, exist_ok=True)
    environment = {k: v for k, v in os.environ.items() if k not in UNWANTED_ENVIRONMENT | {"VIRTUAL_ENV"}}
    install = [
        uv,
        "pip",
        "install",
        "--quiet",
        "--python",
        str(venv / "bin" / "python"),
        "--compile-bytecode",
    ]
    for command in (
        [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(venv)],
        [*install, "--constraint", str(REQUIREMENTS), PACKAGES[name]],
    ):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BenchFailed(f"{name} could not be installed:\n{done.stderr.strip()[-2000:]}")
    stamp.write_text(wanted)
    return venv / "bin"


def peer(name: str, bin_dir: Path, *, upstream: str, port: int, run_dir: Path) -> Peer:
    """A proxy on `port` in front of `upstream` (a URL without /v1)."""
    environment = {k: v for k, v in os.environ.items() if k not in UNWANTED_ENVIRONMENT | {"VIRTUAL_ENV"}}
    version = _version(bin_dir, name)
    if name == "vllm-router":
        return Peer(name, _router_command(bin_dir, upstream, port), environment, "/health", version)
    config = run_dir / "litellm.yaml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(yaml.safe_dump(_litellm_config(upstream)), encoding="utf-8")
    command = [str(bin_dir / "litellm"), "--config", str(config), "--host", "127.0.0.1"]
    command += ["--port", str(port), "--num_workers", "1", "--telemetry", "False"]
    ours = {
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        "LITELLM_LOG": "ERROR",
        "LITELLM_MODE": "PRODUCTION",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it asks the network for prices
    }
    return Peer(name, tuple(command), {**environment, **ours}, "/health/liveliness", version)


def _router_command(bin_dir: Path, upstream: str, port: int) -> tuple[str, ...]:
    command = [str(bin_dir / "vllm-router"), "--worker-urls", upstream]  # its own default policy
    command += ["--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port())]
    command += ["--max-concurrent-requests", "4096"]
    return (*command, "--log-level", "error")


def _litellm_config(upstream: str) -> dict[str, object]:
    return {
        "model_list": [
            {
                "model_name": MODEL,
                "litellm_params": {
                    "model": f"openai/{MODEL}",
                    "api_base": f"{upstream}/v1",
                    "api_key": "none",
                },
            }
        ],
        "litellm_settings": {"telemetry": False, "drop_params": False, "num_retries": 0},
    }


def _version(bin_dir: Path, package: str) -> str:
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    done = subprocess.run([str(bin_dir / "python"), "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _uv() -> str:
    found = shutil.which("uv") or next((str(p) for p in sorted(ROOT.glob(".tools/uv-*/bin/uv"))), None)
    if found is None:
        raise BenchFailed("uv is not installed; run `make setup`, or pip install uv")
    return found
