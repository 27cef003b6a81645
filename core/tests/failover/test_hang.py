"""When silence means that an engine hangs, and when it only means that the machine is busy."""

from math import inf

import pytest

from superinfer_core.failover.hang import HangPolicy, Work, hangs

POLICY = HangPolicy(floor_ms=2000, factor=4, waiting_ms=15_000, sizing_ms=120_000)


@pytest.mark.parametrize(
    ("work", "longest_step_ms", "trusted", "limit_ms"),
    [
        pytest.param(Work.NONE, 100, True, inf, id="nothing to do"),
        pytest.param(Work.MOVING, 100, True, 2000, id="quick steps: the floor"),
        pytest.param(Work.MOVING, 900, True, 3600, id="slow steps: some of them"),
        pytest.param(Work.MOVING, 100, False, 15_000, id="nothing measured yet"),
        pytest.param(Work.WAITING, 100, True, 15_000, id="nothing moved yet"),
        pytest.param(Work.WAITING, 9000, True, 36_000, id="nothing moved, and steps are very slow"),
        pytest.param(Work.SIZING, 100, True, 120_000, id="sizes only"),
    ],
)
def test_limit(work, longest_step_ms, trusted, limit_ms):
    assert POLICY.limit_ms(work, longest_step_ms=longest_step_ms, trusted=trusted) == limit_ms


@pytest.mark.parametrize(
    ("silent_ms", "starved_ms", "blind_ms", "hung"),
    [
        pytest.param(2001, 0, 0, True, id="silent with all the CPU it wanted"),
        pytest.param(2000, 0, 0, False, id="not yet"),
        pytest.param(9000, 7500, 0, False, id="it had no CPU"),
        pytest.param(9000, 0, 8000, False, id="nobody looked"),
        pytest.param(9000, 3000, 3000, True, id="neither explains all of it"),
        pytest.param(3000, -5000, -5000, True, id="nonsense explains nothing"),
        pytest.param(1000, -5000, 0, False, id="nor does it make silence longer"),
    ],
)
def test_hangs(silent_ms, starved_ms, blind_ms, hung):
    told = {"silent_ms": silent_ms, "starved_ms": starved_ms, "blind_ms": blind_ms}
    assert hangs(**told, limit_ms=2000) is hung
