"""What the demo leaves behind: build/demo/result.json, and whether the story happened."""

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REQUEST_KEYS = (
    "id",
    "contract",
    "tier",
    "status",
    "code",
    "predicted_ttft_ms",
    "ttft_ms",
    "predicted_e2e_ms",
    "e2e_ms",
    "kept",
    "preempted",
)


@dataclass(frozen=True, slots=True)
class Aim:
    """Something the demo claims, and what was measured."""

    name: str
    aim: str
    got: Any
    met: bool


@dataclass(slots=True)
class Result:
    """The whole record."""

    machine: str
    aims: list[Aim] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)

    @property
    def told(self) -> bool:
        """Every part of the story happened."""
        return bool(self.aims) and all(aim.met for aim in self.aims)

    def write(self, path: Path) -> None:
        """Write the record as JSON."""
        document = {
            "commit": commit(),
            "machine": self.machine,
            "aims": [{"name": a.name, "aim": a.aim, "got": a.got, "met": a.met} for a in self.aims],
            "requests": self.requests,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=1) + "\n")


def requests_from_log(log: Path) -> list[dict[str, Any]]:
    """The ingress' own record of every finished request, with the keys of result.json."""
    if not log.is_file():
        return []
    records = [json.loads(line) for line in log.read_text().splitlines() if line.strip()]
    return [{key: record.get(key) for key in REQUEST_KEYS} for record in records]


def commit() -> str:
    """The commit this ran from, "unknown" outside a repository."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except OSError:
        return "unknown"
    return done.stdout.strip() if done.returncode == 0 else "unknown"
