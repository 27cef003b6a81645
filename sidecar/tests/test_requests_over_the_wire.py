"""What an ingress sees of the requests it sends: answers, refusals, order, cancels, attempts."""

import pytest

from superinfer_proto.v1 import slo_pb2, work_pb2

LONG = 400

pytestmark = pytest.mark.usefixtures("either_wire")


async def test_a_request_comes_back_whole_and_in_order(site, submit_of, slo_of, body_of):
    await site.start_engine()
    await site.start_sidecar()
    ingress = await site.connect()
    await ingress.send(submit_of("r", body=body_of(6), slo=slo_of(ttft_target_ms=5000.0)))
    decision = await ingress.decision("r")
    assert decision.admitted
    assert decision.prompt_tokens > 0
    assert decision.resumable
    assert decision.prediction.ttft_ms > 0
    assert 0 < decision.prediction.slack_ms < 5000
    final = await ingress.final("r")
    assert ingress.tokens("r") == [0, 1, 2, 3, 4, 5]
    assert final.usage.completion_tokens == 6
    chunks = b"".join(output.chunk for output in ingress.outputs["r"])
    assert chunks.endswith(b"data: [DONE]\n\n")
    assert len(site.sidecar.desk.book) == 0


async def test_the_greeting_says_what_engine_is_behind(site):
    engine = await site.start_engine(served_model_name="small", max_num_seqs=3)
    await site.start_sidecar()
    ingress = await site.connect()
    info = ingress.infos[0]
    assert (info.executor, info.engine.model, info.engine.max_num_seqs) == ("e0", "small", 3)
    assert info.engine.generation == engine.generation
    assert ingress.loads[0].serving


async def test_what_can_never_be_kept_is_refused_with_numbers(site, submit_of, slo_of, body_of, profile_of):
    await site.start_engine()
    await site.start_sidecar(profile=profile_of(per_prefill_token_ms=1.0))
    ingress = await site.connect()
    body = body_of(words="x" * 400)
    await ingress.send(submit_of("r", body=body, slo=slo_of(ttft_target_ms=20.0)))
    decision = await ingress.decision("r")
    refusal = decision.refusal
    assert not decision.admitted
    assert (refusal.error.code, refusal.metric) == ("slo_infeasible", "TTFT")
    assert refusal.predicted_ms > 100
    assert refusal.required_ms == 20.0
    assert refusal.tightest_ms >= refusal.predicted_ms * 0.99
    assert not refusal.feasible_when_idle
    assert len(site.sidecar.desk.book) == 0


async def test_what_only_the_load_forbids_is_said_to_be_feasible_when_idle(
    site, submit_of, slo_of, body_of, profile_of, wait_until
):
    await site.start_engine(step_ms=5.0, max_num_seqs=4)
    await site.start_sidecar(profile=profile_of(per_prefill_token_ms=0.1))
    ingress = await site.connect()
    relaxed = slo_of(itl_target_ms=500.0)
    await ingress.send(*(submit_of(f"long{i}", body=body_of(LONG), slo=relaxed) for i in range(4)))
    for i in range(4):
        assert (await ingress.decision(f"long{i}")).admitted
    await wait_until(lambda: all(ingress.tokens(f"long{i}") for i in range(4)), "the batch to be full")
    await ingress.send(submit_of("second", slo=slo_of(ttft_target_ms=50.0)))
    refusal = (await ingress.decision("second")).refusal
    assert refusal.error.code == "slo_infeasible"
    assert refusal.feasible_when_idle


async def test_gold_overtakes_a_bronze_backlog(site, submit_of, slo_of, body_of):
    await site.start_engine(step_ms=2.0, max_num_seqs=1)
    await site.start_sidecar()
    ingress = await site.connect()
    bronze = [submit_of(f"bronze{i}", body=body_of(20), slo=slo_of("BRONZE")) for i in range(4)]
    await ingress.send(*bronze)
    await ingress.decision("bronze3")
    await ingress.send(submit_of("gold", body=body_of(2), slo=slo_of("GOLD")))
    for request in (*(submit.request_id for submit in bronze), "gold"):
        assert not (await ingress.final(request)).HasField("error")
    finished = [output.request_id for frame in ingress.frames for output in frame.outputs if output.final]
    assert finished == ["bronze0", "gold", "bronze1", "bronze2", "bronze3"]


async def test_the_engine_holds_no_more_than_its_batch_while_the_rest_waits_here(site, submit_of, body_of):
    await site.start_engine(step_ms=1.0, max_num_seqs=2)
    await site.start_sidecar()
    ingress = await site.connect()
    await ingress.send(*(submit_of(f"r{i}", body=body_of(10)) for i in range(8)))
    for i in range(8):
        await ingress.final(f"r{i}")
    assert max(frame.facts.running + frame.facts.waiting for frame in ingress.frames) <= 2


async def test_pass_through_hands_everything_to_the_engine_at_once(
    site, submit_of, body_of, slo_of, wait_until
):
    await site.start_engine(step_ms=5.0, max_num_seqs=2)
    await site.start_sidecar(enforce=False, pass_through=True)
    ingress = await site.connect()
    hopeless = slo_of(ttft_target_ms=0.001)
    await ingress.send(*(submit_of(f"r{i}", body=body_of(10), slo=hopeless) for i in range(8)))
    await wait_until(lambda: len(site.sidecar.desk.book.dispatched) == 8, "all to be handed over")
    for i in range(8):
        assert (await ingress.decision(f"r{i}")).admitted
        assert not (await ingress.final(f"r{i}")).HasField("error")


async def test_a_cancel_reaches_the_engine_within_a_step(site, submit_of, body_of, wait_until):
    await site.start_engine(step_ms=5.0)
    await site.start_sidecar()
    ingress = await site.connect()
    await ingress.send(submit_of("gone", body=body_of(LONG)), submit_of("stays", body=body_of(60)))
    await wait_until(lambda: ingress.tokens("gone"), "its first token")
    await ingress.send(cancel=("gone", 1))
    await wait_until(lambda: len(site.sidecar.desk.book) == 1, "the cancel to arrive")
    seen = len(ingress.tokens("gone"))
    await ingress.final("stays")
    assert len(ingress.tokens("gone")) <= seen + 1
    assert ingress.frames[-2].facts.running == 1
    assert not any(output.final for output in ingress.outputs["gone"])


async def test_a_cancel_of_someone_elses_request_or_an_older_attempt_does_nothing(site, submit_of, body_of):
    await site.start_engine(step_ms=1.0)
    await site.start_sidecar()
    mine, other = await site.connect(), await site.connect()
    await mine.send(submit_of("r", attempt=2, body=body_of(30)))
    await mine.decision("r", 2)
    await other.send(cancel=("r", 9))
    await mine.send(cancel=("r", 1))
    assert (await mine.final("r")).usage.completion_tokens == 30
    assert not other.outputs


async def test_a_higher_attempt_silences_the_lower_one(site, submit_of, body_of, wait_until):
    await site.start_engine(step_ms=3.0)
    await site.start_sidecar()
    ingress = await site.connect()
    await ingress.send(submit_of("r", attempt=1, body=body_of(LONG)))
    await wait_until(lambda: ingress.tokens("r"), "the first attempt's first token")
    await ingress.send(submit_of("r", attempt=2, body=body_of(5)))
    final = await ingress.final("r")
    assert final.attempt == 2
    attempts = [output.attempt for output in ingress.outputs["r"]]
    assert attempts == sorted(attempts), "an output of the fenced attempt came after the new one's"
    await ingress.send(submit_of("s", attempt=5, body=body_of(LONG)), submit_of("s", attempt=4))
    refused = await ingress.decision("s", 4)
    assert refused.refusal.error.code == "invalid_request"
    assert (await ingress.decision("s", 5)).admitted


async def test_a_resume_goes_on_after_the_delivered_tokens(site, submit_of, body_of):
    await site.start_engine()
    await site.start_sidecar()
    ingress = await site.connect()
    delivered = [
        slo_pb2.TokenGroup(choice=0, first_token=0, token_ids=[0, 1]),
        slo_pb2.TokenGroup(choice=0, first_token=2, token_ids=[2]),
    ]
    skip = work_pb2.ADMISSION_MODE_SKIP
    await ingress.send(submit_of("r", attempt=2, body=body_of(6), delivered=delivered, admission=skip))
    final = await ingress.final("r")
    assert ingress.tokens("r") == [3, 4, 5]
    assert ingress.outputs["r"][0].first_token == 3
    assert final.usage.completion_tokens == 6


async def test_skip_admits_what_enforce_would_refuse(site, submit_of, slo_of, body_of, profile_of):
    await site.start_engine()
    await site.start_sidecar(profile=profile_of(per_prefill_token_ms=1.0))
    ingress = await site.connect()
    body = body_of(words="x" * 400)
    hopeless = slo_of(itl_target_ms=0.001)
    skip = work_pb2.ADMISSION_MODE_SKIP
    await ingress.send(submit_of("enforced", body=body, slo=hopeless))
    await ingress.send(submit_of("skipped", body=body, slo=hopeless, admission=skip))
    assert not (await ingress.decision("enforced")).admitted
    assert (await ingress.decision("skipped")).admitted
    assert not (await ingress.final("skipped")).HasField("error")


async def test_each_ingress_gets_its_own_outputs_only(site, submit_of, body_of):
    await site.start_engine(step_ms=1.0)
    await site.start_sidecar()
    one, two = await site.connect(), await site.connect()
    await one.send(submit_of("one", body=body_of(20)))
    await two.send(submit_of("two", body=body_of(20)))
    assert (await one.final("one")).usage.completion_tokens == 20
    assert (await two.final("two")).usage.completion_tokens == 20
    assert set(one.outputs) == {"one"}
    assert set(two.outputs) == {"two"}
    assert one.tokens("one") == two.tokens("two") == list(range(20))


async def test_n_choices_take_n_places_and_all_come_back(site, submit_of, body_of):
    await site.start_engine(step_ms=1.0, max_num_seqs=4)
    await site.start_sidecar()
    ingress = await site.connect()
    await ingress.send(*(submit_of(f"r{i}", body=body_of(5, n=3)) for i in range(3)))
    for i in range(3):
        assert (await ingress.final(f"r{i}")).usage.completion_tokens == 15
    assert max(frame.facts.running + frame.facts.waiting for frame in ingress.frames) <= 4


GARBAGE = {
    "no id": ({"request_id": ""}, "invalid_request"),
    "an id of 300 characters": ({"request_id": "x" * 300}, "invalid_request"),
    "no body": ({"body": b""}, "invalid_request"),
    "no path": ({"path": ""}, "invalid_request"),
    "a path nobody serves": ({"path": "/v1/nothing"}, "invalid_request"),
    "truncated JSON": ({"body": b'{"messages": ['}, "invalid_request"),
    "bytes that are not text": ({"body": b"\xff\xfe\x00"}, "invalid_request"),
    "a list for a body": ({"body": b"[]"}, "invalid_request"),
    "deep JSON": ({"body": b"[" * 100_000}, "invalid_request"),
    "no messages": ({"body": b"{}"}, "invalid_request"),
    "max_tokens 0": (
        {"body": b'{"messages":[{"role":"user","content":"x"}],"max_tokens":0}'},
        "invalid_request",
    ),
    "a prompt longer than the model": (
        {"body": b'{"messages":[{"role":"user","content":"%s"}]}' % (b"word" * 9000)},
        "context_length",
    ),
}


@pytest.mark.parametrize(("fields", "code"), GARBAGE.values(), ids=GARBAGE.keys())
async def test_garbage_is_refused_by_name_and_leaves_nothing_behind(site, submit_of, fields, code):
    await site.start_engine()
    await site.start_sidecar()
    ingress = await site.connect()
    submit = submit_of(**{"request_id": "r", **fields})
    await ingress.send(submit, submit_of("good"))
    decision = await ingress.decision(submit.request_id)
    assert not decision.admitted
    assert decision.refusal.error.code == code
    assert decision.refusal.error.message
    assert (await ingress.final("good")).usage.completion_tokens == 4
    book = site.sidecar.desk.book
    assert (len(book), book.waiting_bytes, book.dispatched_places) == (0, 0, 0)


BAD_PROMISES = {
    "TTFT of zero": {"ttft_target_ms": 0.0},
    "negative ITL": {"itl_target_ms": -1.0},
    "E2E that is not a number": {"e2e_target_ms": float("nan")},
    "infinite TTFT": {"ttft_target_ms": float("inf")},
    "quantile of one": {"quantile": 1.0},
    "negative time since arrival": {"elapsed_ms": -5.0},
    "arrival before the flood": {"elapsed_ms": 1e300},
}


@pytest.mark.parametrize("fields", BAD_PROMISES.values(), ids=BAD_PROMISES.keys())
async def test_a_promise_nobody_could_keep_is_invalid_not_urgent(site, submit_of, slo_of, fields):
    await site.start_engine()
    await site.start_sidecar()
    ingress = await site.connect()
    await ingress.send(submit_of("r", slo=slo_of(**fields)))
    refusal = (await ingress.decision("r")).refusal
    assert refusal.error.code == "invalid_slo"
    assert refusal.error.param in fields


async def test_the_same_submit_twice_is_answered_once(site, submit_of, body_of):
    await site.start_engine(step_ms=1.0)
    await site.start_sidecar()
    ingress = await site.connect()
    await ingress.send(submit_of("r", body=body_of(10)), submit_of("r", body=body_of(10)))
    final = await ingress.final("r")  # the ingress fails when it is decided twice
    assert final.usage.completion_tokens == 10
    assert ingress.tokens("r") == list(range(10))
    assert site.sidecar.desk.counters.duplicates == 1
