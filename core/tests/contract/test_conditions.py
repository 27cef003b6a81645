"""Conditions: what an operator writes and a user reads in kubectl."""

from typing import Any

import pytest

from superinfer_core.api.v1alpha1.conditions import MAX_MESSAGE_CHARACTERS, Condition, Status, dated
from superinfer_core.api.v1alpha1.slocontract import SLOContractSpec
from superinfer_core.contract.conditions import ConditionType, contract_conditions
from superinfer_core.contract.conflicts import PoolFacts, Unloaded
from superinfer_core.contract.inheritance import StoredContract
from superinfer_core.contract.problems import FieldProblem
from superinfer_core.contract.resolution import resolve_contracts

POOL = PoolFacts("shop", "pool", unloaded=Unloaded(ttft_ms=50, itl_ms=5))


def stored(name: str, **spec: Any) -> StoredContract:
    return StoredContract("shop", name, SLOContractSpec.model_validate(spec), created=name, generation=7)


def conditions(
    contract: StoredContract, *others: StoredContract, pools: list[PoolFacts] | None
) -> dict[str, tuple[str, str]]:
    resolution = resolve_contracts([contract, *others], pools)
    found = contract_conditions(resolution.contracts[contract.object_key])
    assert next(c.type for c in found) is ConditionType.READY
    assert all(c.observed_generation == 7 and c.message for c in found)
    assert all(c.as_status().reason == c.reason for c in found)
    return {str(c.type): (c.status.value, c.reason) for c in found}


@pytest.mark.parametrize(
    ("contract", "pools", "want"),
    [
        pytest.param(
            stored("a"),
            [POOL],
            {
                "Ready": ("True", "Ready"),
                "Accepted": ("True", "Accepted"),
                "ResolvedRefs": ("True", "Resolved"),
                "Feasible": ("True", "Feasible"),
            },
            id="all is well",
        ),
        pytest.param(
            stored("a"),
            None,
            {
                "Ready": ("True", "Ready"),
                "Accepted": ("True", "Accepted"),
                "ResolvedRefs": ("True", "Resolved"),
                "Feasible": ("Unknown", "PoolUnknown"),
            },
            id="one machine without pools is ready all the same",
        ),
        pytest.param(
            stored("a"),
            [PoolFacts("shop", "new")],
            {
                "Ready": ("True", "Ready"),
                "Accepted": ("True", "Accepted"),
                "ResolvedRefs": ("True", "Resolved"),
                "Feasible": ("Unknown", "NotMeasured"),
            },
            id="a pool without a profile",
        ),
        pytest.param(
            stored("a", tier="Gold"),
            [POOL],
            {
                "Ready": ("False", "TargetsUnreachable"),
                "Accepted": ("True", "Accepted"),
                "ResolvedRefs": ("True", "Resolved"),
                "Feasible": ("False", "TargetsUnreachable"),
            },
            id="30 ms on a pool whose best is 50",
        ),
        pytest.param(
            stored("a", poolRef={"name": "gone"}),
            [POOL],
            {
                "Ready": ("False", "PoolNotFound"),
                "Accepted": ("True", "Accepted"),
                "ResolvedRefs": ("False", "PoolNotFound"),
                "Feasible": ("Unknown", "PoolUnknown"),
            },
            id="a pool that does not exist",
        ),
        pytest.param(
            stored("a", onInfeasible="Fallback"),
            [POOL],
            {
                "Ready": ("False", "FallbackMissing"),
                "Accepted": ("True", "Accepted"),
                "ResolvedRefs": ("False", "FallbackMissing"),
                "Feasible": ("True", "Feasible"),
            },
            id="a fallback without a name",
        ),
        pytest.param(
            stored("a", parentRef={"name": "gone"}),
            [POOL],
            {
                "Ready": ("False", "ParentNotFound"),
                "Accepted": ("False", "ParentNotFound"),
                "ResolvedRefs": ("False", "ParentNotFound"),
                "Feasible": ("Unknown", "NotAccepted"),
            },
            id="a parent that does not exist",
        ),
        pytest.param(
            StoredContract(
                "shop",
                "a",
                None,
                generation=7,
                invalid=(FieldProblem("spec.tier", "'x'", "is wrong", "fix"),),
            ),
            [POOL],
            {
                "Ready": ("False", "InvalidSpec"),
                "Accepted": ("False", "InvalidSpec"),
                "ResolvedRefs": ("Unknown", "NotAccepted"),
                "Feasible": ("Unknown", "NotAccepted"),
            },
            id="a spec that cannot be read",
        ),
    ],
)
def test_the_first_check_that_fails_gives_the_reason(
    contract: StoredContract, pools: list[PoolFacts] | None, want: dict[str, tuple[str, str]]
) -> None:
    assert conditions(contract, pools=pools) == want


def test_the_message_names_both_sides_and_what_to_do() -> None:
    resolution = resolve_contracts([stored("a", maxJitterMs=5), stored("a-b", maxJitterMs=9)])
    accepted = contract_conditions(resolution.contracts["shop/a-b"])[1]
    assert accepted.reason == "LooserThanParent"
    assert "shop/a-b states maxJitterMs of 9 ms, looser than shop/a's maxJitterMs of 5 ms" in accepted.message
    assert "write at most 5 ms" in accepted.message


def test_a_flood_of_problems_stays_a_message() -> None:
    problems = tuple(FieldProblem("spec." + "f" * 200, "v" * 80, "m" * 300, "x" * 300) for _ in range(50))
    resolution = resolve_contracts([StoredContract("shop", "a", None, invalid=problems)])
    for condition in contract_conditions(resolution.contracts["shop/a"]):
        assert len(condition.message) <= MAX_MESSAGE_CHARACTERS


def test_the_transition_time_moves_only_with_the_status() -> None:
    def ready(status: Status, reason: str) -> Condition:
        return Condition(ConditionType.READY, status, reason, "m", 1)

    (first,) = dated([ready(Status.FALSE, "A")], [], "t1")
    (second,) = dated([ready(Status.FALSE, "B")], [first], "t2")
    (third,) = dated([ready(Status.TRUE, "B")], [second], "t3")
    assert (first.last_transition_time, second.last_transition_time, third.last_transition_time) == (
        "t1",
        "t1",
        "t3",
    )
    assert second.reason == "B"
