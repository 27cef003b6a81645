"""A contract is edited while traffic flows: every edit takes effect, and nothing admitted is lost."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from e2e.cluster.shell import ClusterError
from e2e.conftest import SHOP, until_contract
from e2e.harness import samples
from e2e.harness.objects import apply, condition, delete, get, until
from e2e.harness.traffic import Door, Outcome, Traffic

POOL = "stubs"
NAME = "edited"


def _spec(ttft_ms: int, **more: object) -> dict:
    return samples.contract(
        NAME, SHOP, **samples.within(ttft_ms, poolRef={"name": POOL}, tier="Gold", **more)
    )


def _until_new_answers(right: Callable[[float], bool], what: str) -> None:
    """Wait until requests asked from now on are answered as they should be."""
    until(time.monotonic, right, within_s=40, what=what, every_s=0.3)


def _served(traffic: Traffic, last_s: float = 2.0) -> Callable[[float], bool]:
    return lambda now: (
        traffic.count(Outcome.SERVED, since=now - last_s) > 0 and not traffic.codes(since=now - last_s)
    )


def _refused(traffic: Traffic, code: str, last_s: float = 2.0) -> Callable[[float], bool]:
    def right(now: float) -> bool:
        answers = traffic.answers(since=now - last_s)
        return bool(answers) and all(answer.code == code for answer in answers)

    return right


def test_edits_take_effect_and_lose_nothing(door: Door, stubs: str) -> None:
    """Tightened, loosened, given another parent, deleted: answers follow at once; no stream breaks."""
    apply(_spec(5000))
    until_contract(NAME, SHOP, "Ready")
    traffic = Traffic(door, model=POOL, contract=f"{SHOP}/{NAME}", clients=3, max_tokens=20)
    with traffic.running():
        _until_new_answers(_served(traffic), "requests are served")
        apply(_spec(1))
        _until_new_answers(_refused(traffic, "slo_infeasible"), "tightened: new requests are refused")
        apply(_spec(6000))
        _until_new_answers(_served(traffic), "loosened: requests are served again")
        apply(samples.contract("strict-parent", SHOP, **samples.within(1, poolRef={"name": POOL})))
        child = samples.contract(
            NAME, SHOP, parentRef={"name": "strict-parent"}, tier="Gold", poolRef={"name": POOL}
        )
        apply(child)
        _until_new_answers(_refused(traffic, "slo_infeasible"), "another parent: its target counts")
        effective = get("slo", NAME, SHOP)["status"]["effective"]
        assert effective["spec"]["objectives"][0]["targetMs"] == 1
        apply(_spec(5000, parentRef=None))
        _until_new_answers(_served(traffic), "no parent: requests are served again")
        delete("slo", NAME, SHOP)
        _until_new_answers(_refused(traffic, "unknown_contract"), "deleted: the contract is unknown")
    delete("slo", "strict-parent", SHOP)
    assert traffic.failures() == []
    assert set(traffic.codes()) <= {"slo_infeasible", "unknown_contract"}
    assert traffic.count(Outcome.SERVED) >= 10


def test_a_refused_edit_changes_nothing(door: Door, gold: str) -> None:
    """What the schema forbids is refused with the field's name, and the old contract serves on."""
    broken = samples.contract(gold, SHOP, **samples.within(-5, poolRef={"name": POOL}))
    with pytest.raises(ClusterError, match="targetMs"):
        apply(broken)
    assert condition(get("slo", gold, SHOP), "Ready")["status"] == "True"
    traffic = Traffic(door, model=POOL, contract=f"{SHOP}/{gold}", clients=1, max_tokens=4)
    with traffic.running():
        until(lambda: traffic.count(Outcome.SERVED), lambda seen: seen >= 2, within_s=20, what="it serves on")
    assert traffic.failures() == []
