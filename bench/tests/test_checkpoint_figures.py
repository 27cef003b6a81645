"""The figures of the checkpoint benchmark, from bursts whose numbers are known."""

import pytest

from superinfer_bench.checkpoint.__main__ import Collected, Prompts, _aims, _increment
from superinfer_bench.checkpoint.load import Burst
from superinfer_bench.checkpoint.site import Saved

RSS = {"engine": 100.0, "sidecar": 50.0}


def collected(*speeds: float, blocks: int = 0) -> Collected:
    bursts = [Burst(100, 300, 100 / speed, [1.0] * 98 + [5.0, 9.0]) for speed in speeds]
    saved = [Saved(blocks, blocks * 2_000_000, 1_000_000)] * len(bursts) if blocks else []
    return Collected(bursts, saved, RSS)


def test_a_row_says_what_a_mode_cost() -> None:
    row = collected(10.0, 20.0, 12.0, blocks=4).run("local")
    assert row["tokens_per_s"] == 12.0
    assert row["itl_p99_ms"] == 5.0
    assert row["bytes_per_token"] == 10_000.0
    assert row["save_ms_per_block"] == 2.0
    assert row["save_share_percent"] == pytest.approx(100 * 3 * 8e-3 / (10 + 5 + 100 / 12), rel=1e-2)
    assert row["rss_mb"] == 100.0


def test_without_checkpoints_nothing_was_saved() -> None:
    row = collected(10.0).run("off")
    assert (row["bytes_per_token"], row["save_ms_per_block"], row["save_share_percent"]) == (0.0, 0.0, 0.0)


def test_aims_compare_with_the_run_without() -> None:
    rows = [collected(100.0).run("off"), collected(98.0, blocks=1).run("local")]
    rows.append(collected(90.0, blocks=1).run("replicated"))
    increments = [_increment("m", 8192, 32, Saved(10, 90_000_000, 1_500_000))]
    met = {aim.name: aim.met for aim in _aims(rows, increments)}
    assert met["tokens/s lost, local"]
    assert not met["tokens/s lost, replicated"]
    assert met["increment, m float32 at 8192"]
    assert not met["increment saved, m float32 at 8192"], "9 ms a block"


def test_a_machine_that_is_too_busy_measures_no_loss() -> None:
    rows = [collected(100.0, 150.0).run("off")]
    rows += [collected(140.0, blocks=1).run(mode) for mode in ("local", "replicated")]
    aim = _aims(rows, [])[0]
    assert not aim.met
    assert "not measurable" in str(aim.got)


def test_no_prompt_comes_twice() -> None:
    prompts = Prompts(900)
    seen = [tuple(prompt) for _ in range(20) for prompt in prompts.some(8, 32)]
    assert len(set(seen)) == len(seen)
