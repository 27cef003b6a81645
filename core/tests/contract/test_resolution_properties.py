"""Whatever set of contracts is stored: nothing loosens, nothing goes round, nobody is forgotten."""

import random
from typing import Any

from contract_cases import POOL, contract
from hypothesis import given, settings
from hypothesis import strategies as st

from superinfer_core.contract.inheritance import StoredContract
from superinfer_core.contract.resolution import resolve_contracts


@st.composite
def stored_sets(draw: st.DrawFn) -> list[StoredContract]:
    names = ["a", "a-b", "a-b-c", "a-b-c-d", "a-c", "b", "b-a", "c"]
    contracts = []
    for name in draw(st.lists(st.sampled_from(names), unique=True, min_size=1)):
        spec: dict[str, Any] = {}
        if draw(st.booleans()):
            spec["objectives"] = [
                {"metric": metric, "percentile": percentile, "targetMs": draw(st.integers(1, 9)) * 10}
                for metric, percentile in draw(
                    st.lists(
                        st.tuples(st.sampled_from(["TTFT", "ITL"]), st.sampled_from([50, 99])),
                        unique=True,
                        max_size=3,
                    )
                )
            ]
        if draw(st.booleans()):
            spec["maxJitterMs"] = draw(st.integers(1, 4))
        if draw(st.integers(0, 3)) == 0:
            spec["parentRef"] = draw(st.sampled_from(names))
        if draw(st.integers(0, 3)) == 0:
            spec |= {"onInfeasible": "Fallback", "fallbackRef": draw(st.sampled_from(names))}
        if draw(st.integers(0, 4)) == 0:
            spec["poolRef"] = draw(st.sampled_from(["small", "gone"]))
        if draw(st.integers(0, 4)) == 0:
            spec["resources"] = {"minChiplets": draw(st.integers(1, 3))}
        if draw(st.integers(0, 5)) == 0:
            spec["serviceID"] = draw(st.sampled_from(names))
        contracts.append(contract(name, draw(st.integers(0, 9)), **spec))
    return contracts


@settings(max_examples=150)
@given(stored_sets(), st.randoms())
def test_inheritance_never_loosens_and_order_of_reading_never_matters(
    contracts: list[StoredContract], rng: random.Random
) -> None:
    resolution = resolve_contracts(contracts)
    shuffled = contracts[:]
    rng.shuffle(shuffled)
    assert resolve_contracts(shuffled) == resolution
    for child in resolution.effective.values():
        parent = resolution.effective.get(child.parent) if child.parent else None
        if parent is None:
            continue
        stated = resolution.contracts
        inherited = {
            k: v for r in stated.values() if r.service_key == parent.key for k, v in r.fields.items()
        }
        for objective in parent.objectives:
            path = f"objectives[{objective.metric} P{objective.percentile:g}]"
            if inherited[path].origin.startswith("default"):
                continue
            bounded = [
                o
                for o in child.objectives
                if o.metric is objective.metric and o.percentile >= objective.percentile
            ]
            assert any(
                o.target_ms <= objective.target_ms for o in child.objectives if o.metric is objective.metric
            )
            assert bounded
        if parent.max_jitter_ms is not None:
            assert child.max_jitter_ms is not None
            assert child.max_jitter_ms <= parent.max_jitter_ms


@settings(max_examples=150)
@given(stored_sets(), stored_sets())
def test_newcomers_never_take_a_working_contract_out_of_effect(
    older: list[StoredContract], newer: list[StoredContract]
) -> None:
    known = {stored.object_key for stored in older}
    late = [
        StoredContract(s.namespace, s.name, s.spec, created="2027-01-01T00:00:00Z", uid=s.uid)
        for s in newer
        if s.object_key not in known
    ]
    before, after = resolve_contracts(older, [POOL]), resolve_contracts([*older, *late], [POOL])
    assert set(before.effective) <= set(after.effective)
    for key, was in before.contracts.items():
        if not was.problems:
            assert not after.contracts[key].problems


@settings(max_examples=100)
@given(stored_sets())
def test_parents_and_fallbacks_never_go_round_in_circles(contracts: list[StoredContract]) -> None:
    effective = resolve_contracts(contracts).effective
    for start in effective.values():
        for follow in ("parent", "fallback"):
            here, steps = start, 0
            while (following := getattr(here, follow)) is not None:
                here, steps = effective[following], steps + 1
                assert steps <= len(effective)


@settings(max_examples=100)
@given(stored_sets())
def test_every_contract_is_either_in_effect_or_told_why_not(contracts: list[StoredContract]) -> None:
    resolution = resolve_contracts(contracts)
    assert len(resolution.contracts) == len(contracts)
    for resolved in resolution.contracts.values():
        assert resolved.effective is not None or resolved.problems
        assert resolved.accepted is (resolved.effective is not None)
        for problem in resolved.problems:
            assert problem.subject == resolved.key
            assert problem.message
            assert problem.suggestion
