"""What bench-slo compares, and how each side is set up."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from superinfer_bench.stack import EngineCommand, StackOptions

MODEL_NAME: Final = "tiny"
PERCENTILES: Final = {"gold": 99, "silver": 99, "bronze": 95}
AVAILABILITY: Final = {"gold": 0.9, "silver": 0.8, "bronze": 0.5}
CONTRACTS_PER_TIER: Final = 10


@dataclass(frozen=True, slots=True)
class SloSettings:
    """One benchmark.

    Attributes:
        trace: CSV or JSON lines; None for the seeded synthetic mix with bursts.
        requests: of each run.
        loads: offered load as a share of saturation.
        max_prompt_tokens: longer prompts of the trace are cut.
        refused_checked: refused requests of a run put back into the simulator, at most.
        quick: the smoke: coarser calibration, no second path for fcfs.
    """

    out: Path
    model: Path
    trace: Path | None = None
    requests: int = 600
    loads: tuple[float, ...] = (0.7, 1.0, 1.5, 2.0)
    policies: tuple[str, ...] = ("fcfs", "priority", "edf", "superinfer")
    direct: bool = True
    gold_alone: bool = True
    seed: int = 1
    max_num_seqs: int = 32
    max_step_tokens: int = 2048
    max_model_len: int = 10_240
    max_prompt_tokens: int = 8000
    refused_checked: int = 40
    scheduling: Mapping[str, Any] = field(default_factory=dict)
    quick: bool = False

    @property
    def records_dir(self) -> Path:
        """Where the requests of every run are kept, one JSON line each."""
        return self.out.with_suffix("").parent / f"{self.out.stem}-records"

    @property
    def vllm_arguments(self) -> tuple[str, ...]:
        """The same for everyone; the rest is vLLM's default (chunked prefill and prefix caching on)."""
        return (
            *("--max-num-seqs", str(self.max_num_seqs)),
            *("--max-num-batched-tokens", str(self.max_step_tokens)),
            *("--max-model-len", str(self.max_model_len)),
        )


@dataclass(frozen=True, slots=True)
class PolicySetup:
    """One contender.

    Attributes:
        scheduler: of the executor; fcfs and priority are vLLM's own, untouched.
        admission: whether the sidecar admits and queues by slack; baselines serve everyone, at once.
        scheduling: the scheduling policy, where ours differs from its default.
    """

    name: str
    scheduler: str
    admission: bool = False
    scheduling: Mapping[str, Any] = field(default_factory=dict)

    def stack(
        self, settings: SloSettings, *, profile: Path | None, policy_file: Path | None, contracts: Path
    ) -> StackOptions:
        """The processes of this contender."""
        arguments = ["--model", str(settings.model), "--served-model-name", MODEL_NAME]
        arguments += ["--scheduler", self.scheduler]
        sidecar = ["--max-queued", "100000", "--max-queued-mib", "1024"]
        ours = ["--profile", str(profile)] if profile is not None and self.scheduler == "superinfer" else []
        if policy_file is not None:
            ours += ["--policy", str(policy_file)]
        sidecar += ours if self.admission else ["--admission", "skip", "--order", "fcfs"]
        return StackOptions(
            EngineCommand("serve", (*arguments, *ours), settings.vllm_arguments),
            tuple(sidecar),
            {"contracts": str(contracts), **({} if self.admission else {"admission": "Skip"})},
        )


def policy_setups(settings: SloSettings) -> dict[str, PolicySetup]:
    """Every contender by name."""
    edf = {"order": "edf", "step_budget": False, "max_preemptions": 0}
    setups = [
        PolicySetup("fcfs", "fcfs"),
        PolicySetup("priority", "priority"),
        PolicySetup("edf", "superinfer", scheduling=edf),
        PolicySetup("superinfer", "superinfer", admission=True, scheduling=settings.scheduling),
    ]
    return {setup.name: setup for setup in setups}
