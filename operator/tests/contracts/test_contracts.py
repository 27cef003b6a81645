"""Contracts: resolved by namespace, judged by what pools offer, with attainment of all ingresses."""

import json

import pytest

from superinfer_core.contract.conflicts import PoolFacts
from superinfer_core.contract.shared_counts import promise_of
from superinfer_core.placement import ExecutorPhase, Node
from superinfer_core.pods.settings import PodSettings
from superinfer_core.prediction.profile import Profile, StepCoefficients
from superinfer_operator.contracts.attainment import by_contract, counts_record
from superinfer_operator.contracts.pool_facts import pool_facts
from superinfer_operator.contracts.resolving import Resolver
from superinfer_operator.contracts.status import contract_status
from superinfer_operator.placing.setup import set_up
from superinfer_operator.watching.contracts import contract_record
from superinfer_operator.watching.objects import TextRecord
from superinfer_operator.watching.pods import ExecutorPod
from superinfer_operator.watching.pools import pool_record

NOW = "2026-01-01T00:00:00Z"
POOLS = [PoolFacts("shop", "p"), PoolFacts("other", "p")]


def contract(name, namespace="shop", created="2026-01-01T00:00:00Z", **spec):
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": name,
        "generation": 3,
        "creationTimestamp": created,
    }
    return contract_record({"metadata": metadata, "spec": {"poolRef": {"name": "p"}} | spec})


class TestResolver:
    """Only what changed is resolved anew."""

    def test_nothing_is_resolved_twice(self):
        resolver, records = Resolver(), [contract("a"), contract("b", "other")]
        first = dict(resolver.resolve([r.stored for r in records], POOLS))
        again = dict(resolver.resolve([r.stored for r in records], POOLS))
        assert resolver.resolved_namespaces == 0
        assert first["shop/a"] is again["shop/a"]

    def test_a_change_costs_its_own_namespace(self):
        resolver, a, b = Resolver(), contract("a"), contract("b", "other")
        resolver.resolve([a.stored, b.stored], POOLS)
        found = dict(resolver.resolve([contract("a", tier="Gold").stored, b.stored], POOLS))
        assert resolver.resolved_namespaces == 1
        assert found["shop/a"].effective.tier.value == "Gold"

    def test_a_changed_pool_costs_the_namespaces_that_may_use_it(self):
        resolver, records = Resolver(), [contract("a").stored, contract("b", "other").stored]
        resolver.resolve(records, POOLS)
        grown = PoolFacts("shop", "p", max_chiplets=4)
        resolver.resolve(records, [grown, POOLS[1]])
        assert resolver.resolved_namespaces == 1
        shared = PoolFacts("shop", "p", max_chiplets=4, allowed_namespaces=frozenset({"other"}))
        resolver.resolve(records, [shared, POOLS[1]])
        assert resolver.resolved_namespaces == 2

    def test_a_pool_that_is_named_matters_although_it_serves_others_alone(self):
        resolver = Resolver()
        record = contract("a", poolRef={"name": "p", "namespace": "other"})
        found = dict(resolver.resolve([record.stored], POOLS))["shop/a"]
        assert [problem.kind.value for problem in found.problems] == ["PoolNotAllowed"]
        found = dict(resolver.resolve([record.stored], POOLS[:1]))["shop/a"]
        assert [problem.kind.value for problem in found.problems] == ["PoolNotFound"]

    def test_a_contract_that_comes_out_equal_stays_the_same_object(self):
        resolver, records = Resolver(), [contract("a").stored, contract("b").stored]
        before = dict(resolver.resolve(records, POOLS))
        changed = [records[0], contract("b", tier="Gold").stored]
        after = dict(resolver.resolve(changed, POOLS))
        assert before["shop/a"] is after["shop/a"]
        assert before["shop/b"] is not after["shop/b"]

    def test_what_is_gone_is_gone(self):
        resolver = Resolver()
        resolver.resolve([contract("a").stored], POOLS)
        assert list(resolver.resolve([], POOLS)) == []


def resolved(record, *others):
    return dict(Resolver().resolve([record.stored, *(o.stored for o in others)], POOLS))[record.key]


def test_status_says_what_is_in_effect_and_of_which_generation():
    record = contract("a", objectives=[{"metric": "TTFT", "percentile": 99, "targetMs": 300}])
    status = contract_status(record, resolved(record), (), now=NOW)
    assert status["observedGeneration"] == 3
    assert status["effective"]["spec"]["objectives"] == [
        {"metric": "TTFT", "percentile": 99, "targetMs": 300}
    ]
    assert {c["type"] for c in status["conditions"]} == {"Ready", "Accepted", "ResolvedRefs", "Feasible"}


def test_of_two_with_one_id_the_newer_is_named_with_the_older():
    older = contract("old", serviceID="x")
    newer = contract("new", serviceID="x", created="2026-02-01T00:00:00Z")
    status = contract_status(newer, resolved(newer, older), (), now=NOW)
    ready = next(c for c in status["conditions"] if c["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "DuplicateServiceID")
    assert "shop/old" in ready["message"]
    good = contract_status(older, resolved(older, newer), (), now=NOW)
    assert next(c for c in good["conditions"] if c["type"] == "Ready")["status"] == "True"


def test_attainment_is_the_sum_over_ingresses():
    record = contract("a", objectives=[{"metric": "TTFT", "percentile": 90, "targetMs": 300}])
    found = resolved(record)
    promise = promise_of(found.effective)
    documents = [
        {
            "data": {
                "counts.json": json.dumps(
                    {"contracts": {"shop/a": counts | {"promise": promise, "covered": 1}}}
                )
            }
        }
        for counts in (
            {"offered": 60, "served": 60, "admitted": 60, "kept": 59, "misses": [1, 0]},
            {"offered": 40, "served": 40, "admitted": 40, "kept": 38, "misses": [2, 0]},
        )
    ]
    counts = by_contract([counts_record(document) for document in documents])
    attainment = contract_status(record, found, counts["shop/a"], now=NOW)["attainment"]
    assert (attainment["offered"], attainment["fulfilled"]) == (100, "Kept")
    assert attainment["promises"][0]["keptPercent"] == "97.00"


def test_a_config_map_without_counts_is_none():
    assert counts_record({"data": {"config.yaml": "x"}}).contracts == {}


@pytest.mark.parametrize("text", ["{", '{"contracts": []}', "{}"])
def test_counts_that_cannot_be_read_are_a_problem_not_zero(text):
    with pytest.raises((ValueError, KeyError)):
        counts_record({"data": {"counts.json": text}})


PROFILE = Profile(
    model="m",
    engine="e",
    machine="x",
    dtype="bf16",
    step_model=StepCoefficients(base_ms=20, per_prefill_token_ms=1),
    max_num_seqs=8,
    max_step_tokens=2048,
).dump_json()


def pool_setup(**spec):
    made = {
        "model": {"name": "m"},
        "engine": {"type": "Stub"},
        "chiplet": {"shape": "GPU"},
        "replicas": 2,
    } | spec
    metadata = {"name": "p", "namespace": "shop", "uid": "u", "generation": 1}
    texts = {("shop", "files"): TextRecord("shop", "files", {"profile.json": PROFILE})}
    return set_up(pool_record({"metadata": metadata, "spec": made}), texts, PodSettings())


class TestPoolFacts:
    """What contracts may count on from a pool."""

    H200 = Node("n1", labels={"nvidia.com/gpu.product": "NVIDIA-H200"})
    POD = ExecutorPod("shop", "p-0-1", "u", "shop/p", 0, 1, "r", {"node": "n1"}, ExecutorPhase.READY)

    def test_the_product_is_where_it_runs(self):
        facts = pool_facts(pool_setup(), [self.POD], {"n1": self.H200})
        assert facts.product == "NVIDIA-H200"
        assert facts.memory_mib > 100_000

    def test_a_product_that_could_be_several_is_unknown(self):
        other = ExecutorPod("shop", "p-1-1", "v", "shop/p", 1, 1, "r", {"node": "n2"}, ExecutorPhase.READY)
        nodes = {"n1": self.H200, "n2": Node("n2", labels={"nvidia.com/gpu.product": "NVIDIA-A100"})}
        assert pool_facts(pool_setup(), [self.POD, other], nodes).product is None

    def test_a_mig_instance_has_its_own_memory(self):
        setup = pool_setup(chiplet={"shape": "MIG", "profile": "3g.71gb"})
        whole = pool_facts(pool_setup(), [self.POD], {"n1": self.H200}).memory_mib
        assert 0 < pool_facts(setup, [self.POD], {"n1": self.H200}).memory_mib < whole

    def test_it_may_grow_to_what_its_autoscaling_allows(self):
        assert pool_facts(pool_setup(autoscaling={"maxReplicas": 9}), [], {}).max_chiplets == 9
        assert pool_facts(pool_setup(), [], {}).max_chiplets == 2

    def test_its_profile_says_what_an_idle_chiplet_does(self):
        facts = pool_facts(pool_setup(profileRef={"name": "files"}), [], {})
        assert facts.unloaded.ttft_ms == pytest.approx(21, abs=1)
        assert pool_facts(pool_setup(), [], {}).unloaded is None

    def test_targets_an_idle_chiplet_cannot_meet_are_infeasible_and_named(self):
        facts = pool_facts(pool_setup(profileRef={"name": "files"}), [], {})
        record = contract("a", objectives=[{"metric": "TTFT", "percentile": 99, "targetMs": 5}])
        found = dict(Resolver().resolve([record.stored], [facts]))[record.key]
        conditions = contract_status(record, found, (), now=NOW)["conditions"]
        feasible = next(c for c in conditions if c["type"] == "Feasible")
        assert (feasible["status"], feasible["reason"]) == ("False", "TargetsUnreachable")
