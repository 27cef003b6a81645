"""Contracts that inherit: what a child takes, and how loose it may not be."""

from typing import Any

import pytest
from contract_cases import contract, kinds, ttft

from superinfer_core.contract.problems import ContractConflictError, ProblemKind
from superinfer_core.contract.resolution import resolve_contracts
from superinfer_core.slo import AccessMode, Metric, Objective, Tier

# --- inheritance


def test_a_child_takes_what_it_leaves_out_from_its_parent() -> None:
    resolution = resolve_contracts(
        [
            contract(
                "checkout",
                tier="Gold",
                objectives=[
                    {"metric": "TTFT", "percentile": 99, "targetMs": 300},
                    {"metric": "ITL", "percentile": 99, "targetMs": 40},
                ],
                availability="99.9",
                quota={"requestsPerSecond": 20, "concurrency": 8},
                access={"apiKeySecretRef": {"name": "keys"}},
            ),
            contract(
                "checkout-chat",
                1,
                objectives=[
                    {"metric": "TTFT", "percentile": 99, "targetMs": 200},
                    {"metric": "E2E", "percentile": 95, "targetMs": 2000},
                ],
                quota={"concurrency": 4},
                access={"mode": "AnyKey"},
            ),
        ]
    )
    chat = resolution.effective["shop/checkout-chat"]
    assert not resolution.problems
    assert chat.parent == "shop/checkout"
    assert chat.tier is Tier.GOLD
    assert chat.objectives == (
        Objective(Metric.E2E, 95, 2000),
        Objective(Metric.ITL, 99, 40),
        Objective(Metric.TTFT, 99, 200),
    )
    assert (chat.quota.requests_per_second, chat.quota.concurrency) == (20, 4)
    assert (chat.access, chat.api_key_secret) == (AccessMode.ANY_KEY, "keys")


@pytest.mark.parametrize(
    ("tier", "target"), [("Gold", 30), ("Silver", 100), ("Bronze", 500), (None, 500)], ids=str
)
def test_without_any_objective_the_tier_s_preset_holds(tier: str | None, target: int) -> None:
    resolution = resolve_contracts([contract("a", **({"tier": tier} if tier else {}))])
    assert resolution.effective["shop/a"].objectives == (Objective(Metric.TTFT, 99, target),)


def test_a_parent_s_objective_replaces_the_preset_of_the_child_s_tier() -> None:
    resolution = resolve_contracts([contract("a", ttft=250), contract("a-b", 1, tier="Gold")])
    assert ttft(resolution, "shop/a-b") == 250


@pytest.mark.parametrize(
    ("others", "parent"),
    [
        pytest.param(["a"], "shop/a", id="one prefix"),
        pytest.param(["a", "a-b"], "shop/a-b", id="the longest prefix"),
        pytest.param(["a-", "ab", "b", "a-b-c-d"], None, id="only dash-separated prefixes count"),
        pytest.param(["a-bc"], None, id="part of a word is no prefix"),
    ],
)
def test_without_a_parent_ref_the_longest_dash_prefix_is_the_parent(
    others: list[str], parent: str | None
) -> None:
    others = [other for other in others if not other.endswith("-")]
    resolution = resolve_contracts([contract("a-b-c"), *(contract(name, 1) for name in others)])
    assert resolution.effective["shop/a-b-c"].parent == parent


def test_nested_contracts_inherit_through_every_level() -> None:
    resolution = resolve_contracts(
        [
            contract("hospital-triage-stroke", 0, priority=5),
            contract("hospital-triage", 1, ttft=400),
            contract("hospital", 2, availability="99.5", ttft=500),
        ]
    )
    stroke = resolution.effective["shop/hospital-triage-stroke"]
    assert (stroke.parent, stroke.priority, stroke.availability) == ("shop/hospital-triage", 5, 99.5)
    assert ttft(resolution, "shop/hospital-triage-stroke") == 400


def test_nobody_inherits_across_namespaces() -> None:
    resolution = resolve_contracts(
        [contract("a", namespace="other", ttft=100), contract("a-b", parentRef="a"), contract("a-c")]
    )
    assert resolution.effective["shop/a-c"].parent is None
    assert kinds(resolution) == {"shop/a-b": [ProblemKind.PARENT_NOT_FOUND]}


def test_an_explicit_parent_wins_over_the_prefix_and_may_be_named_by_service_id() -> None:
    resolution = resolve_contracts(
        [
            contract("a", ttft=300),
            contract("object-name", serviceID="base", ttft=100),
            contract("a-b", 1, parentRef="base"),
        ]
    )
    assert resolution.effective["shop/a-b"].parent == "shop/base"
    assert ttft(resolution, "shop/a-b") == 100


@pytest.mark.parametrize(
    ("child", "mode", "keys"),
    [
        pytest.param({}, AccessMode.ANY_KEY, "parent-keys", id="nothing stated: the parent's"),
        pytest.param(
            {"access": {"apiKeySecretRef": {"name": "own"}}},
            AccessMode.OWN_KEYS,
            "own",
            id="own keys are not opened by a parent's AnyKey",
        ),
        pytest.param(
            {"access": {"mode": "OwnKeys"}}, AccessMode.OWN_KEYS, "parent-keys", id="the parent's keys only"
        ),
    ],
)
def test_access_is_inherited_but_never_opens_a_child_s_own_keys(
    child: dict[str, Any], mode: AccessMode, keys: str
) -> None:
    parent = {"access": {"mode": "AnyKey", "apiKeySecretRef": {"name": "parent-keys"}}}
    resolution = resolve_contracts([contract("a", **parent), contract("a-b", 1, **child)])
    effective = resolution.effective["shop/a-b"]
    assert (effective.access, effective.api_key_secret) == (mode, keys)


# --- a child may not be looser than a bound above it


@pytest.mark.parametrize(
    ("parent", "child", "field"),
    [
        pytest.param({"ttft": 300}, {"ttft": 301}, "objectives[TTFT P99]", id="a looser target"),
        pytest.param(
            {"ttft": 300},
            {"objectives": [{"metric": "TTFT", "percentile": 50, "targetMs": 301}]},
            "objectives[TTFT P50]",
            id="P99 bounds lower percentiles too",
        ),
        pytest.param({"maxJitterMs": 5}, {"maxJitterMs": 6}, "maxJitterMs", id="more jitter"),
        pytest.param(
            {"availability": "99.9"}, {"availability": "99"}, "availability", id="less availability"
        ),
        pytest.param(
            {"quota": {"concurrency": 2}}, {"quota": {"concurrency": 3}}, "quota.concurrency", id="more quota"
        ),
        pytest.param(
            {"resources": {"isolation": "Device"}},
            {"resources": {"isolation": "Shared"}},
            "resources.isolation",
            id="weaker isolation",
        ),
    ],
)
def test_a_looser_child_is_told_both_sides_and_breaks_nobody_else(
    parent: dict[str, Any], child: dict[str, Any], field: str
) -> None:
    resolution = resolve_contracts(
        [contract("a", 0, **parent), contract("a-b", 1, **child), contract("a-c", 2), contract("z", 3)]
    )
    assert set(resolution.effective) == {"shop/a", "shop/a-c", "shop/z"}
    (problem,) = resolution.problems["shop/a-b"]
    assert problem.kind is ProblemKind.LOOSER_THAN_PARENT
    assert (problem.subject, problem.other, problem.field) == ("shop/a-b", "shop/a", field)
    assert "shop/a-b" in problem.message
    assert "shop/a's" in problem.message
    assert problem.suggestion
    with pytest.raises(ContractConflictError, match="LooserThanParent"):
        resolution.raise_on_conflict()


@pytest.mark.parametrize(
    ("parent", "child"),
    [
        pytest.param({"ttft": 300}, {"ttft": 300}, id="the same target"),
        pytest.param(
            {"objectives": [{"metric": "TTFT", "percentile": 95, "targetMs": 300}]},
            {"ttft": 900},
            id="a higher percentile may have a looser target",
        ),
        pytest.param(
            {"ttft": 300}, {"objectives": [{"metric": "E2E", "percentile": 50, "targetMs": 9000}]}, id="other"
        ),
        pytest.param({"tier": "Gold"}, {"tier": "Bronze"}, id="a tier is a rank, not a bound"),
    ],
)
def test_what_bounds_nothing_is_no_conflict(parent: dict[str, Any], child: dict[str, Any]) -> None:
    assert not resolve_contracts([contract("a", **parent), contract("a-b", 1, **child)]).problems


def test_a_bound_of_a_grandparent_is_named_by_its_source() -> None:
    resolution = resolve_contracts(
        [contract("a", 0, maxJitterMs=5), contract("a-b", 1), contract("a-b-c", 2, maxJitterMs=9)]
    )
    (problem,) = resolution.problems["shop/a-b-c"]
    assert problem.other == "shop/a"
    assert "stated by shop/a" in problem.message


def test_a_new_prefix_parent_may_not_break_a_child_that_worked() -> None:
    before = resolve_contracts([contract("shop-chat", 0, ttft=900)])
    after = resolve_contracts([contract("shop-chat", 0, ttft=900), contract("shop", 1, ttft=100)])
    assert after.effective["shop/shop-chat"] == before.effective["shop/shop-chat"]
    (problem,) = after.problems["shop/shop"]
    assert (problem.subject, problem.other) == ("shop/shop", "shop/shop-chat")
    assert "was there first" in problem.message


def test_a_new_parent_between_two_levels_may_not_break_a_grandchild() -> None:
    old = [contract("a", 0), contract("a-b-c", 1), contract("a-b-c-d", 2, maxJitterMs=50)]
    resolution = resolve_contracts([*old, contract("a-b", 3, maxJitterMs=10)])
    assert kinds(resolution) == {"shop/a-b": [ProblemKind.LOOSER_THAN_PARENT]}
    assert resolution.problems["shop/a-b"][0].other == "shop/a-b-c-d"
    assert resolution.effective["shop/a-b-c"].parent == "shop/a"


def test_a_new_parent_between_two_levels_is_inherited_from_where_it_fits() -> None:
    resolution = resolve_contracts(
        [contract("a", 0), contract("a-b-c", 1), contract("a-b", 2, maxJitterMs=10)]
    )
    assert not resolution.problems
    assert resolution.effective["shop/a-b-c"].parent == "shop/a-b"
    assert resolution.effective["shop/a-b-c"].max_jitter_ms == 10


def test_a_newcomer_may_not_break_a_contract_through_an_older_one_that_waited_for_it() -> None:
    waiting = contract("chat", 0, parentRef="base")
    working = contract("chat-slow", 1, ttft=900)
    assert set(resolve_contracts([waiting, working]).effective) == {"shop/chat-slow"}
    resolution = resolve_contracts([waiting, working, contract("base", 2, ttft=100)])
    assert ttft(resolution, "shop/chat-slow") == 900
    assert kinds(resolution) == {"shop/chat": [ProblemKind.LOOSER_THAN_PARENT]}
