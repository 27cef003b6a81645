"""What the executor decides for vLLM's command line and environment, unless the user has decided.

Pure: the caller applies the environment before anything of vLLM is imported.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from superinfer_executor.checkpoint.settings import CheckpointSettings
from superinfer_executor.plugin.settings import POLICY_ENV, PROFILE_ENV
from superinfer_executor.plugin.step_facts import SOCKET_ENV

FINGERPRINT: Final = "superinfer"
SCHEDULERS: Final = ("superinfer", "fcfs", "priority")
FAST_BF16_FLAGS: Final = frozenset({"amx_bf16", "avx512_bf16", "bf16"})
"""CPU flags (x86, arm) without which bfloat16 is several times slower than float32 in vLLM."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """One engine, as the executor's own command line describes it."""

    model: str
    served_model_name: str
    scheduler: str
    vllm_args: tuple[str, ...] = ()
    profile: str | None = None
    policy: str | None = None
    checkpoint: CheckpointSettings | None = None


def engine_environment(
    settings: EngineSettings, environment: Mapping[str, str], *, step_facts_socket: str | None, cpu: bool
) -> dict[str, str]:
    """Variables to set; those the user set stay."""
    wanted = {
        # No phone home, and logs beside the events on stdout would break them.
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    }
    if cpu:
        # One process fewer; needs the uni executor, see engine_args.
        wanted["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        # Automatic binding gives core 0 to every engine of a machine.
        wanted["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
        if not _is_given("--no-enforce-eager", settings.vllm_args):
            # vLLM compiles single functions at first use even when eager: the first request with logprobs
            # would stop the engine for 10 s and more.
            wanted["TORCHDYNAMO_DISABLE"] = "1"
    found = {name: value for name, value in wanted.items() if name not in environment}
    if step_facts_socket is not None:
        found[SOCKET_ENV] = step_facts_socket
    if settings.profile is not None:
        found[PROFILE_ENV] = settings.profile
    if settings.policy is not None:
        found[POLICY_ENV] = settings.policy
    return found


def misleading_variables(environment: Mapping[str, str]) -> list[str]:
    """Variables vLLM would misread: a Kubernetes Service named vllm sets VLLM_PORT to a URL."""
    return [name for name in ("VLLM_PORT",) if environment.get(name, "").startswith("tcp://")]


def engine_args(
    settings: EngineSettings, *, cpu: bool, cpu_flags: frozenset[str], scheduler_cls: str | None
) -> list[str]:
    """Command line for vLLM: ours first, the user's last."""
    given = settings.vllm_args
    arguments = ["--model", settings.model, "--served-model-name", settings.served_model_name]
    defaults: list[tuple[str, ...]] = [
        ("--fingerprint-mode", "custom"),
        ("--fingerprint-value", FINGERPRINT),
    ]
    if cpu:
        defaults.append(("--distributed-executor-backend", "uni"))
        # Compiling takes minutes and a C++ compiler on a CPU (SmolLM2-135M); --no-enforce-eager asks for it.
        if not _is_given("--no-enforce-eager", given):
            defaults.append(("--enforce-eager",))
        if not cpu_flags & FAST_BF16_FLAGS:
            defaults.append(("--dtype", "float32"))
    if settings.scheduler == "priority":
        defaults.append(("--scheduling-policy", "priority"))
    if settings.scheduler == "superinfer":
        if scheduler_cls is None:
            raise ValueError("the superinfer scheduler needs its class")
        # Its facts come by a channel of their own; a preempted victim must not go ahead of who displaced it.
        defaults += [
            ("--scheduler-cls", scheduler_cls),
            ("--scheduling-policy", "priority"),
            ("--disable-log-stats",),
        ]
    if settings.checkpoint is not None:
        defaults.append(("--kv-transfer-config", settings.checkpoint.kv_transfer_config()))
    for default in defaults:
        if not _is_given(default[0], given):
            arguments += default
    return [*arguments, *given]


def _is_given(option: str, arguments: Sequence[str]) -> bool:
    return any(argument == option or argument.startswith(f"{option}=") for argument in arguments)


def cpu_flags(cpuinfo: str) -> frozenset[str]:
    """Flags of the first processor in /proc/cpuinfo (x86 "flags", arm "Features")."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in {"flags", "Features"}:
            return frozenset(value.split())
    return frozenset()
