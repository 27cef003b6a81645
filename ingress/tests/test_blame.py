"""A request that brings engines down is found and given up; one that only was unlucky goes on."""

import asyncio
import concurrent.futures
import contextlib
import json
import threading

import pytest

from superinfer_proto.v1 import sidecar_pb2, slo_pb2, work_pb2

POISON = "poison"
ATTEMPTS = 3


@contextlib.contextmanager
def kept_alive(rig, executors):
    """Engines that end start again; how many did."""
    over, ends = threading.Event(), []

    def keep(executor):
        engine = executor.engine
        while not over.wait(0.02):
            if engine.child.poll() is not None:
                ends.append(executor.name)
                engine = rig.engine(executor.socket, step_ms=5, die_on=POISON)

    with concurrent.futures.ThreadPoolExecutor() as pool:
        try:
            kept = [pool.submit(keep, executor) for executor in executors]
            yield ends
        finally:
            over.set()
        for each in kept:
            each.result()


def test_what_brings_engines_down_is_given_up_and_what_was_beside_it_goes_on(rig, kit):
    executors = [rig.executor(step_ms=5, die_on=POISON) for _ in range(2)]
    ingress = rig.ingress(executors, resume={"attempts": ATTEMPTS})
    kit.until(lambda: ingress.metric("superinfer_executor_serving") == 2, "both executors")
    with kept_alive(rig, executors) as ends, concurrent.futures.ThreadPoolExecutor(16) as pool:
        beside = [pool.submit(ingress.chat, 400, stream=True, words=f"number {n}") for n in range(8)]
        kit.until(lambda: ingress.metric("superinfer_ledger_tokens") > 50, "some tokens")
        answer = ingress.chat(20, stream=True, words=POISON)
        others = [each.result() for each in beside]
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (502, "engine_failed")
    assert f"{ATTEMPTS + 1} engines in a row failed" in error["message"]
    assert f"resume.attempts: {ATTEMPTS}" in error["message"]
    assert answer.headers["x-should-retry"] == "false"
    assert len(ends) == ATTEMPTS + 1
    for other in others:
        assert other.content.count(b"tok") == 400
        assert other.content.endswith(b"data: [DONE]\n\n")
    (condemned,) = [record for record in ingress.records(9) if record["code"]]
    assert len(condemned["resumes"]) == ATTEMPTS


# By script: what the sidecar says of an attempt, and what is made of it.


def lost(submit, *, begun):
    """The engine ended; it had the request, or not yet."""
    messages = []
    if begun:
        told = sidecar_pb2.Begun(request_id=submit.request_id, attempt=submit.attempt)
        messages.append(sidecar_pb2.FromSidecar(begun=[told]))
    error = slo_pb2.Error(code="engine_failed", message="it broke")
    output = work_pb2.Output(final=True, error=error, request_id=submit.request_id, attempt=submit.attempt)
    return [*messages, sidecar_pb2.FromSidecar(frame=work_pb2.Frame(outputs=[output]))]


def script_of(kit, losses, begun):
    def script(submit):
        if submit.attempt <= losses:
            return [*kit.admitted(submit), *lost(submit, begun=begun)]
        token = work_pb2.Output(token_ids=[5], chunk=b'data: {"n":5}\n\n')
        return kit.admitted(submit, token, work_pb2.Output(final=True, chunk=b"data: [DONE]\n\n"))

    return script


@pytest.mark.parametrize(
    ("losses", "begun", "status"),
    [
        pytest.param(9, False, 200, id="nine ends while it waited: it goes on"),
        pytest.param(2, True, 200, id="two ends while the engine had it: it goes on"),
        pytest.param(9, True, 502, id="again and again while the engine had it: given up"),
    ],
)
async def test_only_ends_of_engines_that_had_it_count(rig, kit, scripted, losses, begun, status):
    # Two, since an executor that failed a request and is still the same one is left alone for a second.
    sidecars = [await scripted(script_of(kit, losses, begun)) for _ in range(2)]
    ask = {"resume": {"attempts": 2}}
    ingress = await asyncio.to_thread(lambda: rig.ingress([executor for _, executor in sidecars], **ask))
    answer = await asyncio.to_thread(lambda: ingress.chat(8, stream=True))
    assert answer.status_code == status, answer.text
    attempts = sum(len(sidecar.submits) for sidecar, _ in sidecars)
    assert attempts == (3 if status == 502 else losses + 1)
    if status == 502:
        assert "3 engines in a row" in json.loads(answer.content)["error"]["message"]


async def test_who_waits_too_long_hears_which_bound_it_was(rig, kit, scripted):
    _, executor = await scripted(script_of(kit, 9, begun=False))
    settings = {"resume": {"within": 0.4}}
    ingress = await asyncio.to_thread(lambda: rig.ingress([executor], **settings))
    answer = await asyncio.to_thread(lambda: ingress.chat(8, stream=True))
    assert answer.status_code == 502
    assert "resume.within: 0.4" in answer.json()["error"]["message"]
    assert "x-should-retry" not in answer.headers
