"""Executors are lost in every way a cluster has while 20 clients stream: nobody notices but by a pause.

Every client asks the same over and over, half of them greedily, half with a seed, so each answer can be
compared with one that nothing interrupted. Real engines go on from KV that was saved elsewhere, not computed
again: their contexts are many blocks long.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager

import pytest
from e2e.conftest import LAB, SHOP, until_contract, until_ready
from e2e.harness import losses, release, samples
from e2e.harness.losses import node_of
from e2e.harness.objects import Object, apply, delete, find, kubectl, pods_of, until
from e2e.harness.report import Report
from e2e.harness.streams import Stream, Streams
from e2e.harness.traffic import Door

from superinfer_core.api.v1alpha1 import labels

CLIENTS = 20
BUSY = 5
TINY = "tiny"
STUBS = "stubs"
PATIENT_MS = 120_000
PREFACE = "The boats are in, the nets are dry, the light is on. " * 8
BLOCK_TOKENS = 32
"""Of the engines of the pool `tiny`."""

Loss = Callable[[Object], AbstractContextManager[None]]


@pytest.fixture(scope="module")
def engines(installed: None) -> Iterator[str]:
    """A pool of two real engines on two nodes; the other real engine, which has done its part, is away."""
    if find("chippool", "smollm2", LAB) is not None:
        kubectl("scale", "chippool", "smollm2", "--namespace", LAB, "--replicas=0")
    apply(
        samples.tiny_vllm_pool(TINY, LAB, replicas=2),
        samples.contract("stories", LAB, **samples.within(PATIENT_MS, poolRef={"name": TINY}, tier="Gold")),
    )
    until_ready(TINY, LAB, executors=2, within_s=420)
    until_contract("stories", LAB, "Ready")
    yield TINY
    delete("chippool", TINY, LAB, wait_s=120)
    delete("slo", "stories", LAB)


@pytest.fixture
def patient(stubs: str) -> Iterator[str]:
    """A contract of the stubs that lets a cut stream wait for a free place."""
    spec = samples.within(PATIENT_MS, poolRef={"name": stubs}, tier="Gold")
    apply(samples.contract("patient", SHOP, **spec))
    until_contract("patient", SHOP, "Ready")
    yield "patient"
    delete("slo", "patient", SHOP)


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("pod_killed", losses.pod_killed),
        ("node_stopped", losses.node_stopped),
        ("device_failed", losses.device_failed),
    ],
    ids=["pod killed", "node stopped", "device failed"],
)
def test_clients_of_real_engines_notice_nothing(
    door: Door, engines: str, report: Report, name: str, loss: Loss
) -> None:
    """Real vLLM, tiny model, 20 streams: cut ones go on elsewhere, each answer is whole, exact, and one.

    The executor that takes them has their KV as copies, loads it, and computes little of it again.
    """
    until_ready(TINY, LAB, executors=2, within_s=420)
    streams = Streams(
        door, model=TINY, contract=f"{LAB}/stories", clients=CLIENTS, tokens=800, preface=PREFACE
    )
    pods = {pod["metadata"]["name"]: pod for pod in pods_of(TINY, LAB)}
    before = {name: _kv_used(pod) for name, pod in pods.items()}
    resumed = _nobody_notices(streams, TINY, LAB, loss, report, name)
    moves = [resume for entry in resumed for resume in entry["resumes"]]
    takers = ({move["taken_by"] for move in moves} & pods.keys()) - {move["left"] for move in moves}
    assert takers, "somebody who was there all the time took them"
    restored, loaded = (
        sum(_kv_used(pods[taker])[number] - before[taker][number] for taker in takers) for number in (0, 1)
    )
    report.figures |= {f"{name}_restored": restored, f"{name}_loaded_blocks": loaded}
    assert restored > 0, "requests came back to KV that was there for them"
    assert loaded > 0, "and the engine took it instead of computing it"
    once = [entry["recomputed_tokens"] for entry in resumed if len(entry["resumes"]) == 1]
    report.figures[f"{name}_recomputed_tokens"] = sum(once)
    assert min(once, default=0) <= BLOCK_TOKENS, "of some request only what was in no saved block yet"
    until_ready(TINY, LAB, executors=2, within_s=420)


def test_clients_of_stubs_notice_no_killed_node(door: Door, patient: str, report: Report) -> None:
    """Engine stubs, 20 streams, a node that is gone from one moment to the next: each answer is whole."""
    until_ready(STUBS, SHOP, executors=3)
    streams = Streams(door, model=STUBS, contract=f"{SHOP}/{patient}", clients=CLIENTS, tokens=400)
    _nobody_notices(streams, STUBS, SHOP, losses.node_killed, report, "node_killed")
    until_ready(STUBS, SHOP, executors=3, within_s=240)


def _kv_used(pod: Object) -> tuple[float, float]:
    """Requests of a pod that found KV of theirs here or fetched it, and blocks its engine loaded."""
    restored = sum(
        release.counter(
            pod, labels.METRICS_PORT, "superinfer_checkpoint_restores_total", label=f'result="{result}"'
        )
        for result in ("own", "whole", "part")
    )
    loaded = "superinfer_checkpoint_engine_loaded_blocks_total"
    return restored, release.counter(pod, labels.METRICS_PORT, loaded)


def _nobody_notices(
    streams: Streams, pool: str, namespace: str, loss: Loss, report: Report, name: str
) -> list[Object]:
    """Lose a busy executor under the streams; every answer is what it would have been.

    Returns the log entries of those that left it.
    """
    began = time.monotonic()
    expected = {stream.client: stream for stream in streams.once()}
    assert _flaws(expected.values()) == [], "nothing was lost yet"
    with streams.running():
        cut_before = release.ingress_counter("superinfer_resumes_total")
        victim = _busy_pod(streams, pool, namespace)
        with loss(victim):
            until(
                lambda: release.ingress_counter("superinfer_resumes_total"),
                lambda seen: seen > cut_before,
                within_s=120,
                what=f"streams that {victim['metadata']['name']} had go on elsewhere",
            )
            resumed_at = time.monotonic()
            until(
                lambda: len({stream.client for stream in streams.answers(since=resumed_at)}),
                lambda seen: seen == CLIENTS,
                within_s=180,
                what="every client has the end of the answer it was reading",
            )
    answers = streams.answers()
    assert _flaws(answers) == []
    wrong = [
        f"client {answer.client}, {answer.request_id} of {answer.executor}:\n{answer.text}\n"
        f"and not\n{expected[answer.client].text}"
        for answer in answers
        if answer.text != expected[answer.client].text
    ]
    assert wrong == [], "an answer is not what it is when nothing is lost"
    ours = {answer.request_id for answer in answers}
    resumed = [
        entry
        for entry in release.request_log(time.monotonic() - began)
        if entry["request_id"] in ours
        and victim["metadata"]["name"] in {resume["left"] for resume in entry["resumes"]}
    ]
    assert resumed, "the request log names the requests that went on elsewhere"
    gaps = [resume["gap_ms"] for entry in resumed for resume in entry["resumes"]]
    report.figures |= {
        f"{name}_streams": len(answers),
        f"{name}_resumed": len(resumed),
        f"{name}_longest_gap_ms": max(gap for gap in gaps if gap is not None),
        f"{name}_longest_pause_s": round(max(answer.longest_pause_s for answer in answers), 1),
    }
    return resumed


def _busy_pod(streams: Streams, pool: str, namespace: str) -> Object:
    """A pod with several streams while all clients are being answered; not on the node of the ingress."""
    pods = {
        pod["metadata"]["name"]: pod
        for pod in pods_of(pool, namespace)
        if node_of(pod) != release.door_node()
    }

    def busiest(under_way: dict[int, str]) -> str:
        serving = Counter(name for name in under_way.values() if name in pods)
        name, number = max(serving.items(), key=lambda item: item[1], default=("", 0))
        return name if len(under_way) == CLIENTS and number >= BUSY else ""

    under_way = until(
        streams.under_way,
        busiest,
        within_s=120,
        what=f"all {CLIENTS} clients are being answered, {BUSY} of them by one of {sorted(pods)}",
        every_s=0.1,
    )
    return pods[busiest(under_way)]


def _flaws(answers: Iterable[Stream]) -> list[str]:
    return [f"client {one.client}: {one.flaw}" for one in answers if one.flaw]
