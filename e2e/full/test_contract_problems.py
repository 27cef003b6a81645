"""Contracts that cannot be: taken by the API, named in conditions, and never in the way of others."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from e2e.conftest import SHOP, until_contract, until_ready
from e2e.harness import samples
from e2e.harness.objects import Object, apply, condition, delete, get, until
from e2e.harness.traffic import Door, Outcome, Traffic, ask

POOL = "stubs"


@pytest.fixture
def contracts() -> Iterator[list[str]]:
    """Names of contracts that are removed at the end of a case."""
    made: list[str] = []
    yield made
    for name in made:
        delete("slo", name, SHOP)


def _apply(made: list[str], *documents: Object) -> None:
    made += [document["metadata"]["name"] for document in documents]
    apply(*documents)


def _until_reason(name: str, kind: str, reason: str) -> Object:
    seen = until(
        lambda: condition(get("slo", name, SHOP), kind),
        lambda entry: entry.get("status") == "False" and entry.get("reason") == reason,
        within_s=30,
        what=f"contract {name} has {kind}=False for {reason}",
    )
    return dict(seen)


def _until_another_second(name: str) -> None:
    """The API server tells ages in whole seconds: what is made in the same one is of the same age."""
    made = datetime.fromisoformat(get("slo", name, SHOP)["metadata"]["creationTimestamp"])
    until(
        lambda: (datetime.now(UTC) - made).total_seconds(),
        lambda age_s: age_s >= 1,
        within_s=10,
        what=f"{name} is a second old",
        every_s=0.1,
    )


def test_the_older_of_two_keeps_its_id(door: Door, stubs: str, contracts: list[str]) -> None:
    """Two contracts with one serviceID: the older serves on, the newer names it and is not accepted."""
    first = samples.contract(
        "first", SHOP, serviceID="shared", **samples.within(5000, poolRef={"name": POOL})
    )
    _apply(contracts, first)
    until_contract("first", SHOP, "Ready")
    _until_another_second("first")
    second = samples.contract("second", SHOP, serviceID="shared", **samples.within(1, poolRef={"name": POOL}))
    _apply(contracts, second)
    refused = _until_reason("second", "Accepted", "DuplicateServiceID")
    assert "first" in refused["message"]
    assert ask(door, model=POOL, contract=f"{SHOP}/shared").outcome is Outcome.SERVED


def test_a_cycle_is_named_and_stops_nobody(door: Door, stubs: str, gold: str, contracts: list[str]) -> None:
    """Two contracts that are each other's parents are named; a third one serves as before."""
    _apply(
        contracts,
        samples.contract("ring-a", SHOP, parentRef={"name": "ring-b"}, poolRef={"name": POOL}),
        samples.contract("ring-b", SHOP, parentRef={"name": "ring-a"}, poolRef={"name": POOL}),
    )
    for name in ("ring-a", "ring-b"):
        refused = _until_reason(name, "Accepted", "ParentCycle")
        assert "ring-a" in refused["message"]
        assert "ring-b" in refused["message"]
    assert ask(door, model=POOL, contract=f"{SHOP}/{gold}").outcome is Outcome.SERVED


def test_looser_than_its_parent(door: Door, stubs: str, contracts: list[str]) -> None:
    """A child that loosens its parent's bound is not accepted, and both sides are named."""
    _apply(contracts, samples.contract("strict", SHOP, **samples.within(2000, poolRef={"name": POOL})))
    until_contract("strict", SHOP, "Ready")
    _until_another_second("strict")
    loose = samples.contract("loose", SHOP, parentRef={"name": "strict"}, **samples.within(9000))
    _apply(contracts, loose)
    refused = _until_reason("loose", "Accepted", "LooserThanParent")
    assert "strict" in refused["message"]
    assert "2000" in refused["message"]
    assert "9000" in refused["message"]


def test_infeasible_scales_nothing_up(door: Door, stubs: str, gold: str, contracts: list[str]) -> None:
    """A contract nobody can keep is refused under load, disturbs no other, and makes no executor."""
    before = get("chippool", POOL, SHOP)
    _apply(contracts, samples.contract("dream", SHOP, **samples.within(1, poolRef={"name": POOL})))
    dreams = Traffic(door, model=POOL, contract=f"{SHOP}/dream", clients=2, max_tokens=10)
    others = Traffic(door, model=POOL, contract=f"{SHOP}/{gold}", clients=2, max_tokens=10)
    with dreams.running(), others.running():
        until(lambda: sum(dreams.codes().values()), lambda seen: seen >= 20, within_s=60, what="refusals")
        until(lambda: others.count(Outcome.SERVED), lambda seen: seen >= 10, within_s=60, what="others serve")
    assert set(dreams.codes()) == {"slo_infeasible"}
    assert dreams.count(Outcome.SERVED) == 0
    assert others.failures() == []
    assert not others.codes()
    after = get("chippool", POOL, SHOP)
    assert after["spec"]["replicas"] == before["spec"]["replicas"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    until_ready(POOL, SHOP, executors=before["spec"]["replicas"])


def test_more_than_the_pool_offers(door: Door, stubs: str, contracts: list[str]) -> None:
    """A contract that wants a whole device from a pool of shared slices is not feasible, and says so."""
    wanting = samples.contract(
        "wanting", SHOP, resources={"isolation": "Device"}, **samples.within(5000, poolRef={"name": POOL})
    )
    _apply(contracts, wanting)
    refused = _until_reason("wanting", "Feasible", "ResourcesUnavailable")
    assert "Device" in refused["message"]
