"""Degrade, Fallback, quotas, availability, jitter, budgets: each as a user of the ingress sees it."""

import concurrent.futures
import statistics


def test_degrade_serves_as_best_effort_and_says_so(open_ingress, kit):
    answer = open_ingress.chat(2, headers=kit.under("degrading"))
    assert (answer.status_code, answer.headers["x-superinfer-outcome"]) == (200, "degraded")
    assert answer.headers["x-superinfer-contract"] == "shop/degrading"
    attainment = open_ingress.attainment("shop/degrading")
    assert attainment["served"] == attainment["degraded"] == attainment["offered"]
    assert attainment["admitted"] == attainment["kept"] == 0


def test_fallback_serves_under_the_other_contract_and_says_so(open_ingress, kit):
    before = open_ingress.attainment("shop/calm")["kept"]
    answer = open_ingress.chat(2, headers=kit.under("falling"), stream=True)
    assert (answer.status_code, answer.headers["x-superinfer-outcome"]) == (200, "fallback")
    assert answer.headers["x-superinfer-contract"] == "shop/calm"
    assert answer.content.endswith(b"data: [DONE]\n\n")
    assert open_ingress.attainment("shop/falling")["degraded"] >= 1
    assert open_ingress.attainment("shop/calm")["kept"] == before + 1


def test_reject_is_a_425_that_counts_against_availability(rig, executor, kit):
    strict = kit.contract("strict", objectives={"TTFT": 1}, availability="90")
    ingress = rig.ingress([executor], [strict])
    answer = ingress.chat(2, headers=kit.under("strict"))
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error.get("metric")) == (425, "slo_infeasible", "TTFT"), error
    assert error["required_ms"] == 1.0
    assert error["tightest_ms"] >= error["predicted_ms"] > 1
    attainment = ingress.attainment("shop/strict")
    assert attainment["availability"]["missed"] == 1
    assert attainment["fulfilled"] is False
    assert ingress.metric("superinfer_contract_availability", contract="shop/strict") == 0.0


def test_what_was_never_admitted_is_refused_not_expired(rig, kit):
    # Tokens of another stream come while the prompt is being rendered, and its deadline passes meanwhile.
    ingress = rig.ingress([rig.executor(render_ms=200)], [kit.contract("hasty", objectives={"TTFT": 100})])
    with ingress.client.stream("POST", "/v1/chat/completions", json=kit.chat(3_000, stream=True)) as answer:
        assert answer.status_code == 200
        refused = ingress.chat(2, headers=kit.under("hasty"))
        assert (refused.status_code, refused.json()["error"]["code"]) == (425, "slo_infeasible")


def test_headers_tighten_a_contract_until_it_cannot_be_kept(open_ingress, kit):
    answer = open_ingress.chat(2, headers=kit.under("gold", **{"x-slo-ttft-ms": "0.5"}))
    assert (answer.status_code, answer.json()["error"]["required_ms"]) == (425, 0.5)
    loose = open_ingress.chat(2, headers=kit.under("gold", **{"x-slo-ttft-ms": "3000000"}))
    assert loose.status_code == 200


def test_a_quota_of_requests_says_when_to_come_back(rig, executor, kit):
    ingress = rig.ingress([executor], [kit.contract("few", quota={"requestsPerSecond": 1})])
    answers = [ingress.chat(1, headers=kit.under("few")) for _ in range(4)]
    statuses = [answer.status_code for answer in answers]
    assert statuses[0] == 200
    assert 429 in statuses
    refused = answers[statuses.index(429)]
    assert refused.json()["error"]["code"] == "quota_exceeded"
    assert "requestsPerSecond" in refused.json()["error"]["message"]
    assert refused.headers["retry-after"] == "1"
    attainment = ingress.attainment("shop/few")
    assert attainment["excluded"] == statuses.count(429)
    assert attainment["offered"] == statuses.count(200)


def test_a_quota_of_tokens_is_settled_by_what_was_used(rig, executor, kit):
    ingress = rig.ingress([executor], [kit.contract("lean", quota={"tokensPerMinute": 300})])
    assert ingress.chat(250, headers=kit.under("lean")).status_code == 200
    answer = ingress.chat(200, headers=kit.under("lean"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "quota_exceeded")
    assert int(answer.headers["retry-after"]) > 5


def test_a_quota_of_concurrency_frees_its_place(rig, kit):
    executor = rig.executor(step_ms=20)
    ingress = rig.ingress([executor], [kit.contract("one", quota={"concurrency": 1})])
    long = kit.chat(3_000, stream=True)
    with ingress.client.stream("POST", "/v1/chat/completions", json=long, headers=kit.under("one")) as answer:
        assert answer.status_code == 200
        assert ingress.chat(1, headers=kit.under("one")).status_code == 429
    # The client left: its place is free again.
    kit.until(lambda: ingress.chat(1, headers=kit.under("one")).status_code == 200, "the place to be free")


def test_an_ingress_takes_its_replicas_part_of_a_quota(rig, executor, kit):
    limited = kit.contract("shared", quota={"requestsPerSecond": 40})
    ingress = rig.ingress([executor], [limited], ingressReplicas=20)
    statuses = [ingress.chat(1, headers=kit.under("shared")).status_code for _ in range(6)]
    assert 429 in statuses


def test_jitter_is_measured_and_held_against_the_contract(rig, kit):
    # A long prompt in the middle of a stream makes one step long: the gap before it is a jitter.
    executor = rig.executor(step_ms=2, prefill_ms_per_token=1, max_num_seqs=4)
    ingress = rig.ingress([executor], [kit.contract("steady", maxJitterMs=20)])
    with concurrent.futures.ThreadPoolExecutor() as pool:
        stream = pool.submit(ingress.chat, 200, kit.under("steady"))
        kit.until(lambda: ingress.metric("superinfer_ledger_tokens") > 20, "the stream to run")
        assert ingress.chat(1, words="x" * 1600).status_code == 200
        assert stream.result().status_code == 200
    attainment = ingress.attainment("shop/steady")
    assert attainment["jitter"]["missed"] == 1
    record = next(r for r in ingress.records(2) if r["contract"] == "shop/steady")
    assert record["jitter_ms"] > 20
    assert record["kept"] is False


def test_the_request_log_has_predicted_beside_actual(rig, executor, kit):
    ingress = rig.ingress([executor], [kit.contract("told", tier="Silver")])
    ingress.chat(8, headers=kit.under("told", **{"x-request-id": "r-1"}))
    ingress.chat(1, headers=kit.under("told", **{"x-slo-ttft-ms": "nan"}))
    served, refused = ingress.records(2)
    assert (served["id"], served["contract"], served["tier"]) == ("r-1", "shop/told", "Silver")
    assert (served["status"], served["code"], served["kept"]) == (200, None, True)
    assert served["output_tokens"] == 8
    assert served["predicted_ttft_ms"] > 0
    assert 0 < served["ttft_ms"] <= served["e2e_ms"]
    assert served["itl_ms"] > 0
    assert (refused["status"], refused["code"]) == (400, "invalid_slo")


def test_metrics_tell_fulfilment_and_budget_per_contract(rig, executor, kit):
    many = [kit.contract(f"c{n}") for n in range(6)]
    ingress = rig.ingress([executor], many, metricContracts=3)
    for n in range(6):
        assert ingress.chat(1, headers=kit.under(f"c{n}")).status_code == 200
    rate = ingress.metric(
        "superinfer_slo_fulfillment_rate", contract="shop/c0", metric="TTFT", quantile="0.99"
    )
    assert rate == 1.0
    assert ingress.metric("superinfer_error_budget_left", contract="shop/c0") == 1.0
    assert ingress.metric("superinfer_requests_total", contract="other") >= 3
    assert ingress.metric("superinfer_ttft_ms_count") == 6
    assert ingress.metric("superinfer_slo_slack_time_ms_count") == 6
    assert ingress.metric("superinfer_executor_serving", engine="stub") == 1


def test_a_missed_objective_costs_budget_and_fulfilment(rig, kit):
    # TTFT P50 of 60 ms against a prompt whose prefill takes about 150.
    executor = rig.executor(step_ms=1, prefill_ms_per_token=0.5, sidecar={"admission": "skip"})
    half = [{"metric": "TTFT", "percentile": 50, "targetMs": 60}]
    ingress = rig.ingress([executor], [kit.contract("slow", objectives=half)])
    answers = [ingress.chat(1, words="x" * 1200, headers=kit.under("slow")) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200] * 4
    attainment = ingress.attainment("shop/slow")
    assert attainment["objectives"][0]["missed"] == 4
    assert attainment["budget_left"] < 1.0
    assert attainment["fulfilled"] is False
    assert statistics.mean(r["ttft_ms"] for r in ingress.records(4)) > 60


def test_a_503_counts_against_availability_too(rig, kit):
    nobody = kit.Executor("nobody", f"unix:{rig.directory}/nobody.grpc")
    ingress = rig.ingress([nobody], [kit.contract("gold", availability="99")], wait=False)
    assert ingress.chat(1, headers=kit.under("gold")).status_code == 503
    attainment = ingress.attainment("shop/gold")
    assert (attainment["offered"], attainment["served"]) == (1, 0)


def test_one_request_too_many_is_saturated_and_counted(rig, kit):
    executor = rig.executor(step_ms=20)
    ingress = rig.ingress([executor], [kit.contract("gold", availability="99")], limits={"inFlight": 1})
    with concurrent.futures.ThreadPoolExecutor() as pool:
        long = pool.submit(ingress.chat, 150)
        kit.until(lambda: ingress.metric("superinfer_ledger_tokens") > 0, "the first to run")
        answer = ingress.chat(1, headers=kit.under("gold"))
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "saturated")
        assert long.result().status_code == 200
    assert ingress.attainment("shop/gold")["availability"]["missed"] == 1


def test_a_promise_of_headers_alone_is_kept_or_refused(open_ingress, kit):
    assert open_ingress.chat(1, headers={"x-slo-ttft-ms": "0.5"}).status_code == 425
    answer = open_ingress.chat(1, headers={"x-llm-d-slo-ttft-ms": "20000", "x-request-id": "alone"})
    assert "x-superinfer-contract" not in answer.headers
    kit.until(lambda: any(r["id"] == "alone" for r in open_ingress.records(1)), "its line in the log")
    record = next(r for r in open_ingress.records(1) if r["id"] == "alone")
    assert (record["contract"], record["kept"]) == ("", True)


def test_a_fallback_in_another_pool_is_served_there(rig, kit):
    one, two = rig.executor(pool="fast"), rig.executor(pool="cheap")
    instead = {"onInfeasible": "Fallback", "fallbackRef": {"name": "patient"}}
    ingress = rig.ingress(
        [one, two],
        [
            kit.contract("hasty", objectives={"TTFT": 1}, poolRef={"name": "fast"}, **instead),
            kit.contract("patient", poolRef={"name": "cheap"}),
        ],
    )
    kit.until(lambda: ingress.metric("superinfer_executor_serving") == 2, "both executors")
    answer = ingress.chat(1, headers=kit.under("hasty"))
    assert (answer.status_code, answer.headers["x-superinfer-outcome"]) == (200, "fallback")
    assert answer.headers["x-superinfer-executor"] == two.name
