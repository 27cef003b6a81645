"""A request that brings engines down is found within a few; one that merely was there is never given up."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from superinfer_core.failover.blame import Blame, BlamePolicy, Fate
from superinfer_core.failover.choice import Candidate, choose

POLICY = BlamePolicy.of(4)
FATES = st.sampled_from(Fate)


def died(number, *, begun=True, fate=Fate.ENGINE):
    blame = Blame()
    for at_ms in range(number):
        blame = blame.after(fate, begun=begun, spoke=False, now_ms=at_ms)
    return blame


@pytest.mark.parametrize(
    ("fate", "begun", "spoke", "expected"),
    [
        pytest.param(Fate.ENGINE, True, False, Blame(3, 1, 5), id="an engine that had it ended"),
        pytest.param(Fate.ENGINE, False, False, Blame(2, 1, 5), id="it was still waiting there"),
        pytest.param(Fate.EXECUTOR, True, False, Blame(2, 2, 5), id="its sidecar went as well"),
        pytest.param(Fate.EXECUTOR, False, False, Blame(2, 1, 5), id="so it did, and it was waiting"),
        pytest.param(Fate.PLANNED, True, False, Blame(2, 1, 5), id="a drain says nothing"),
        pytest.param(Fate.ENGINE, True, True, Blame(), id="a new token clears it, also of this end"),
    ],
)
def test_what_speaks_against_it(fate, begun, spoke, expected):
    before = Blame(deaths=2, losses=1, since_ms=5)
    assert before.after(fate, begun=begun, spoke=spoke, now_ms=9) == expected


@pytest.mark.parametrize(
    ("blame", "unexplained", "over"),
    [
        pytest.param(Blame(4, 0, 0), 0, False, id="as many as allowed"),
        pytest.param(Blame(5, 0, 0), 0, True, id="one more"),
        pytest.param(Blame(5, 0, 0), 1, False, id="an engine ended without any suspect, too"),
        pytest.param(Blame(9, 0, 0), 99, True, id="that excuses only so much"),
        pytest.param(Blame(0, 16, inf), 0, False, id="executors were lost as a whole"),
        pytest.param(Blame(0, 17, inf), 99, True, id="again and again"),
        pytest.param(Blame(4, 13, 0), 99, True, id="both together"),
    ],
)
def test_giving_up(blame, unexplained, over):
    assert POLICY.condemns(blame, unexplained=unexplained) is over


def test_alone_comes_well_before_giving_up():
    alone = [deaths for deaths in range(9) if POLICY.alone(died(deaths))]
    condemned = [deaths for deaths in range(9) if POLICY.condemns(died(deaths), unexplained=0)]
    assert (alone[0], condemned[0]) == (2, 5)


@given(st.lists(st.tuples(FATES, st.booleans()), max_size=60), st.integers(1, 8))
def test_what_no_engine_was_given_is_never_given_up(events, attempts):
    blame = Blame()
    for fate, planned in events:
        blame = blame.after(fate, begun=False, spoke=False, now_ms=1.0)
        blame = blame.after(Fate.PLANNED, begun=planned, spoke=False, now_ms=1.0)
        assert not BlamePolicy.of(attempts).condemns(blame, unexplained=0)
        assert not BlamePolicy.of(attempts).alone(blame)


@given(
    st.lists(st.tuples(st.sampled_from([Fate.ENGINE, Fate.EXECUTOR]), st.integers(0, 9)), min_size=40),
    st.integers(1, 8),
)
def test_what_loses_everything_that_has_it_is_given_up_in_the_end(events, attempts):
    policy, blame = BlamePolicy.of(attempts), Blame()
    for number, (fate, unexplained) in enumerate(events, start=1):
        blame = blame.after(fate, begun=True, spoke=False, now_ms=1.0)
        if policy.condemns(blame, unexplained=unexplained):
            assert attempts < number <= 4 * attempts + 1
            return
    assert len(events) <= 4 * attempts


@given(
    innocents=st.integers(0, 12),
    poisons=st.integers(0, 3),
    executors=st.integers(1, 4),
    seed=st.randoms(use_true_random=False),
)
def test_among_others_only_those_that_end_engines_are_given_up(innocents, poisons, executors, seed):
    """Every round each pending request goes where the rule says; an engine that has a poison says nothing."""
    poisonous = {f"poison-{number}" for number in range(poisons)}
    pending = {name: Blame() for name in (*poisonous, *(f"innocent-{n}" for n in range(innocents)))}
    spoke, given_up, ended = set(), set(), 0
    rounds = 0
    while pending:
        rounds += 1
        assert rounds < 200
        on = _placed(pending, executors, seed)
        for here in on.values():
            died = not poisonous.isdisjoint(here)
            ended += died
            for name in here:
                if not died:
                    spoke.add(name)
                    del pending[name]
                    continue
                pending[name] = pending[name].after(Fate.ENGINE, begun=True, spoke=False, now_ms=rounds)
                if POLICY.condemns(pending[name], unexplained=0):
                    given_up.add(name)
                    del pending[name]
    assert given_up == poisonous
    assert spoke == {f"innocent-{number}" for number in range(innocents)}
    assert ended <= 5 * poisons


def _placed(pending, executors, seed):
    on = {f"e{number}": [] for number in range(executors)}
    trials = set()
    waiting = list(pending)
    seed.shuffle(waiting)
    for name in waiting:
        alone = POLICY.alone(pending[name])
        candidates = [Candidate(each, requests=len(on[each]), on_trial=each in trials) for each in on]
        chosen = choose(candidates, alone=alone)
        if chosen is None:
            continue
        on[chosen.executor].append(name)
        if alone:
            trials.add(chosen.executor)
    return on
