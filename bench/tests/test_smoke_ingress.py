"""bench-ingress end to end, small: real processes, a real peer, sane figures. No timing is asserted."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(300)
def test_bench_ingress_writes_its_result(tmp_path: Path) -> None:
    out = tmp_path / "ingress.json"
    command = [sys.executable, "-m", "superinfer_bench.ingress", "--smoke", "--peers", "vllm-router"]
    done = subprocess.run([*command, "--out", str(out)], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-4000:]
    result = json.loads(out.read_text())
    assert {"commit", "machine", "aims", "runs"} <= set(result)
    rows = {row["proxy"]: row for row in result["runs"]}
    assert set(rows) == {"superinfer", "vllm-router", "direct"}
    for name in ("superinfer", "vllm-router"):
        row = rows[name]
        assert row["streams"] == 64
        assert row["requests_per_core_s"] > 0
        assert row["tokens_per_core_s"] > 0
        assert row["rss_mb"] > 0
        assert row["failures"] == {}
        assert set(row["added_ms"]) == {"p50", "p99"}
    # One chunk per token, and one that opens the answer.
    assert 1.0 <= rows["superinfer"]["chunks_per_token"] <= 1.05
    assert all(set(aim) == {"name", "aim", "got", "met"} for aim in result["aims"])
