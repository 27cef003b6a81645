"""The figures of the checkpoint benchmark, from bursts whose numbers are known."""

import pytest

from superinfer_bench.checkpoint.__main__ import Collected, Prompts, _aims, _increment, _losses
from superinfer_bench.checkpoint.load import Burst
from superinfer_bench.checkpoint.pairs import loss_of
from superinfer_bench.checkpoint.site import Saved

RSS = {"engine": 100.0, "sidecar": 50.0}


def collected(*speeds: float, blocks: int = 0) -> Collected:
    bursts = [Burst(100, 300, 100 / speed, [1.0] * 98 + [5.0, 9.0]) for speed in speeds]
    saved = [Saved(blocks, blocks * 2_000_000, 1_000_000)] * len(bursts) if blocks else []
    return Collected(bursts, [1.0] * len(bursts), saved, RSS)


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


NOISE = (1.0, 1.6, 0.7, 1.1, 0.9, 2.0, 0.8)
"""What else the machine does, round by round: it slows the modes of a round alike."""


def test_a_loss_is_told_through_noise_that_is_larger() -> None:
    by_mode = {
        mode: collected(*(100.0 * noise / cost for noise in NOISE), blocks=1)
        for mode, cost in (("off", 1.0), ("local", 1.02), ("replicated", 1.1))
    }
    rows = [by_mode[mode].run(mode) for mode in by_mode]
    increments = [_increment("m", 8192, 32, Saved(10, 90_000_000, 1_500_000))]
    aims = {aim.name: aim for aim in _aims(_losses(by_mode), rows, increments)}
    assert aims["time per token, local"].met
    assert not aims["time per token, replicated"].met
    assert aims["CPU time per token, replicated"].met
    assert aims["increment, m float32 at 8192"].met
    assert not aims["increment saved, m float32 at 8192"].met, "9 ms a block"


@pytest.mark.parametrize(
    ("costs", "met", "got"),
    [
        ([1.01, 1.0, 1.02, 0.99, 1.01, 1.02], True, "1.0 % (-1.0 to 2.0)"),
        ([1.05, 1.06, 1.04, 1.08, 1.05, 1.07], False, "5.5 % (4.0 to 8.0)"),
        ([0.9, 1.1, 1.0, 1.01, 0.99, 1.2], False, "0.5 % (-10.0 to 20.0): not decided"),
        ([1.0, 1.0, 1.0, 1.0, 1.0], False, "0.0 %: too few pairs to be sure"),
    ],
    ids=["within", "beyond", "not decided", "too few"],
)
def test_a_verdict_needs_the_whole_interval(costs: list[float], met: bool, got: str) -> None:
    aim = loss_of(costs, [1.0] * len(costs)).aim("loss", 3.0)
    assert (aim.met, aim.got) == (met, got)


def test_more_pairs_make_the_interval_narrower() -> None:
    few, many = (loss_of([1 + n / 100 for n in range(count)], [1.0] * count) for count in (6, 12))
    assert [few.low, few.high, many.low, many.high] == pytest.approx([0.0, 5.0, 2.0, 9.0])


def test_no_prompt_comes_twice() -> None:
    prompts = Prompts(900)
    seen = [tuple(prompt) for _ in range(20) for prompt in prompts.some(8, 32)]
    assert len(set(seen)) == len(seen)
