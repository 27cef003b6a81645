"""Contracts together: who keeps an id, a fallback and a pool, and that nobody else notices."""

from typing import Any

import pytest
from contract_cases import POOL, contract, kinds, ttft

from superinfer_core.api.v1alpha1.slocontract import SLOContractSpec
from superinfer_core.contract.conflicts import PoolFacts, Unloaded
from superinfer_core.contract.inheritance import StoredContract
from superinfer_core.contract.problems import FieldProblem, ProblemKind
from superinfer_core.contract.resolution import resolve_contracts
from superinfer_core.slo import OnInfeasible, Tier

# --- identity, parents and cycles


def test_of_two_with_one_service_id_the_older_keeps_it() -> None:
    resolution = resolve_contracts(
        [contract("newer", 9, serviceID="chat", ttft=10), contract("older", 1, serviceID="chat", ttft=99)]
    )
    assert ttft(resolution, "shop/chat") == 99
    (problem,) = resolution.problems["shop/newer"]
    assert problem.kind is ProblemKind.DUPLICATE_SERVICE_ID
    assert problem.other == "shop/older"
    assert "there first" in problem.message


def test_of_two_created_together_the_lower_uid_keeps_the_id() -> None:
    pair = [contract("b", serviceID="chat", uid="1"), contract("a", serviceID="chat", uid="2")]
    assert set(resolve_contracts(pair).problems) == {"shop/a"}


def test_one_id_in_two_namespaces_is_two_contracts() -> None:
    resolution = resolve_contracts([contract("chat"), contract("chat", namespace="other")])
    assert set(resolution.effective) == {"shop/chat", "other/chat"}
    assert not resolution.problems


def test_a_cycle_of_parents_takes_down_its_members_and_who_hangs_on_them_only() -> None:
    resolution = resolve_contracts(
        [
            contract("x", 0, parentRef="y"),
            contract("y", 1, parentRef="z"),
            contract("z", 2, parentRef="x"),
            contract("below", 3, parentRef="x"),
            contract("x-free", 4),
        ]
    )
    assert set(resolution.effective) == {"shop/x-free"}
    assert kinds(resolution) == {
        "shop/x": [ProblemKind.PARENT_CYCLE],
        "shop/y": [ProblemKind.PARENT_CYCLE],
        "shop/z": [ProblemKind.PARENT_CYCLE],
        "shop/below": [ProblemKind.PARENT_NOT_ACCEPTED],
    }
    assert "shop/x -> shop/y -> shop/z -> shop/x" in resolution.problems["shop/x"][0].message


def test_a_cycle_through_a_prefix_stops_at_the_newcomer() -> None:
    resolution = resolve_contracts([contract("a-b", 0), contract("a", 1, parentRef="a-b")])
    assert kinds(resolution) == {"shop/a": [ProblemKind.PARENT_CYCLE]}
    assert resolution.effective["shop/a-b"].parent is None


def test_a_misspelt_parent_is_suggested() -> None:
    resolution = resolve_contracts([contract("checkout"), contract("b", parentRef="chekout")])
    assert "did you mean checkout?" in resolution.problems["shop/b"][0].suggestion


def test_an_unreadable_contract_is_reported_and_breaks_nobody() -> None:
    broken = StoredContract(
        "shop", "a", None, invalid=(FieldProblem("spec.tier", "'x'", "is not known", "write Gold"),)
    )
    resolution = resolve_contracts([broken, contract("a-b")])
    assert kinds(resolution) == {"shop/a": [ProblemKind.INVALID_SPEC]}
    assert set(resolution.effective) == {"shop/a-b"}


def test_a_chain_of_thousands_of_parents_is_no_problem() -> None:
    chain = [contract(f"c{i}", i % 60, uid=f"{i:05}", parentRef=f"c{i + 1}") for i in range(3000)]
    resolution = resolve_contracts([*chain, contract("c3000", tier="Gold")])
    assert not resolution.problems
    assert resolution.effective["shop/c0"].tier is Tier.GOLD


# --- fallbacks


def test_a_fallback_is_resolved_by_name_or_service_id() -> None:
    resolution = resolve_contracts(
        [
            contract("a", onInfeasible="Fallback", fallbackRef="slow"),
            contract("object", serviceID="slow", tier="Bronze"),
        ]
    )
    assert resolution.effective["shop/a"].fallback == "shop/slow"


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        pytest.param({"fallbackRef": "gone"}, ProblemKind.FALLBACK_NOT_FOUND, id="does not exist"),
        pytest.param({}, ProblemKind.FALLBACK_MISSING, id="none named"),
        pytest.param({"fallbackRef": "bad"}, ProblemKind.FALLBACK_NOT_FOUND, id="not accepted itself"),
    ],
)
def test_without_its_fallback_a_contract_goes_on_and_refuses(spec: dict[str, Any], kind: ProblemKind) -> None:
    resolution = resolve_contracts(
        [contract("a", onInfeasible="Fallback", ttft=100, **spec), contract("bad", parentRef="nowhere")]
    )
    assert kinds(resolution)["shop/a"] == [kind]
    effective = resolution.effective["shop/a"]
    assert (effective.on_infeasible, effective.fallback) == (OnInfeasible.REJECT, None)
    assert ttft(resolution, "shop/a") == 100


def test_in_a_circle_of_fallbacks_the_older_keep_theirs() -> None:
    resolution = resolve_contracts(
        [
            contract("a", 0, onInfeasible="Fallback", fallbackRef="b"),
            contract("b", 1, onInfeasible="Fallback", fallbackRef="c"),
            contract("c", 2, onInfeasible="Fallback", fallbackRef="a"),
        ]
    )
    assert kinds(resolution) == {"shop/c": [ProblemKind.FALLBACK_CYCLE]}
    assert resolution.effective["shop/a"].fallback == "shop/b"
    assert resolution.effective["shop/b"].fallback == "shop/c"
    assert "shop/c -> shop/a -> shop/b -> shop/c" in resolution.problems["shop/c"][0].message


def test_the_fallback_of_a_parent_does_not_fall_back_to_itself() -> None:
    resolution = resolve_contracts(
        [
            contract("checkout", 0, onInfeasible="Fallback", fallbackRef="checkout-basic"),
            contract("checkout-basic", 1, tier="Bronze"),
            contract("checkout-chat", 2),
        ]
    )
    assert not resolution.problems
    assert resolution.effective["shop/checkout-basic"].fallback is None
    assert resolution.effective["shop/checkout-basic"].on_infeasible is OnInfeasible.REJECT
    assert resolution.effective["shop/checkout-chat"].fallback == "shop/checkout-basic"


# --- pools


FAST = PoolFacts("shop", "fast", unloaded=Unloaded(ttft_ms=5, itl_ms=2, e2e_ms=20), created="2027")


def test_without_knowledge_of_pools_a_reference_is_taken_as_it_is() -> None:
    resolution = resolve_contracts([contract("a", poolRef="anything"), contract("b")])
    assert not resolution.problems
    assert resolution.effective["shop/a"].pool == "shop/anything"
    assert resolution.effective["shop/b"].pool is None


@pytest.mark.parametrize(
    ("spec", "kind", "fields"),
    [
        pytest.param({"ttft": 40}, ProblemKind.TARGETS_UNREACHABLE, ["objectives[TTFT P99]"], id="too fast"),
        pytest.param(
            {"ttft": 100, "resources": {"minChiplets": 3, "product": "A100", "memoryMiB": 99_999}},
            ProblemKind.RESOURCES_UNAVAILABLE,
            ["resources.minChiplets", "resources.product", "resources.memoryMiB"],
            id="more than the pool has",
        ),
        pytest.param(
            {"ttft": 100, "resources": {"isolation": "Device"}},
            ProblemKind.RESOURCES_UNAVAILABLE,
            ["resources.isolation"],
            id="stronger isolation than the pool gives",
        ),
    ],
)
def test_what_a_pool_cannot_give_is_infeasible_but_stays_in_effect(
    spec: dict[str, Any], kind: ProblemKind, fields: list[str]
) -> None:
    resolution = resolve_contracts([contract("a", poolRef="small", **spec)], [POOL, FAST])
    problems = resolution.problems["shop/a"]
    assert [problem.field for problem in problems] == fields
    assert {problem.kind for problem in problems} == {kind}
    assert {problem.other for problem in problems} == {"shop/small"}
    assert "shop/a" in resolution.effective


def test_an_unreachable_target_suggests_the_least_target_and_a_pool_that_can() -> None:
    resolution = resolve_contracts([contract("a", poolRef="small", ttft=40)], [POOL, FAST])
    (problem,) = resolution.problems["shop/a"]
    assert "40.2 ms" in problem.message
    assert problem.suggestion == "write at least 41 ms, or use a pool that can: shop/fast"


def test_a_missing_pool_is_named_and_the_contract_stays_known() -> None:
    resolution = resolve_contracts([contract("a", poolRef="smal")], [POOL])
    (problem,) = resolution.problems["shop/a"]
    assert problem.kind is ProblemKind.POOL_NOT_FOUND
    assert "did you mean shop/small?" in problem.suggestion
    assert resolution.effective["shop/a"].pool == "shop/smal"


def test_a_pool_that_does_not_allow_the_namespace_serves_nothing() -> None:
    stranger = StoredContract(
        "stranger", "a", SLOContractSpec.model_validate({"poolRef": {"name": "small", "namespace": "shop"}})
    )
    guest = StoredContract("guest", "a", stranger.spec)
    resolution = resolve_contracts([stranger, guest], [POOL])
    assert kinds(resolution)["stranger/a"] == [ProblemKind.POOL_NOT_ALLOWED]
    assert "stranger/a" not in resolution.effective
    assert resolution.effective["guest/a"].pool == "shop/small"


def test_a_new_pool_changes_nothing_for_contracts_that_name_none() -> None:
    before = resolve_contracts([contract("a", ttft=100)], [POOL])
    after = resolve_contracts([contract("a", ttft=100)], [FAST, POOL])
    assert before.effective["shop/a"].pool == after.effective["shop/a"].pool == "shop/small"


@pytest.mark.parametrize(
    "newcomer",
    [
        pytest.param({"poolRef": "gone"}, id="a pool that is not there"),
        pytest.param({"ttft": 10}, id="a target nobody can meet"),
        pytest.param({"resources": {"minChiplets": 50}}, id="more chiplets than there are"),
        pytest.param({"onInfeasible": "Fallback", "fallbackRef": "gone"}, id="a fallback that is not there"),
        pytest.param({"onInfeasible": "Fallback"}, id="a fallback without a name"),
    ],
)
def test_a_broken_newcomer_does_not_break_older_contracts_it_is_a_prefix_of(newcomer: dict[str, Any]) -> None:
    old = [contract("base", 0, ttft=200), contract("base-chat-x", 1)]
    before = resolve_contracts(old, [POOL])
    after = resolve_contracts([*old, contract("base-chat", 2, **newcomer)], [POOL])
    assert set(after.problems) == {"shop/base-chat"}
    was, now = before.effective["shop/base-chat-x"], after.effective["shop/base-chat-x"]
    assert now.parent == "shop/base-chat"
    assert (now.objectives, now.pool, now.on_infeasible) == (was.objectives, was.pool, was.on_infeasible)
    younger = contract("base-chat-y", 3)
    told = resolve_contracts([*old, contract("base-chat", 2, **newcomer), younger], [POOL])
    assert set(told.problems) == {"shop/base-chat", "shop/base-chat-y"}
