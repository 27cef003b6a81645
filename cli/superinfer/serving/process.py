"""What to run: the specification of one process of `superinfer serve`, and what is reported about it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any


class Role(StrEnum):
    """Part a process plays; stopped in the order listed, so that streams finish before engines go."""

    INGRESS = "ingress"
    SIDECAR = "sidecar"
    EXECUTOR = "executor"


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One process: its command, environment, log file, and how long it may take to stop."""

    name: str
    role: Role
    command: tuple[str, ...]
    env: Mapping[str, str]
    log: Path
    grace_s: float = 10.0


class EventKind(StrEnum):
    """What can be said about a process."""

    STARTING = "starting"
    PROGRESS = "progress"
    READY = "ready"
    CRASHED = "crashed"
    GAVE_UP = "gave_up"
    STOPPING = "stopping"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ProcessEvent:
    """Something happened to a process; `detail` is for people, `fields` are the process' own words."""

    name: str
    kind: EventKind
    detail: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
