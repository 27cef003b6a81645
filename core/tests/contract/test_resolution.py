"""Contracts together: who inherits from whom, who gives way, and that nobody else notices."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superinfer_core.api.v1alpha1.slocontract import SLOContractSpec
from superinfer_core.contract.conflicts import PoolFacts, Unloaded
from superinfer_core.contract.effective import AccessMode, Isolation, OnInfeasible
from superinfer_core.contract.inheritance import StoredContract
from superinfer_core.contract.problems import ContractConflictError, FieldProblem, ProblemKind
from superinfer_core.contract.resolution import Resolution, resolve_contracts
from superinfer_core.slo import Metric, Objective, Tier


def contract(name: str, age: int = 0, namespace: str = "shop", uid: str = "", **spec: Any) -> StoredContract:
    """A stored contract; a greater age is newer. `ttft` is short for a TTFT P99 objective."""
    if (ttft := spec.pop("ttft", None)) is not None:
        spec["objectives"] = [{"metric": "TTFT", "percentile": 99, "targetMs": ttft}]
    for reference in ("parentRef", "fallbackRef", "poolRef"):
        if reference in spec:
            spec[reference] = {"name": spec[reference]}
    return StoredContract(
        namespace=namespace,
        name=name,
        spec=SLOContractSpec.model_validate(spec),
        created=f"2026-01-01T00:00:{age:02}Z",
        uid=uid or name,
    )


def kinds(resolution: Resolution) -> dict[str, list[ProblemKind]]:
    return {key: [problem.kind for problem in problems] for key, problems in resolution.problems.items()}


def ttft(resolution: Resolution, key: str) -> int | None:
    return resolution.effective[key].deadline_target_ms(Metric.TTFT)


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


POOL = PoolFacts(
    "shop",
    "small",
    allowed_namespaces=frozenset({"guest"}),
    max_chiplets=2,
    product="NVIDIA-H200",
    memory_mib=16_000,
    isolation=Isolation.INSTANCE,
    unloaded=Unloaded(ttft_ms=40.2, itl_ms=8, e2e_ms=100),
)
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


# --- whatever is stored


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
