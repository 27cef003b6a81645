"""bench-slo end to end on a real engine, small: every figure there and sane. No timing is asserted."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.vllm
@pytest.mark.timeout(600)
def test_bench_slo_writes_its_result(tmp_path: Path) -> None:
    out = tmp_path / "slo.json"
    command = [sys.executable, "-m", "superinfer_bench.slo", "--smoke", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580)
    assert done.returncode == 0, done.stderr[-4000:]
    result = json.loads(out.read_text())
    assert {"commit", "machine", "aims", "runs", "saturation", "unloaded", "gold_alone"} <= set(result)
    assert [run["policy"] for run in result["runs"]] == ["fcfs", "superinfer"]
    for run in result["runs"]:
        assert run["tokens_per_s"] > 0
        for tier in run["tiers"].values():
            assert 0 <= tier["kept"] <= tier["admitted"] <= tier["offered"]
        offered = sum(tier["offered"] for tier in run["tiers"].values())
        admitted = sum(tier["admitted"] for tier in run["tiers"].values())
        assert offered == run["requests"] == admitted + run["refused"]
        # Where the machine stalls, admitted work may come too late to be served; it is told, not hidden.
        assert 0 <= run["broken"] <= admitted
        assert 0 <= run["kept_of_contracts"] <= 1
    baseline = result["runs"][0]
    assert (baseline["refused"], baseline["broken"]) == (0, 0), "a baseline serves everyone"
    records = (tmp_path / "slo-records" / "superinfer-1.5.jsonl").read_text().splitlines()
    assert len(records) == result["requests"]
