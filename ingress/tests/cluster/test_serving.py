"""Requests through an ingress that knows everything from the API server."""

import pytest

pytestmark = pytest.mark.apiserver


def test_a_contract_a_pool_and_an_executor_are_all_it_takes(world, kit):
    world.pool()
    world.contract("chat")
    executor = world.executor()
    ingress = world.ingress()
    answer = ingress.chat(4, headers=kit.under("chat"))
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-superinfer-contract"] == f"{world.namespace}/chat"
    assert answer.headers["x-superinfer-executor"] == executor.name
    models = ingress.client.get("/v1/models").json()["data"]
    assert [one["superinfer"]["executors"][0]["pool"] for one in models] == [f"{world.namespace}/smollm"]


def test_what_is_applied_later_is_served_and_what_is_deleted_is_not(world, kit):
    ingress = world.ingress()
    assert ingress.chat(headers=kit.under(f"{world.namespace}/chat")).status_code == 404
    world.pool()
    world.contract("chat")
    assert kit.until(
        lambda: ingress.chat(headers=kit.under(f"{world.namespace}/chat")).status_code == 503, "the contract"
    )
    world.executor()
    kit.until(
        lambda: ingress.chat(headers=kit.under(f"{world.namespace}/chat")).status_code == 200, "service"
    )
    world.delete("slocontract", "chat")
    kit.until(
        lambda: ingress.chat(headers=kit.under(f"{world.namespace}/chat")).status_code == 404, "its end"
    )


def test_a_pool_of_another_namespace_serves_only_whom_it_allows(world, kit):
    world.pool(allowedNamespaces=["somewhere-else"])
    there = {"name": "smollm", "namespace": world.namespace}
    world.contract("chat", namespace=world.shop, poolRef=there)
    world.contract("lost", namespace=world.shop)
    world.executor()
    ingress = world.ingress()
    asked = kit.under(f"{world.shop}/chat")
    refusal = ingress.chat(headers=asked)
    assert refusal.status_code == 404
    assert "does not allow" in refusal.json()["error"]["message"]
    # One that names no pool must not end up on somebody else's executors.
    assert ingress.chat(headers=kit.under(f"{world.shop}/lost")).status_code == 404
    world.pool(allowedNamespaces=[world.shop])
    kit.until(lambda: ingress.chat(headers=asked).status_code == 200, "the pool to open")
    assert ingress.chat(headers=kit.under(f"{world.shop}/lost")).status_code == 200
    world.pool(allowedNamespaces=[])
    kit.until(lambda: ingress.chat(headers=asked).status_code == 404, "the pool to close")


def test_pools_do_not_mix(world, kit):
    """Two pools serve the same model; each contract gets only its own."""
    for pool in ("small", "large"):
        world.pool(pool)
        world.contract(f"on-{pool}", poolRef={"name": pool})
        world.executor(pool)
    ingress = world.ingress()
    for pool in ("small", "large"):
        kit.until(lambda p=pool: ingress.chat(headers=kit.under(f"on-{p}")).status_code == 200, pool)
        for _ in range(3):
            answer = ingress.chat(2, headers=kit.under(f"on-{pool}"))
            assert answer.headers["x-superinfer-executor"] == f"{pool}-0-1"


def test_a_pools_default_contract_takes_requests_that_name_none(world, kit):
    world.pool(defaultContractRef={"name": "house"})
    world.contract("house", serviceID="everyday")
    world.contract("other")
    world.executor()
    ingress = world.ingress()
    answer = ingress.chat(2)
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-superinfer-contract"] == f"{world.namespace}/everyday"


def test_executors_come_and_go_without_a_lost_request(world, kit):
    world.pool()
    world.contract("chat")
    first = world.executor(step_ms=10)
    ingress = world.ingress()
    with kit.until(lambda: _stream(ingress, kit, 200), "a stream") as running:
        tokens = running.iter_lines()
        assert next(line for line in tokens if line.startswith("data:"))
        first.terminating, first.ready = True, False
        world.list_executors()
        second = world.executor()
        kit.until(
            lambda: (
                ingress.chat(2, headers=kit.under("chat")).headers.get("x-superinfer-executor") == second.name
            ),
            "new work to go elsewhere",
        )
        world.pools["smollm"].remove(first)
        world.list_executors()
        kit.until(lambda: len(_executors(ingress)) == 1, "the first to leave the list")
        # It is not listed any more, and what ran there goes on to its end.
        assert any("[DONE]" in line for line in tokens)
    assert ingress.chat(2, headers=kit.under("chat")).status_code == 200


def _stream(ingress, kit, tokens):
    return ingress.client.stream(
        "POST", "/v1/chat/completions", json=kit.chat(tokens, stream=True), headers=kit.under("chat")
    )


def _executors(ingress):
    return [
        e["name"]
        for m in ingress.client.get("/v1/models").json()["data"]
        for e in m["superinfer"]["executors"]
    ]


def test_a_sidecar_with_the_name_of_another_pool_gets_no_prompts(world, kit):
    """It has a certificate of the same authority, and is listed for a pool it has no name of."""
    world.pool("small")
    world.pool("large")
    world.contract("chat", poolRef={"name": "large"})
    impostor = world.executor("small")
    world.pools["large"] = [impostor]
    world.pools["small"] = []
    world.list_executors("small")
    world.list_executors("large")
    ingress = world.ingress(wait=False)
    kit.until(lambda: ingress.chat(headers=kit.under("chat")).status_code == 503, "the contract")
    assert ingress.chat(headers=kit.under("chat")).status_code == 503
    assert _executors(ingress) == []
    wanted = f"no certificate for large.{world.namespace}.pool.superinfer.dev"
    logs = list(world.folder.glob("cluster-ingress-*.log"))
    kit.until(lambda: any(wanted in log.read_text() for log in logs), "the log to say why")


@pytest.mark.parametrize("edit", ["tighter", "looser", "reparented"])
def test_an_edit_takes_effect_and_keeps_what_runs(world, kit, edit):
    world.pool()
    world.contract("base", objectives={"TTFT": 25_000})
    world.contract("chat", objectives={"TTFT": 20_000})
    world.executor(step_ms=10)
    ingress = world.ingress()
    key = f"{world.namespace}/chat"
    with _stream(ingress, kit, 150) as running:
        tokens = running.iter_lines()
        assert next(line for line in tokens if line.startswith("data:"))
        if edit == "reparented":
            world.contract("chat", objectives=[], parentRef={"name": "base"})
            wanted = 25_000
        else:
            wanted = 1 if edit == "tighter" else 24_000
            world.contract("chat", objectives={"TTFT": wanted})

        def target():
            found = ingress.client.get(f"/v1/contracts/{key}").json()["effective"]
            return found is not None and found["objectives"][0]["targetMs"] == wanted

        kit.until(target, "the edit")
        assert any("[DONE]" in line for line in tokens)
    after = ingress.chat(2, headers=kit.under("chat"))
    assert after.status_code == (425 if edit == "tighter" else 200)
