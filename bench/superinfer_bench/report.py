"""What every result file has: the commit, the machine, and each aim with what was got and whether it is met.

Promise: a file is whole or not there (written beside and renamed), so a run that is stopped leaves the
last complete state. An aim that could not be measured is not met and says so.
"""

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from superinfer.profiling.measure import machine_name

ROOT: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Aim:
    """One aim: its name, what was wanted in words, what was got, and whether that is enough."""

    name: str
    aim: str
    got: float | str | None
    met: bool

    @classmethod
    def at_least(cls, name: str, wanted: float, got: float | None, unit: str = "") -> "Aim":
        """`got` should not be below `wanted`."""
        return cls(name, f">= {wanted:g}{unit}", _rounded(got), got is not None and got >= wanted)

    @classmethod
    def at_most(cls, name: str, wanted: float, got: float | None, unit: str = "") -> "Aim":
        """`got` should not be above `wanted`."""
        return cls(name, f"<= {wanted:g}{unit}", _rounded(got), got is not None and got <= wanted)

    def as_json(self) -> dict[str, Any]:
        """As it stands in a file."""
        return {"name": self.name, "aim": self.aim, "got": self.got, "met": self.met}

    def line(self) -> str:
        """For people."""
        return f"  [{'met' if self.met else 'NOT met'}] {self.name}: {self.aim}, got {self.got}"


def commit() -> str:
    """The commit measured, marked when the tree differed from it; "unknown" outside a clone."""
    found = _git("rev-parse", "HEAD")
    if not found:
        return "unknown"
    return f"{found}-dirty" if _git("status", "--porcelain", "--untracked-files=no") else found


def document(aims: Sequence[Aim], rest: Mapping[str, Any]) -> dict[str, Any]:
    """A result: the shared keys first."""
    return {
        "commit": commit(),
        "machine": machine_name(),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "aims": [aim.as_json() for aim in aims],
        **rest,
    }


def write(path: Path, result: Mapping[str, Any]) -> None:
    """Replace `path` by the result."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(path.suffix + ".part")
    beside.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    beside.replace(path)


def tell(aims: Sequence[Aim], say: Callable[[str], None]) -> None:
    """The aims for people."""
    for aim in aims:
        say(aim.line())


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, timeout=20, check=False
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
