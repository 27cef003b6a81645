"""Which effective field comes from which contract."""

from superinfer_core.api.v1alpha1.slocontract import SLOContractSpec
from superinfer_core.contract.conflicts import PoolFacts
from superinfer_core.contract.explain import explain
from superinfer_core.contract.inheritance import StoredContract
from superinfer_core.contract.resolution import resolve_contracts


def stored(name: str, created: str, **spec: object) -> StoredContract:
    return StoredContract("clinic", name, SLOContractSpec.model_validate(spec), created=created)


RESOLUTION = resolve_contracts(
    [
        stored(
            "hospital", "1", tier="Silver", availability="99.5", poolRef={"name": "big", "namespace": "gpu"}
        ),
        stored(
            "hospital-triage",
            "2",
            tier="Gold",
            objectives=[{"metric": "TTFT", "percentile": 99, "targetMs": 500}],
        ),
        stored("hospital-triage-stroke", "3", quota={"concurrency": 2}),
        stored("late", "4", serviceID="hospital"),
    ]
)


def test_every_field_says_who_states_it() -> None:
    explanation = explain(RESOLUTION, "clinic/hospital-triage-stroke")
    assert explanation is not None
    assert explanation.lineage == (
        "clinic/hospital-triage-stroke",
        "clinic/hospital-triage",
        "clinic/hospital",
    )
    assert {field.field: (field.value, field.origin) for field in explanation.fields} == {
        "tier": ("Gold", "clinic/hospital-triage"),
        "priority": ("0", "default"),
        "objectives[TTFT P99]": ("500 ms", "clinic/hospital-triage"),
        "availability": ("99.5", "clinic/hospital"),
        "window": ("1h", "default"),
        "onInfeasible": ("Reject", "default"),
        "poolRef": ("gpu/big", "clinic/hospital"),
        "access.mode": ("OwnKeys", "default"),
        "quota.concurrency": ("2", "clinic/hospital-triage-stroke"),
    }
    assert explanation.deadlines == ("first token within 500 ms",)


def test_a_preset_is_said_to_be_the_tier_s() -> None:
    explanation = explain(RESOLUTION, "clinic/hospital")
    assert explanation is not None
    objective = next(field for field in explanation.fields if field.field.startswith("objectives"))
    assert (objective.value, objective.origin) == ("100 ms", "default of tier Silver")


def test_a_contract_out_of_effect_is_explained_by_its_problems() -> None:
    explanation = explain(RESOLUTION, "clinic/late")
    assert explanation is not None
    assert explanation.in_effect is False
    assert explanation.problems[0].other == "clinic/hospital"


def test_a_pool_nobody_named_is_explained() -> None:
    pools = [PoolFacts("clinic", "new", created="2"), PoolFacts("clinic", "old", created="1")]
    explanation = explain(resolve_contracts([stored("a", "1")], pools), "clinic/a")
    assert explanation is not None
    row = next(field for field in explanation.fields if field.field == "poolRef")
    assert row.value == "clinic/old"
    assert "oldest pool" in row.origin


def test_an_unknown_contract_has_no_explanation() -> None:
    assert explain(RESOLUTION, "clinic/nobody") is None
