"""Where a cut request goes on: the order of candidates, case by case."""

from math import inf

import pytest

from superinfer_core.failover.choice import Candidate, choose, next_deadline_in_ms

IDLE = Candidate("idle", recompute_ms=400)
BUSY = Candidate("busy", recompute_ms=400, backlog_ms=2000)
HOLDER = Candidate("holder", recompute_ms=400, holds_checkpoint=True)
BUSY_HOLDER = Candidate("busy-holder", recompute_ms=400, backlog_ms=500, holds_checkpoint=True)
BACK_SOON = Candidate("back-soon", available_in_ms=100, recompute_ms=100, holds_checkpoint=True)
AWAY = Candidate("away", available_in_ms=inf)


@pytest.mark.parametrize(
    ("candidates", "remaining_ms", "expected"),
    [
        pytest.param([BUSY, IDLE], inf, "idle", id="the one that speaks soonest"),
        pytest.param([IDLE, HOLDER], inf, "holder", id="restoring is sooner than recomputing"),
        pytest.param([IDLE, BUSY_HOLDER], inf, "idle", id="a busy holder is later, and nothing is promised"),
        pytest.param([IDLE, BUSY_HOLDER], 1000, "busy-holder", id="a holder that keeps the deadline first"),
        pytest.param([IDLE, BUSY_HOLDER], 450, "idle", id="a holder that would miss the deadline after"),
        pytest.param([BUSY, BUSY_HOLDER], -5, "busy-holder", id="too late everywhere: the soonest"),
        pytest.param([BUSY, BACK_SOON], inf, "back-soon", id="waiting for an engine can be sooner"),
        pytest.param([IDLE, AWAY], inf, "idle", id="nobody knows when it comes back"),
        pytest.param([AWAY], inf, None, id="nobody"),
        pytest.param([], inf, None, id="no executors at all"),
        pytest.param(
            [Candidate("b", requests=1), Candidate("a", requests=2)], inf, "b", id="equal: the emptier"
        ),
        pytest.param([Candidate("b"), Candidate("a")], inf, "a", id="wholly equal: by name"),
        pytest.param(
            [Candidate("a", suspect=True), Candidate("b", backlog_ms=9000)],
            inf,
            "b",
            id="not where it just failed",
        ),
        pytest.param([Candidate("a", suspect=True)], inf, "a", id="where it just failed, if nowhere else"),
        pytest.param(
            [Candidate("a", on_trial=True), Candidate("b", backlog_ms=9000)],
            inf,
            "b",
            id="not where one is tried that may bring it down",
        ),
        pytest.param([Candidate("a", on_trial=True)], inf, "a", id="there, if nowhere else"),
    ],
)
def test_choice(candidates, remaining_ms, expected):
    chosen = choose(candidates, remaining_ms)
    assert (chosen.executor if chosen else None) == expected
    assert choose(reversed(candidates), remaining_ms) == chosen


def test_who_is_to_be_tried_alone_waits_for_the_trial_of_another():
    tries, other = Candidate("a", on_trial=True), Candidate("b", backlog_ms=9000)
    assert choose([tries], alone=True) is None
    assert choose([tries, other], alone=True) == other


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"ttft_ms": 300}, 200, id="first token"),
        pytest.param({"first_token_ms": 1050, "tokens": 4, "itl_ms": 50}, 150, id="next token"),
        pytest.param({"first_token_ms": 1050, "tokens": 4, "ttft_ms": 300}, inf, id="its first token is out"),
        pytest.param(
            {"first_token_ms": 1050, "tokens": 4, "itl_ms": 50, "e2e_ms": 120}, 20, id="the end is nearer"
        ),
        pytest.param({}, inf, id="nothing promised"),
        pytest.param({"ttft_ms": 50}, -50, id="passed"),
    ],
)
def test_next_deadline(fields, expected):
    facts = {"first_token_ms": None, "tokens": 0, "ttft_ms": None, "itl_ms": None, "e2e_ms": None, **fields}
    assert next_deadline_in_ms(now_ms=1100, arrived_ms=1000, **facts) == expected
