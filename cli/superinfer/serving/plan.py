"""From what a user asked to what runs: command lines, environments and the ingress' configuration.

Pure: the same options and directory give the same plan.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from superinfer.serving.options import Auth, Policy, ServeOptions, omp_threads
from superinfer.serving.process import ProcessSpec, Role
from superinfer.serving.shared_memory import checkpoint_root

UNWANTED_ENVIRONMENT = frozenset(
    {
        "PYTHONDONTWRITEBYTECODE",  # every process would compile vLLM anew, half a minute each
        "PYTHONPATH",
        "VLLM_PORT",  # a Kubernetes Service named vllm injects a URL here, which vLLM cannot read
    }
)
STOP_MARGIN_S = 5.0
STALE_AFTER_MS = 1_000.0
DEAD_AFTER_MS = 15_000.0
"""Engine, sidecar and ingress share the cores of one machine here: a late report is no lost executor, and a
sidecar that really ends is noticed by its broken connection."""
DEFAULT_MAX_NUM_SEQS = 8
DEFAULT_MAX_MODEL_LEN = 2048


@dataclass(frozen=True, slots=True)
class ServePlan:
    """Everything `superinfer serve` writes and starts."""

    run_dir: Path
    processes: tuple[ProcessSpec, ...]
    ingress_config: Mapping[str, Any]

    @property
    def config_path(self) -> Path:
        """The ingress' configuration file."""
        return self.run_dir / "ingress.yaml"

    def write(self) -> None:
        """Put the configuration where the ingress will read it."""
        self.run_dir.mkdir(parents=True, exist_ok=True)
        self.config_path.write_text(yaml.safe_dump(dict(self.ingress_config), sort_keys=False))


def plan(
    options: ServeOptions, *, run_dir: Path, environment: Mapping[str, str], contracts: Path
) -> ServePlan:
    """The processes of one machine."""
    env = {key: value for key, value in environment.items() if key not in UNWANTED_ENVIRONMENT}
    names = [f"executor-{number}" for number in range(options.executors)]
    processes = [
        *(_executor(options, name, run_dir, env) for name in names),
        *(_sidecar(options, name, run_dir, env) for name in names),
        _ingress(options, run_dir, env),
    ]
    return ServePlan(run_dir, tuple(processes), _ingress_config(options, names, run_dir, contracts))


def engine_plan(options: ServeOptions, *, run_dir: Path, environment: Mapping[str, str]) -> ProcessSpec:
    """One engine and nothing in front of it, to be measured."""
    env = {key: value for key, value in environment.items() if key not in UNWANTED_ENVIRONMENT}
    return _executor(options, "engine", run_dir, env)


def request_log(run_dir: Path) -> Path:
    """Where the ingress writes one JSON line per finished request."""
    return run_dir / "requests.jsonl"


def engine_socket(run_dir: Path, executor: str) -> Path:
    """Where an executor's engine listens."""
    return run_dir / f"{executor}.sock"


def _sidecar_address(run_dir: Path, executor: str) -> str:
    return f"unix:{run_dir / executor}-sidecar.sock"


def _executor(options: ServeOptions, name: str, run_dir: Path, env: Mapping[str, str]) -> ProcessSpec:
    socket = str(engine_socket(run_dir, name))
    module = [sys.executable, "-m", "superinfer_executor"]
    if options.stub:
        command = [
            *(*module, "stub", "--socket", socket, "--served-model-name", options.served_name),
            *("--step-ms", str(options.step_ms)),
            *("--prefill-ms-per-token", str(options.prefill_ms_per_token)),
            *("--max-num-seqs", str(options.max_num_seqs or DEFAULT_MAX_NUM_SEQS)),
            *("--max-model-len", str(options.max_model_len or DEFAULT_MAX_MODEL_LEN)),
            *("--grace-s", str(options.grace_s)),
        ]
    else:
        command = [*module, "serve", "--socket", socket, "--model", str(options.model)]
        command += ["--served-model-name", options.served_name, "--scheduler", options.scheduler.value]
        if options.profile is not None:
            command += ["--profile", str(options.profile)]
        if options.scheduling_policy is not None:
            command += ["--policy", str(options.scheduling_policy)]
        if options.saves_checkpoints:
            command += ["--checkpoint-dir", str(checkpoint_root(run_dir) / name)]
            command += ["--checkpoint-memory-mib", str(max(1, options.checkpoint_mib // 2))]
        command += ["--grace-s", str(options.grace_s), "--", *_vllm_args(options)]
    return ProcessSpec(
        name=name,
        role=Role.EXECUTOR,
        command=tuple(command),
        env={**env, **_engine_environment(options)},
        log=run_dir / "logs" / f"{name}.log",
        grace_s=options.grace_s + STOP_MARGIN_S,
    )


def _vllm_args(options: ServeOptions) -> list[str]:
    given = {part.partition("=")[0] for part in options.engine_args}
    defaults = {
        "--max-num-seqs": str(options.max_num_seqs or DEFAULT_MAX_NUM_SEQS),
        "--max-model-len": str(options.max_model_len or DEFAULT_MAX_MODEL_LEN),
    }
    chosen = [part for flag, value in defaults.items() if flag not in given for part in (flag, value)]
    return [*chosen, *options.engine_args]


def _engine_environment(options: ServeOptions) -> dict[str, str]:
    return {
        "OMP_NUM_THREADS": str(omp_threads(options.executors)),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # automatic binding takes core 0 for every engine
        "VLLM_CPU_KVCACHE_SPACE": str(options.kv_gib),
        "VLLM_NO_USAGE_STATS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def _sidecar(options: ServeOptions, executor: str, run_dir: Path, env: Mapping[str, str]) -> ProcessSpec:
    command = [
        *(sys.executable, "-m", "superinfer_sidecar"),
        *("--listen", _sidecar_address(run_dir, executor)),
        *("--engine-socket", str(engine_socket(run_dir, executor))),
        *("--executor-name", executor),
        *("--grace-s", str(options.grace_s)),
    ]
    if options.profile is not None:
        command += ["--profile", str(options.profile)]
    if options.scheduling_policy is not None:
        command += ["--policy", str(options.scheduling_policy)]
    if options.scheduler is not Policy.SUPERINFER:
        command += ["--order", "fcfs", "--admission", "skip"]
    if options.saves_checkpoints:
        command += [
            *("--checkpoint-dir", str(checkpoint_root(run_dir) / executor)),
            *("--checkpoint-store-mib", str(max(1, options.checkpoint_mib // 2))),
            *("--checkpoint-peers", "Any"),  # of one machine: no farther one is to be had
        ]
    name = executor.replace("executor", "sidecar")
    return ProcessSpec(
        name=name,
        role=Role.SIDECAR,
        command=tuple(command),
        env=env,
        log=run_dir / "logs" / f"{name}.log",
        grace_s=options.grace_s + STOP_MARGIN_S,
    )


def _ingress(options: ServeOptions, run_dir: Path, env: Mapping[str, str]) -> ProcessSpec:
    command = (sys.executable, "-m", "superinfer_ingress", "--config", str(run_dir / "ingress.yaml"))
    return ProcessSpec(
        name="ingress",
        role=Role.INGRESS,
        command=command,
        env=env,
        log=run_dir / "logs" / "ingress.log",
        grace_s=options.grace_s + STOP_MARGIN_S,
    )


def _ingress_config(
    options: ServeOptions, executors: list[str], run_dir: Path, contracts: Path
) -> dict[str, Any]:
    config: dict[str, Any] = {
        "host": options.host,
        "port": options.port,
        "executors": [
            {"name": name, "address": _sidecar_address(run_dir, name), "pool": "default"}
            for name in executors
        ],
        "contracts": str(contracts),
        "auth": "Required" if options.auth is Auth.REQUIRED else "Open",
        "withoutContract": options.without_contract,
        "shutdownGrace": options.grace_s,
        "requestLog": str(request_log(run_dir)),
        "staleAfterMs": STALE_AFTER_MS,
        "deadAfterMs": DEAD_AFTER_MS,
    }
    if options.keys is not None:
        config["keys"] = str(options.keys)
    if options.scheduler is not Policy.SUPERINFER:
        config["admission"] = "Skip"
    return config
