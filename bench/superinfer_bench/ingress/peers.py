"""The proxies we measure ourselves against, in a virtual environment of their own, pinned and cached.

Their environment is made with uv the first time (half a minute, some hundred megabytes) and again when the
pinned requirements change.
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
from superinfer_bench.report import ROOT
from superinfer_bench.stack import BenchFailed

REQUIREMENTS: Final = ROOT / "bench" / "peers" / "requirements.txt"
VENV: Final = ROOT / "build" / "peers" / "venv"
MODEL: Final = "stub"


@dataclass(frozen=True, slots=True)
class Peer:
    """One proxy: how to start it in front of an OpenAI server, and where it says it is up."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    health: str
    version: str


def install_peers(say: Callable[[str], None]) -> Path:
    """The environment's bin directory; made when it is not there or not current."""
    stamp, wanted = VENV / ".requirements", hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return VENV / "bin"
    say("installing litellm and vllm-router into build/peers/venv (once)")
    uv = _uv()
    VENV.parent.mkdir(parents=True, exist_ok=True)
    environment = {k: v for k, v in os.environ.items() if k not in UNWANTED_ENVIRONMENT | {"VIRTUAL_ENV"}}
    python = str(VENV / "bin" / "python")
    for command in (
        [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(VENV)],
        [uv, "pip", "install", "--quiet", "--python", python, "--compile-bytecode", "-r", str(REQUIREMENTS)],
    ):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BenchFailed(f"the peers could not be installed:\n{done.stderr.strip()[-2000:]}")
    stamp.write_text(wanted)
    return VENV / "bin"


def peers(bin_dir: Path, *, upstream: str, ports: Mapping[str, int], run_dir: Path) -> list[Peer]:
    """The proxies in front of `upstream` (an URL without /v1)."""
    config = run_dir / "litellm.yaml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(yaml.safe_dump(_litellm_config(upstream)), encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if k not in UNWANTED_ENVIRONMENT | {"VIRTUAL_ENV"}}
    router = [str(bin_dir / "vllm-router"), "--worker-urls", upstream, "--policy", "round_robin"]
    router += ["--host", "127.0.0.1", "--port", str(ports["vllm-router"]), "--disable-retries"]
    router += ["--disable-circuit-breaker", "--log-level", "error", "--max-concurrent-requests", "4096"]
    router += ["--prometheus-port", str(ports["vllm-router-metrics"])]
    litellm = [str(bin_dir / "litellm"), "--config", str(config), "--host", "127.0.0.1"]
    litellm += ["--port", str(ports["litellm"]), "--num_workers", "1", "--telemetry", "False"]
    return [
        Peer("vllm-router", tuple(router), environment, "/health", _version(bin_dir, "vllm-router")),
        Peer(
            "litellm",
            tuple(litellm),
            {
                **environment,
                "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
                "LITELLM_LOG": "ERROR",
                "LITELLM_MODE": "PRODUCTION",
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it asks the network for prices
            },
            "/health/liveliness",
            _version(bin_dir, "litellm"),
        ),
    ]


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
