"""From `kubectl apply` on a fresh install to a first token of the real engine; what the objects say then."""

from __future__ import annotations

import json
import time

import pytest
from e2e.conftest import LAB, until_contract, until_ready
from e2e.harness import samples
from e2e.harness.objects import apply, condition, get, kubectl, pods_of, until
from e2e.harness.report import Report
from e2e.harness.traffic import Door, Outcome, ask

pytestmark = pytest.mark.at_the_start

POOL = "smollm2"
EASY_MS = 60_000
IMPOSSIBLE_MS = 1


def _pool_pods() -> list[dict]:
    return pods_of(POOL, LAB)


def test_apply_to_first_token(door: Door, report: Report) -> None:
    """Contract and pool applied on a fresh install: the real vLLM answers through the Service."""
    started = time.monotonic()
    apply(
        samples.vllm_pool(POOL, LAB),
        samples.contract("chat", LAB, **samples.within(EASY_MS, poolRef={"name": POOL}, tier="Gold")),
        samples.contract("hopeless", LAB, **samples.within(IMPOSSIBLE_MS, poolRef={"name": POOL})),
    )
    answer = until(
        lambda: ask(
            door, model=POOL, contract="lab/chat", prompt="What is the capital of France?", max_tokens=24
        ),
        lambda seen: seen.outcome is Outcome.SERVED,
        within_s=300,
        what="a chat completion of the real engine",
        every_s=0.5,
    )
    report.figures["apply_to_first_token_s"] = round(
        time.monotonic() - started - answer.took_s + (answer.ttft_s or 0), 1
    )
    report.figures["first_answer_ttft_s"] = round(answer.ttft_s or 0, 3)
    assert "Paris" in answer.text, "SmolLM2 knows this one; a stub would not"
    assert answer.headers["x-superinfer-contract"] == "lab/chat"
    assert answer.executor == _pool_pods()[0]["metadata"]["name"]
    assert (answer.ttft_s or 0) * 1000 < EASY_MS


def test_the_pod_is_where_the_plan_says(door: Door) -> None:
    """The executor pod is pinned to the planned node, holds the MIG resource, and is Ready."""
    until_ready(POOL, LAB, executors=1)
    pod = _pool_pods()[0]
    planned = json.loads(pod["metadata"]["annotations"]["superinfer.dev/chiplet"])
    chiplet = get("chippool", POOL, LAB)["status"]["chiplets"][0]
    executor = next(entry for entry in pod["spec"]["containers"] if entry["name"] == "executor")
    assert pod["spec"]["nodeName"] == planned["node"] == chiplet["node"]
    assert executor["resources"]["limits"][samples.MIG_RESOURCE] == "1"
    assert executor["image"] == "superinfer/vllm-mounted:dev"
    assert condition(pod, "Ready")["status"] == "True"
    owner = pod["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("ChipletPool", POOL, True)


def test_the_same_again_within_the_contract(door: Door) -> None:
    """Answers are deterministic, and the promised first token is kept for each of five in a row."""
    answers = [
        ask(door, model=POOL, contract="lab/chat", prompt="Count to five.", max_tokens=12) for _ in range(5)
    ]
    assert [answer.outcome for answer in answers] == [Outcome.SERVED] * 5
    assert len({answer.text for answer in answers}) == 1
    assert all((answer.ttft_s or 0) * 1000 <= EASY_MS for answer in answers)


def test_an_impossible_contract_is_refused_at_the_door(door: Door) -> None:
    """A contract no executor can keep is refused with 425, with what it would take."""
    answer = ask(door, model=POOL, contract="lab/hopeless")
    assert (answer.outcome, answer.status, answer.code) == (Outcome.REFUSED, 425, "slo_infeasible")
    assert answer.headers.get("x-should-retry") == "false"


def test_kubectl_shows_it_all(door: Door) -> None:
    """`kubectl get slo` and `kubectl get chippool` show pool, tier, targets and readiness."""
    until_contract("chat", LAB, "Ready")
    table = kubectl("get", "slo", "chat", "--namespace", LAB).splitlines()
    header, row = table[0].split(), table[1].split()
    shown = dict(zip(header, row, strict=False))
    assert shown["NAME"] == "chat"
    assert shown["POOL"] == POOL
    assert shown["TIER"] == "Gold"
    assert shown["TTFT"] == str(EASY_MS)
    assert "True" in row
    pools = kubectl("get", "chippool", POOL, "--namespace", LAB)
    assert "3g.71gb" in pools
    assert "Ready" in pools


def test_keys_open_only_what_they_should(door: Door) -> None:
    """Without a known key nothing is served; an unknown contract is an error, never best effort."""
    stranger = ask(Door(door.url, "sk-unknown"), model=POOL, contract="lab/chat")
    assert (stranger.status, stranger.code) == (401, "unauthorized")
    unknown = ask(door, model=POOL, contract="lab/no-such-contract")
    assert (unknown.status, unknown.code) == (404, "unknown_contract")
