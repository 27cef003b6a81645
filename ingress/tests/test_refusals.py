"""Every refusal of the closed list: status, code, and what tells a client whether to come back."""

import asyncio
import json

from superinfer_core.refusal import HTTP_STATUS, RefusalCode
from superinfer_proto.v1 import slo_pb2, work_pb2


def output(**fields):
    return work_pb2.Output(**fields)


def failure(code):
    return output(final=True, error=slo_pb2.Error(code=code, message=f"because of {code}"))


def token(number, **fields):
    return output(first_token=number, token_ids=[number], chunk=b'data: {"n":%d}\n\n' % number, **fields)


async def post(ingress, kit, **more):
    return await asyncio.to_thread(lambda: ingress.chat(**more))


RETRYABLE = {"saturated", "shed", "quota_exceeded", "no_executors", "shutting_down"}


def asked_for(submit):
    """The code a test wants is the text of its message."""
    return json.loads(submit.body)["messages"][0]["content"]


async def test_every_refusal_of_a_sidecar_has_its_own_status_and_code(rig, kit, scripted):
    _, executor = await scripted(lambda submit: kit.declined(submit, asked_for(submit)))
    ingress = await asyncio.to_thread(lambda: rig.ingress([executor]))
    for code in RefusalCode:
        answer = await post(ingress, kit, words=code.value)
        assert answer.status_code == HTTP_STATUS[code], code
        assert answer.json()["error"]["code"] == code
        assert ("retry-after" in answer.headers) == (code in RETRYABLE), code
        assert (answer.headers.get("x-should-retry") == "false") == (code == "slo_infeasible"), code
        assert ingress.metric("superinfer_refusals_total", reason=code.value) == 1, code


async def test_a_failure_before_the_first_token_is_a_status_not_a_stream(rig, kit, scripted):
    _, executor = await scripted(lambda submit: kit.admitted(submit, failure(asked_for(submit))))
    ingress = await asyncio.to_thread(lambda: rig.ingress([executor], resume={"attempts": 0}))
    for code in ("deadline_expired", "engine_failed", "not_resumable", "shed"):
        answer = await post(ingress, kit, words=code, stream=True)
        assert answer.status_code == HTTP_STATUS[RefusalCode(code)], code
        assert answer.json()["error"]["code"] == code
        assert answer.headers["x-superinfer-executor"] == executor.name


async def test_a_failure_after_the_first_token_is_an_event_and_no_done(rig, kit, scripted):
    _, executor = await scripted(lambda submit: kit.admitted(submit, token(0), failure("engine_failed")))
    ingress = await asyncio.to_thread(lambda: rig.ingress([executor], resume={"attempts": 0}))
    answer = await post(ingress, kit, stream=True)
    assert answer.status_code == 200
    assert b"[DONE]" not in answer.content
    assert answer.content.startswith(b'data: {"n":0}\n\n')
    assert b'"code":"engine_failed"' in answer.content
    (record,) = ingress.records(1)
    assert (record["status"], record["code"], record["kept"]) == (200, "engine_failed", False)


async def test_an_infeasible_request_hears_what_would_have_passed(rig, kit, scripted):
    figures = {"metric": "TTFT", "predicted_ms": 812.34, "required_ms": 300, "tightest_ms": 850}
    _, executor = await scripted(
        lambda submit: kit.declined(submit, "slo_infeasible", feasible_when_idle=True, harm=True, **figures)
    )
    ingress = await asyncio.to_thread(lambda: rig.ingress([executor], infeasibleStatus=429))
    answer = await post(ingress, kit)
    assert answer.status_code == 429
    error = answer.json()["error"]
    assert (error["predicted_ms"], error["required_ms"], error["tightest_ms"]) == (812.3, 300.0, 850.0)
    assert (error["metric"], error["feasible_when_idle"], error["harm"]) == ("TTFT", True, True)
    assert "retry-after" not in answer.headers


async def test_a_second_executor_is_asked_and_the_better_answer_given(rig, kit, scripted):
    def infeasible(predicted_ms):
        return lambda submit: kit.declined(
            submit, "slo_infeasible", metric="TTFT", predicted_ms=predicted_ms, required_ms=100
        )

    first, one = await scripted(infeasible(900))
    second, two = await scripted(infeasible(400))
    second.backlog_ms = 500  # asked second
    ingress = await asyncio.to_thread(lambda: rig.ingress([one, two]))
    await asyncio.to_thread(lambda: kit.until(lambda: both_known(ingress), "both executors"))
    answer = await post(ingress, kit)
    assert answer.json()["error"]["predicted_ms"] == 400.0
    assert [s.attempt for s in first.submits] == [1]
    assert [s.attempt for s in second.submits] == [2]


async def test_a_full_executor_does_not_stop_the_next_from_serving(rig, kit, scripted):
    final = output(first_token=1, token_ids=[1], final=True, chunk=b'{"ok":true}')
    full, one = await scripted(lambda submit: kit.declined(submit, "saturated", retry_after_ms=1500))
    free, two = await scripted(lambda submit: kit.admitted(submit, output(token_ids=[0]), final))
    free.backlog_ms = 500
    ingress = await asyncio.to_thread(lambda: rig.ingress([one, two]))
    await asyncio.to_thread(lambda: kit.until(lambda: both_known(ingress), "both executors"))
    answer = await post(ingress, kit)
    assert (answer.status_code, answer.json()) == (200, {"ok": True})
    assert answer.headers["x-superinfer-executor"] == two.name
    assert len(full.submits) == 1


async def test_when_both_are_full_the_sooner_retry_counts(rig, kit, scripted):
    _, one = await scripted(lambda submit: kit.declined(submit, "saturated", retry_after_ms=9000))
    _, two = await scripted(lambda submit: kit.declined(submit, "saturated", retry_after_ms=2500))
    ingress = await asyncio.to_thread(lambda: rig.ingress([one, two]))
    await asyncio.to_thread(lambda: kit.until(lambda: both_known(ingress), "both executors"))
    answer = await post(ingress, kit)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "3")


async def test_an_executor_that_never_answers_is_given_up(rig, kit, scripted):
    silent, executor = await scripted(lambda _submit: [])
    ingress = await asyncio.to_thread(lambda: rig.ingress([executor], decisionTimeoutMs=200))
    answer = await post(ingress, kit)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_executors")
    await asyncio.to_thread(lambda: kit.until(lambda: silent.cancels, "the cancel"))


async def test_outputs_of_an_older_attempt_and_tokens_twice_are_dropped(rig, kit, scripted):
    outputs = [
        token(0),
        token(0),
        token(1, attempt=9),
        token(1),
        output(final=True, chunk=b"data: [DONE]\n\n"),
    ]
    _, executor = await scripted(lambda submit: kit.admitted(submit, *outputs))
    ingress = await asyncio.to_thread(lambda: rig.ingress([executor]))
    answer = await post(ingress, kit, stream=True)
    assert answer.content == b'data: {"n":0}\n\ndata: {"n":1}\n\ndata: [DONE]\n\n'


async def test_a_gap_in_the_tokens_is_never_papered_over(rig, kit, scripted):
    outputs = [token(0), token(2), output(final=True, chunk=b"data: [DONE]\n\n")]
    sidecar, executor = await scripted(lambda submit: kit.admitted(submit, *outputs))
    ingress = await asyncio.to_thread(lambda: rig.ingress([executor], resume={"attempts": 0}))
    answer = await post(ingress, kit, stream=True)
    assert b'"n":2' not in answer.content
    assert b'"code":"engine_failed"' in answer.content
    await asyncio.to_thread(lambda: kit.until(lambda: sidecar.cancels, "the cancel"))


async def test_what_is_submitted_carries_the_promise_as_durations(rig, kit, scripted):
    sidecar, executor = await scripted(lambda submit: kit.declined(submit, "slo_infeasible"))
    gold = kit.contract("gold", tier="Gold", priority=3, objectives={"TTFT": 300, "ITL": 40}, maxJitterMs=50)
    ingress = await asyncio.to_thread(lambda: rig.ingress([executor], [gold]))
    await post(
        ingress, kit, headers=kit.under("gold", **{"x-slo-ttft-ms": "120", "x-slo-max-latency-ms": "900"})
    )
    (submit,) = sidecar.submits
    slo = submit.slo
    assert (slo.contract, slo.tier, slo.priority) == ("shop/gold", slo_pb2.TIER_GOLD, 3)
    assert (slo.ttft_target_ms, slo.itl_target_ms, slo.e2e_target_ms) == (120, 40, 900)
    assert slo.max_jitter_ms == 50
    assert 0 <= slo.elapsed_ms < 5000
    assert (submit.path, submit.attempt) == ("/v1/chat/completions", 1)
    assert submit.admission == work_pb2.ADMISSION_MODE_ENFORCE
    assert submit.cache_salt


def both_known(ingress):
    executors = ingress.client.get("/v1/models").json()["data"]
    return executors and len(executors[0]["superinfer"]["executors"]) == 2
