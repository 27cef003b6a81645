"""What a pool comes to before it is placed."""

import pytest

from superinfer_core.api.v1alpha1.pool_status import PoolReason
from superinfer_core.pods.settings import PodSettings
from superinfer_core.prediction.profile import Profile, StepCoefficients
from superinfer_operator.placing.setup import set_up
from superinfer_operator.watching.objects import TextRecord
from superinfer_operator.watching.pools import pool_record

SETTINGS = PodSettings(engine_image="vllm:1")
PROFILE = Profile(
    model="m",
    engine="e",
    machine="x",
    dtype="bf16",
    step_model=StepCoefficients(base_ms=5),
    max_num_seqs=8,
    max_step_tokens=2048,
).dump_json()


def record(name="p", deleting=False, **spec):
    made = {
        "model": {"name": "m", "source": {"path": "/m"}},
        "chiplet": {"shape": "CPU"},
        "replicas": 3,
    } | spec
    metadata = {"name": name, "namespace": "shop", "uid": "u", "generation": 1}
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return pool_record({"metadata": metadata, "spec": made})


def texts(**items):
    return {("shop", "files"): TextRecord("shop", "files", items)}


def test_a_good_pool_becomes_a_demand():
    setup = set_up(
        record(
            chiplet={"shape": "MIG", "profile": "3g.71gb"},
            placement={"nodeSelector": {"gpu": "yes"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]},
            podTemplate={
                "spec": {
                    "nodeSelector": {"disk": "fast"},
                    "containers": [{"name": "executor", "resources": {"requests": {"memory": "4Gi"}}}],
                }
            },
        ),
        {},
        SETTINGS,
    )
    demand = setup.demand
    assert setup.refusal is None
    assert demand is not None
    assert (demand.key, demand.replicas, demand.revision) == ("shop/p", 3, setup.revision)
    assert demand.chiplet.resource == "nvidia.com/mig-3g.71gb"
    assert demand.node_selector == {"gpu": "yes", "disk": "fast"}
    assert demand.tolerations[0].key == "gpu"
    assert demand.requests["memory"] >= 4 * 2**30
    assert demand.requests["pods"] == 1


def test_a_pool_that_is_deleted_wants_nothing():
    demand = set_up(record(deleting=True), {}, SETTINGS).demand
    assert demand is not None
    assert demand.replicas == 0


@pytest.mark.parametrize(
    ("spec", "want_reason", "want_words"),
    [
        pytest.param(
            {"chiplet": {"shape": "MIG"}}, PoolReason.INVALID_SPEC, "profile", id="a rule of the spec"
        ),
        pytest.param(
            {"podTemplate": {"spec": {"nodeName": "n"}}},
            PoolReason.INVALID_SPEC,
            "spec.podTemplate.spec.nodeName",
            id="a template that reaches too far",
        ),
        pytest.param(
            {"model": {"name": "m"}}, PoolReason.INVALID_SPEC, "spec.model.source", id="vLLM without weights"
        ),
        pytest.param(
            {"profileRef": {"name": "gone"}},
            PoolReason.REFERENCE_NOT_FOUND,
            "ConfigMap gone in namespace shop",
            id="a profile that is not there",
        ),
        pytest.param(
            {"policyRef": {"name": "files"}},
            PoolReason.REFERENCE_NOT_FOUND,
            "no item policy.yaml; it has: bad.json",
            id="a ConfigMap without the item",
        ),
    ],
)
def test_what_is_refused_says_which_field(spec, want_reason, want_words):
    setup = set_up(record(**spec), texts(**{"bad.json": "{"}), SETTINGS)
    assert setup.demand is None
    assert setup.refusal is not None
    assert setup.refusal.reason is want_reason
    assert want_words in setup.refusal.message


def test_a_profile_that_is_none_is_refused_with_what_is_wrong():
    setup = set_up(record(profileRef={"name": "files"}), texts(**{"profile.json": "{}"}), SETTINGS)
    assert setup.refusal is not None
    assert "item profile.json of ConfigMap files" in setup.refusal.message


def test_without_any_image_vllm_is_refused_and_a_stub_is_not():
    bare = PodSettings(engine_image="")
    assert set_up(record(), {}, bare).refusal is not None
    assert set_up(record(engine={"type": "Stub"}), {}, bare).refusal is None


def test_a_name_too_long_for_its_executors_is_refused():
    setup = set_up(record(name="p" * 41), {}, SETTINGS)
    assert setup.refusal is not None
    assert "at most 40" in setup.refusal.message


def test_the_profile_of_its_own_chiplet_is_preferred():
    known = texts(**{"profile.json": PROFILE, "profile.3g.71gb.json": PROFILE})
    on_mig = record(profileRef={"name": "files"}, chiplet={"shape": "MIG", "profile": "3g.71gb"})
    assert set_up(on_mig, known, SETTINGS).files.profile == ("files", "profile.3g.71gb.json")
    on_cpu = set_up(record(profileRef={"name": "files"}), known, SETTINGS)
    assert on_cpu.files.profile == ("files", "profile.json")
    assert on_cpu.profile is not None


def test_what_is_missing_is_told_to_whoever_can_look_for_it():
    assert set_up(record(profileRef={"name": "x"}), {}, SETTINGS).missing == (("shop", "x"),)
    assert set_up(record(), {}, SETTINGS).missing == ()


def test_an_edited_policy_makes_another_revision():
    spec = {"policyRef": {"name": "files"}}
    before = set_up(record(**spec), texts(**{"policy.yaml": "a: 1"}), SETTINGS)
    after = set_up(record(**spec), texts(**{"policy.yaml": "a: 2"}), SETTINGS)
    assert before.revision != after.revision


def test_profiles_of_other_shapes_come_from_the_same_config_map():
    known = texts(**{"profile.json": PROFILE, "profile.1g.18gb.json": PROFILE, "profile.gpu.json": "{"})
    on_mig = record(profileRef={"name": "files"}, chiplet={"shape": "MIG", "profile": "3g.71gb"})
    assert set(set_up(on_mig, known, SETTINGS).profiles) == {("3g.71gb", 1), ("1g.18gb", 1)}
    on_two = record(profileRef={"name": "files"}, chiplet={"shape": "GPU", "count": 2})
    whole = texts(**{"profile.gpu.json": PROFILE, "profile.1g.18gb.json": PROFILE})
    assert set(set_up(on_two, whole, SETTINGS).profiles) == {("GPU", 2), ("1g.18gb", 1)}


def test_memory_is_what_a_chiplet_must_have():
    memory = {"weightsMiB": 1000, "kvBytesPerToken": 1024, "overheadMiB": 500, "kvTokens": 1024}
    spec = {
        "model": {"name": "m", "source": {"path": "/m"}, "memory": memory},
        "chiplet": {"shape": "GPU", "count": 2},
        "engine": {"args": ["--gpu-memory-utilization", "0.8"]},
    }
    setup = set_up(record(**spec), {}, SETTINGS)
    assert setup.demand is not None
    assert setup.demand.chiplet.memory_mib == (1000 + 1 + 2 * 500 + 0) * 100 // 80 + 1
    assert (
        setup.revision
        == set_up(record(**{**spec, "model": {"name": "m", "source": {"path": "/m"}}}), {}, SETTINGS).revision
    )
