"""What a user asked of `superinfer serve`, checked before anything starts."""

import os
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from superinfer.serving.ports import cannot_listen
from superinfer.serving.shared_memory import SHARED_MEMORY, free_mib
from superinfer_core.prediction.profile import Profile, ProfileInvalid
from superinfer_core.scheduling.policy import PolicyInvalid, SchedulingPolicy
from superinfer_ingress.contracts.keys import KeysInvalid, load_keys
from superinfer_ingress.small_file import read_small_text


class Auth(StrEnum):
    """Who may ask: anyone (trying out), or holders of a key."""

    OPEN = "open"
    REQUIRED = "required"


class Policy(StrEnum):
    """Who decides the order inside the engine; the last two are vLLM's own, for comparison."""

    SUPERINFER = "superinfer"
    FCFS = "fcfs"
    PRIORITY = "priority"


class Checkpoint(StrEnum):
    """Whether KV blocks of running requests are saved outside their engine."""

    ON = "on"
    OFF = "off"


class CannotServe(Exception):
    """A wrong option: what is wrong, and what to do about it."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(problem)
        self.fix = fix


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """One `superinfer serve`, resolved: paths exist, the port is free.

    Attributes:
        model: prepared model directory, or None for the stub.
        served_name: what clients put in `model`.
        step_ms, prefill_ms_per_token: pace of the stub.
        checkpoint_mib: shared memory of each executor, half for its own blocks, half for its peers'.
    """

    served_name: str
    model: Path | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    executors: int = 1
    contracts: Path | None = None
    auth: Auth = Auth.OPEN
    keys: Path | None = None
    without_contract: str = "BestEffort"
    profile: Path | None = None
    scheduling_policy: Path | None = None
    scheduler: Policy = Policy.SUPERINFER
    max_num_seqs: int | None = None
    max_model_len: int | None = None
    kv_gib: int = 1
    grace_s: float = 30.0
    step_ms: float = 20.0
    prefill_ms_per_token: float = 0.2
    engine_args: tuple[str, ...] = ()
    checkpoint: Checkpoint = Checkpoint.OFF
    checkpoint_mib: int = 512

    @property
    def saves_checkpoints(self) -> bool:
        """Only our scheduler can go on with a request, and a stub has nothing to save."""
        return self.checkpoint is Checkpoint.ON and not self.stub and self.scheduler is Policy.SUPERINFER

    @property
    def stub(self) -> bool:
        """No model behind it."""
        return self.model is None

    def check(self) -> None:
        """Raise `CannotServe` for anything that would only fail later."""
        if self.executors < 1:
            raise CannotServe(f"--executors is {self.executors}", "Ask for at least one executor.")
        obstacle = cannot_listen(self.host, self.port)
        if obstacle is not None:
            raise CannotServe(*obstacle)
        self.check_model()
        self.check_stub()
        self.check_shared_memory()
        self.check_files()
        if self.contracts is not None and not self.contracts.is_dir():
            raise CannotServe(f"--contracts {self.contracts} is not a directory", "Check the path.")

    def with_profile(self, profile: Path) -> "ServeOptions":
        """The same, predicting from a measured profile."""
        return replace(self, profile=profile)

    def check_shared_memory(self) -> None:
        """Raise `CannotServe` where checkpoints would not fit."""
        needed, free = self.checkpoint_mib * self.executors, free_mib()
        if self.saves_checkpoints and needed > free:
            raise CannotServe(
                f"checkpoints need {needed} MiB of shared memory, {free} MiB are free in {SHARED_MEMORY}",
                "Give less with --checkpoint-mib, or none with --checkpoint off.",
            )

    def check_stub(self) -> None:
        """Raise `CannotServe` for what a stub would silently leave out."""
        if self.stub and self.engine_args:
            raise CannotServe(
                f"--stub has no engine that takes {' '.join(self.engine_args)}",
                "Leave it out, or leave out --stub.",
            )

    def check_files(self) -> None:
        """Raise `CannotServe` for a file no process could start with."""
        try:
            if self.profile is not None:
                Profile.load_json(read_small_text(self.profile))
        except (OSError, UnicodeDecodeError, ProfileInvalid) as wrong:
            raise CannotServe(
                f"--profile {self.profile}: {_in_short(wrong)}",
                "Make one with `superinfer profile --out FILE`.",
            ) from None
        try:
            if self.scheduling_policy is not None:
                SchedulingPolicy.from_yaml(read_small_text(self.scheduling_policy))
        except (OSError, UnicodeDecodeError, PolicyInvalid) as wrong:
            raise CannotServe(
                f"--policy {self.scheduling_policy}: {_in_short(wrong)}", "Correct the file."
            ) from None
        creates = "Create one with `superinfer keys create NAME --keys keys.yaml`."
        if self.keys is None and self.auth is Auth.REQUIRED:
            raise CannotServe("--auth required needs a file of API keys", creates)
        try:
            if self.keys is not None:
                load_keys(self.keys)
        except KeysInvalid as wrong:
            raise CannotServe(f"--keys {wrong}", creates) from None

    def check_model(self) -> None:
        """Raise `CannotServe` when there is no model where one should be."""
        if self.model is not None and not (self.model / "config.json").is_file():
            raise CannotServe(
                f"no model in {self.model} (config.json is missing)",
                "Give a Hugging Face model directory, or one of the names smollm2 and tiny.",
            )


def _in_short(wrong: Exception) -> str:
    return (wrong.strerror or str(wrong)) if isinstance(wrong, OSError) else str(wrong)


def omp_threads(executors: int) -> int:
    """Threads of each engine: the cores divided, one left for ingress and sidecars."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, (cores - 1) // executors)
