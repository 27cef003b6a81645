"""The report of a run: `build/e2e/report.json`, written whatever the outcome."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from e2e.cluster import layout

REPORT: Final = layout.BUILD / "report.json"


@dataclass(slots=True)
class Report:
    """What a run showed; one per session of pytest."""

    suite: str
    cases: dict[str, dict[str, object]] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    started: float = field(default_factory=time.time)

    def record(self, name: str, *, passed: bool, seconds: float, what: str) -> None:
        """Add a phase of a case; a case passed when all its phases did."""
        case = self.cases.setdefault(name, {"name": name, "shows": what, "passed": True, "seconds": 0.0})
        case["passed"] = bool(case["passed"]) and passed
        case["seconds"] = round(float(str(case["seconds"])) + seconds, 1)

    def write(self, path: Path = REPORT) -> None:
        """Write the report."""
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = {
            "suite": self.suite,
            "commit": _commit(),
            "machine": _machine(),
            "seconds": round(time.time() - self.started, 1),
            "aims": {"cases": "all passed", "core_suite_s": 1500, "failed_requests": 0},
            "passed": bool(self.cases) and all(case["passed"] for case in self.cases.values()),
            "cases": list(self.cases.values()),
            "apply_to_first_token_s": self.figures.get("apply_to_first_token_s"),
            "figures": self.figures,
        }
        path.write_text(json.dumps(whole, indent=2) + "\n")


def _commit() -> str:
    def git(*words: str) -> str:
        result = subprocess.run(["git", *words], cwd=layout.ROOT, capture_output=True, text=True, check=False)
        return result.stdout.strip()

    return git("rev-parse", "HEAD") + ("-dirty" if git("status", "--porcelain") else "")


def _machine() -> dict[str, object]:
    memory = next(
        (
            line.split()[1]
            for line in Path("/proc/meminfo").read_text().splitlines()
            if line.startswith("MemTotal")
        ),
        "0",
    )
    return {
        "cpus": os.cpu_count(),
        "memory_gib": round(int(memory) / 1024**2, 1),
        "kernel": platform.release(),
        "kubernetes": layout.KUBERNETES,
        "nodes": f"kind: 1 control plane, {layout.WORKERS} workers",
    }
