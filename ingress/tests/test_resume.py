"""An executor is lost under a request, and the client notices nothing but time."""

import asyncio
import concurrent.futures
import contextlib
import json
import signal

import pytest

from superinfer_proto.v1 import slo_pb2, work_pb2

TOKENS = 300


@contextlib.contextmanager
def asking(ingress, tokens=TOKENS, **more):
    """A request in the background, begun; its answer."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        yield pool.submit(ingress.chat, tokens, **more)


def words(tokens):
    return " ".join(f"tok{number}" for number in range(tokens))


def text_of(content):
    """What a client makes of a stream: one id, one role, one end, and the text."""
    events = [line[6:] for line in content.decode().split("\n\n") if line]
    assert events[-1] == "[DONE]", events[-1][:200]
    assert events.count("[DONE]") == 1
    documents = [json.loads(event) for event in events[:-1]]
    assert len({(document["id"], document["created"]) for document in documents}) == 1
    deltas = [document["choices"][0] for document in documents if document["choices"]]
    assert [each["delta"]["role"] for each in deltas if "role" in each["delta"]] == ["assistant"]
    assert [each["finish_reason"] for each in deltas if each["finish_reason"]] == ["length"]
    return "".join(each["delta"].get("content", "") for each in deltas)


def check(answer, stream, tokens=TOKENS):
    assert answer.status_code == 200, answer.text
    if stream:
        assert text_of(answer.content) == words(tokens)
        return
    document = answer.json()
    assert document["choices"][0]["message"]["content"] == words(tokens)
    assert document["usage"]["completion_tokens"] == tokens


def speaks(ingress, kit, tokens=20):
    kit.until(lambda: ingress.metric("superinfer_ledger_tokens") >= tokens, "some tokens")


@pytest.fixture
def pair(rig):
    return rig.executor(step_ms=5), rig.executor(step_ms=5)


def served_by(ingress, pair):
    """The executor that has the request, and the other one."""
    first, second = pair
    there = ingress.metric("superinfer_executor_requests", executor=first.name) == 1
    return (first, second) if there else (second, first)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("part", ["engine", "sidecar", "both"])
def test_what_is_killed_under_a_request_is_not_noticed(rig, kit, pair, part, stream):
    ingress = rig.ingress(pair, [kit.contract("gold")])
    kit.until(lambda: ingress.metric("superinfer_executor_serving") == 2, "both executors")
    with asking(ingress, stream=stream, headers=kit.under("gold")) as running:
        speaks(ingress, kit)
        lost, left = served_by(ingress, pair)
        for process in {"engine": [lost.engine], "sidecar": [lost.sidecar]}.get(
            part, [lost.engine, lost.sidecar]
        ):
            process.signal(signal.SIGKILL)
        check(running.result(), stream)
    ingress.idle()
    (record,) = ingress.records(1)
    (resume,) = record["resumes"]
    assert (resume["left"], resume["taken_by"], record["executor"]) == (lost.name, left.name, left.name)
    assert resume["delivered_tokens"] >= 20
    assert resume["gap_ms"] > 0
    assert record["output_tokens"] == TOKENS
    assert (record["status"], record["code"], record["kept"]) == (200, None, True)
    cause = "engine_failed" if part == "engine" else "executor_lost"
    assert resume["cause"] in {cause, "engine_failed"}
    assert ingress.metric("superinfer_resumes_total", outcome="resumed") == 1
    assert ingress.metric("superinfer_resume_gap_ms_count") == 1
    assert ingress.attainment("shop/gold")["kept"] == 1


def test_an_engine_that_comes_back_takes_its_request_up_again(rig, kit):
    executor = rig.executor(step_ms=5)
    ingress = rig.ingress([executor])
    with asking(ingress, stream=True) as running:
        speaks(ingress, kit)
        executor.engine.signal(signal.SIGKILL)
        kit.until(lambda: ingress.metric("superinfer_executor_serving") == 0, "the loss to be seen")
        rig.engine(executor.socket, step_ms=2)
        check(running.result(), stream=True)
    (record,) = ingress.records(1)
    assert [resume["cause"] for resume in record["resumes"]] == ["engine_failed"]


def test_several_failures_in_a_row(rig, kit):
    # Its engine works for 60 steps only; the third one lasts.
    executor = rig.executor(step_ms=5, die_after_steps=60)
    ingress = rig.ingress([executor])
    with asking(ingress, tokens=150, stream=True) as running:
        for engine_number in range(2):
            kit.until(lambda: ingress.metric("superinfer_executor_serving") == 0, "a loss")
            rig.engine(executor.socket, step_ms=5, die_after_steps=60 if not engine_number else 0)
            kit.until(lambda: ingress.metric("superinfer_executor_serving") == 1, "an engine")
        check(running.result(), stream=True, tokens=150)
    (record,) = ingress.records(1)
    assert len(record["resumes"]) == 2


def test_many_requests_at_once_all_go_on(rig, kit, pair):
    ingress = rig.ingress(pair)
    kit.until(lambda: ingress.metric("superinfer_executor_serving") == 2, "both executors")
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        running = [
            pool.submit(ingress.chat, TOKENS, stream=bool(number % 2), words=f"number {number}")
            for number in range(24)
        ]
        speaks(ingress, kit, 500)
        pair[0].engine.signal(signal.SIGKILL)
        for number, each in enumerate(running):
            check(each.result(), stream=bool(number % 2))
    records = ingress.records(24)
    assert sum(bool(record["resumes"]) for record in records) >= 8
    ingress.idle()


def test_a_drained_executor_hands_its_requests_over(rig, kit, pair):
    ingress = rig.ingress(pair)
    kit.until(lambda: ingress.metric("superinfer_executor_serving") == 2, "both executors")
    with asking(ingress, tokens=600, stream=True) as running:
        speaks(ingress, kit)
        leaves, _ = served_by(ingress, pair)
        leaves.sidecar.signal(signal.SIGTERM)
        check(running.result(), stream=True, tokens=600)
    assert leaves.sidecar.child.wait(10) == 0
    (record,) = ingress.records(1)
    assert [resume["cause"] for resume in record["resumes"]] == ["handed_over"]


def test_with_nowhere_to_go_a_drained_executor_finishes_what_it_has(rig, kit):
    executor = rig.executor(step_ms=5)
    ingress = rig.ingress([executor])
    with asking(ingress, stream=True) as running:
        speaks(ingress, kit)
        executor.sidecar.signal(signal.SIGTERM)
        check(running.result(), stream=True)
    (record,) = ingress.records(1)
    assert record["resumes"] == []


# By script: what an executor may do wrong, and what cannot go on.


def token(number, **fields):
    chunk = fields.pop("chunk", b'data: {"n":%d}\n\n' % number)
    return work_pb2.Output(first_token=number, token_ids=[number], chunk=chunk, **fields)


def failure(code="engine_failed", **fields):
    return work_pb2.Output(final=True, error=slo_pb2.Error(code=code, message="it broke"), **fields)


END = {"final": True, "chunk": b"data: [DONE]\n\n"}


def answers(*attempts, resumable=True):
    """A sidecar whose n-th attempt says the n-th of these."""

    def script_with(kit):
        def script(submit):
            messages = kit.admitted(submit, *(clone(each) for each in attempts[submit.attempt - 1]))
            messages[0].decisions[0].resumable = resumable
            return messages

        return script

    return script_with


def clone(output):
    copied = work_pb2.Output()
    copied.CopyFrom(output)
    return copied


async def ask(rig, kit, scripted, script, *, body=None, **config):
    sidecar, executor = await scripted(script(kit))
    ingress = await asyncio.to_thread(lambda: rig.ingress([executor], **config))
    answer = await asyncio.to_thread(lambda: ingress.chat(8, **(body or {"stream": True})))
    return sidecar, ingress, answer


async def test_delivered_tokens_travel_and_repeats_are_dropped(rig, kit, scripted):
    script = answers(
        [token(0), token(1), failure()],
        [token(1), token(2), work_pb2.Output(**END)],
    )
    sidecar, _, answer = await ask(rig, kit, scripted, script)
    assert answer.content == b'data: {"n":0}\n\ndata: {"n":1}\n\ndata: {"n":2}\n\ndata: [DONE]\n\n'
    first, second = sidecar.submits
    assert [(g.choice, g.first_token, list(g.token_ids)) for g in second.delivered] == [
        (0, 0, [0]),
        (0, 1, [1]),
    ]
    assert not first.delivered
    assert second.admission == work_pb2.ADMISSION_MODE_SKIP
    assert (first.request_id, first.created_s, first.body) == (
        second.request_id,
        second.created_s,
        second.body,
    )
    assert second.slo.elapsed_ms >= first.slo.elapsed_ms
    assert second.slo.HasField("since_first_token_ms")


async def test_tokens_that_come_with_an_error_are_not_delivered(rig, kit, scripted):
    # The engine died before it made text of them: the next one has to say them again.
    broken = failure(first_token=1, token_ids=[1])
    script = answers([token(0), broken], [token(1), work_pb2.Output(**END)])
    sidecar, _, answer = await ask(rig, kit, scripted, script)
    assert answer.content == b'data: {"n":0}\n\ndata: {"n":1}\n\ndata: [DONE]\n\n'
    assert len(sidecar.submits[1].delivered) == 1


async def test_a_gap_is_filled_by_another_attempt(rig, kit, scripted):
    script = answers([token(0), token(2)], [token(1), token(2), work_pb2.Output(**END)])
    sidecar, ingress, answer = await ask(rig, kit, scripted, script)
    assert answer.content == b'data: {"n":0}\n\ndata: {"n":1}\n\ndata: {"n":2}\n\ndata: [DONE]\n\n'
    assert [(cancel.attempt) for cancel in sidecar.cancels][:1] == [1]
    assert ingress.metric("superinfer_resumes_total", cause="gap") == 1


async def test_an_attempt_that_was_fenced_cannot_speak(rig, kit, scripted):
    late = token(1, attempt=1, chunk=b'data: {"n":"late"}\n\n')
    script = answers([token(0), failure()], [late, token(1), work_pb2.Output(**END)])
    _, _, answer = await ask(rig, kit, scripted, script)
    assert b"late" not in answer.content
    assert answer.content.endswith(b'data: {"n":1}\n\ndata: [DONE]\n\n')


async def test_a_request_cut_after_its_last_token_ends(rig, kit, scripted):
    script = answers([token(0, finish_reason="length"), failure()], [work_pb2.Output(**END)])
    sidecar, _, answer = await ask(rig, kit, scripted, script)
    assert answer.content == b'data: {"n":0}\n\ndata: [DONE]\n\n'
    (group,) = sidecar.submits[1].delivered
    assert group.finish_reason == "length"


async def test_before_the_first_token_it_starts_over(rig, kit, scripted):
    script = answers([failure()], [token(0), work_pb2.Output(**END)], resumable=False)
    _, ingress, answer = await ask(rig, kit, scripted, script)
    assert (answer.status_code, answer.headers["x-superinfer-resumable"]) == (200, "false")
    assert answer.content == b'data: {"n":0}\n\ndata: [DONE]\n\n'
    assert ingress.metric("superinfer_resumes_total", outcome="restarted") == 1


async def test_what_cannot_go_on_exactly_says_so_first_and_last(rig, kit, scripted):
    script = answers([token(0), failure()], resumable=False)
    _, ingress, answer = await ask(rig, kit, scripted, script)
    assert (answer.status_code, answer.headers["x-superinfer-resumable"]) == (200, "false")
    assert b'"code":"not_resumable"' in answer.content
    assert b"[DONE]" not in answer.content
    (record,) = ingress.records(1)
    assert record["code"] == "not_resumable"


@pytest.mark.parametrize("first", ["engine_failed", "not_resumable"])
async def test_a_whole_answer_that_cannot_go_on_starts_over(rig, kit, scripted, first):
    script = answers(
        [token(0, chunk=b""), failure(first)],
        [token(0, chunk=b""), work_pb2.Output(final=True, chunk=b'{"whole":1}')],
        resumable=False,
    )
    sidecar, _, answer = await ask(rig, kit, scripted, script, body={"stream": False})
    assert (answer.status_code, answer.json()) == (200, {"whole": 1})
    assert not sidecar.submits[1].delivered


async def test_a_client_that_leaves_while_nobody_serves_ends_its_request(rig, kit, scripted):
    _, executor = await scripted(answers([token(0), failure("shutting_down")], [])(kit))

    def leave():
        ingress = rig.ingress([executor], resume={"within": 600})
        with ingress.client.stream("POST", "/v1/chat/completions", json=kit.chat(8, stream=True)) as answer:
            next(answer.iter_raw())
        ingress.idle()
        return ingress.records(1)

    (record,) = await asyncio.to_thread(leave)
    assert record["cancelled"]
