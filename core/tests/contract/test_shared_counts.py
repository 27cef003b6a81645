import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from superinfer_core.contract.effective import EffectiveContract
from superinfer_core.contract.fulfilment import WindowCounts
from superinfer_core.contract.shared_counts import attainment_from, counts_document
from superinfer_core.slo import Metric, Objective, Tier


def make_contract(target_ms=300, **fields):
    objectives = (Objective(Metric.E2E, 95, 2000), Objective(Metric.TTFT, 99, target_ms))
    return EffectiveContract("shop", "chat", Tier.GOLD, 0, objectives, availability=99.0, **fields)


CONTRACT = make_contract()


def published(counts, contract=CONTRACT, covered=1.0):
    """As another process reads it."""
    return json.loads(json.dumps(counts_document(contract, counts, covered=covered)))


def test_replicas_add_up_to_one_attainment():
    one = WindowCounts(offered=60, served=60, admitted=60, kept=59, misses=(1, 0, 0))
    other = WindowCounts(offered=40, served=38, admitted=40, kept=36, misses=(2, 4, 0))
    together = attainment_from(CONTRACT, [published(one), published(other)])
    assert together.counts == one + other
    assert together.objectives[1].budget.missed == 4
    assert not together.objectives[1].budget.met
    assert together.availability.share == 0.98


@pytest.mark.parametrize(
    "edited",
    [
        pytest.param(make_contract(target_ms=100), id="another target"),
        pytest.param(make_contract(window_s=60.0), id="another window"),
        pytest.param(make_contract(max_jitter_ms=5), id="jitter is promised now"),
    ],
)
def test_counts_of_a_former_promise_are_not_counted_for_the_new_one(edited):
    counts = WindowCounts(offered=10, served=10, admitted=10, misses=(10, 10, 0))
    assert attainment_from(edited, [published(counts)]).counts == WindowCounts()


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param({"offered": -1}, id="a negative count"),
        pytest.param({"offered": "ten"}, id="text"),
        pytest.param({"offered": True}, id="a truth value"),
        pytest.param({"misses": "many"}, id="misses that are none"),
        pytest.param({"served": 99}, id="more served than asked for"),
        pytest.param({"misses": [99]}, id="more missed than admitted"),
        pytest.param({"covered": "all"}, id="a share that is none"),
    ],
)
def test_what_is_no_counts_takes_nothing_from_the_others(broken):
    good = published(WindowCounts(offered=5, served=5, admitted=5))
    bad = {**good, **broken}
    assert attainment_from(CONTRACT, [bad, good, {}]).counts.offered == 5


def test_a_window_nobody_asked_in_is_unknown_not_broken():
    attainment = attainment_from(CONTRACT, [])
    assert attainment.counts.offered == 0
    assert attainment.fulfilled


@st.composite
def window_counts(draw):
    """Counts a window can have."""
    offered = draw(st.integers(0, 10**9))
    admitted = draw(st.integers(0, 10**9))
    misses = draw(st.tuples(*[st.integers(0, admitted)] * 3))
    served = draw(st.integers(0, offered))
    return WindowCounts(offered, served, admitted, excluded=draw(st.integers(0, 10**9)), misses=misses)


@given(st.lists(window_counts(), max_size=4))
def test_nothing_is_lost_on_the_way(replicas):
    total = WindowCounts()
    for one in replicas:
        total += one
    read = attainment_from(CONTRACT, [published(one) for one in replicas]).counts
    assert read.offered == total.offered
    assert read.excluded == total.excluded
    assert sum(read.misses) == sum(total.misses)
