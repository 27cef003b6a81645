"""Replicas, keys, the contracts API and counts; and an API server that goes away."""

import json

import pytest

from superinfer_core.contract.inheritance import StoredContract
from superinfer_core.contract.parse import parse_contract
from superinfer_core.contract.resolution import resolve_contracts
from superinfer_core.contract.shared_counts import attainment_from
from superinfer_kube.testing.apiserver import apiserver_missing, install_crds, running_apiserver
from superinfer_kube.testing.fixtures import CRDS

pytestmark = pytest.mark.apiserver


def bearer(key):
    return {"authorization": f"Bearer {key}"}


def test_keys_come_from_the_one_secret_and_follow_it(world, kit, cluster_kit):
    world.pool()
    world.contract("chat", access={"mode": "AnyKey"})
    world.executor()
    ingress = world.ingress(auth="Required")
    asked = {**kit.under("chat"), **bearer(cluster_kit.KEY)}
    assert ingress.chat(headers=asked).status_code == 401
    world.keys(world.key())
    kit.until(lambda: ingress.chat(headers=asked).status_code == 200, "the key")
    world.keys({"name": "tests", "sha256": "not a digest"})
    world.keys(world.key("another"))
    kit.until(lambda: ingress.chat(headers=asked).status_code == 401, "the key to be revoked")
    assert ingress.chat(headers={**kit.under("chat"), **bearer("another")}).status_code == 200


def test_a_key_sees_the_models_of_its_own_pools_only(world, kit, cluster_kit):
    for pool in ("ours", "theirs"):
        world.pool(pool, allowedNamespaces=[world.shop] if pool == "ours" else [])
        world.executor(pool)
    everybody = world.key("everybody's", name="a", admin=True, namespaces=[world.release])
    world.keys(world.key("shop's", namespaces=[world.shop]), everybody)
    ingress = world.ingress(auth="Required")

    def pools(key):
        listed = ingress.client.get("/v1/models", headers=bearer(key)).json()["data"]
        return {e["pool"].partition("/")[2] for model in listed for e in model["superinfer"]["executors"]}

    kit.until(lambda: pools("everybody's") == {"ours", "theirs"}, "both executors")
    assert pools("shop's") == {"ours"}
    stranger = world.key("stranger's", namespaces=["nowhere"], name="b")
    world.keys(stranger)
    kit.until(lambda: ingress.client.get("/v1/models", headers=bearer("stranger's")).status_code == 200, "it")
    assert pools("stranger's") == set()
    assert ingress.client.get("/v1/models/stub", headers=bearer("stranger's")).status_code == 404


def test_an_administrator_manages_the_contracts_of_its_own_namespace_only(world, kit):
    """Whoever may create a Secret may call its keys an administrator's: that opens no other contracts."""
    world.pool(allowedNamespaces=[world.shop])
    world.contract("theirs")
    world.contract("own", namespace=world.shop)
    installers = world.key("installer's", name="a", admin=True, namespaces=[world.release])
    world.keys(world.key("shop's", admin=True, namespaces=[world.shop]), installers)
    ingress = world.ingress(auth="Required")
    client, theirs, own = ingress.client, f"{world.namespace}/theirs", f"{world.shop}/own"

    def listed(key):
        answer = client.get("/v1/contracts", headers=bearer(key))
        return {one["id"] for one in answer.json()["data"]} if answer.status_code == 200 else None

    kit.until(lambda: listed("installer's") == {theirs, own}, "both contracts")
    assert listed("shop's") == {own}
    document = kit.contract("theirs", namespace=world.namespace)
    for answer, want in (
        (client.get(f"/v1/contracts/{theirs}", headers=bearer("shop's")), 404),
        (client.delete(f"/v1/contracts/{theirs}", headers=bearer("shop's")), 404),
        (client.post("/v1/contracts", json=document, headers=bearer("shop's")), 403),
        (client.put(f"/v1/contracts/{theirs}", json=document, headers=bearer("shop's")), 403),
    ):
        assert answer.status_code == want, answer.text
    new = client.post(
        "/v1/contracts", json=kit.contract("new", namespace=world.shop), headers=bearer("shop's")
    )
    assert new.status_code == 201, new.text
    assert client.get(f"/v1/contracts/{theirs}", headers=bearer("installer's")).status_code == 200


def test_best_effort_runs_only_where_the_key_may(world, kit, cluster_kit):
    for pool in ("ours", "theirs"):
        world.pool(pool, allowedNamespaces=[world.shop] if pool == "ours" else [])
    world.executor("theirs")
    world.keys(world.key("shop's", namespaces=[world.shop]))
    ingress = world.ingress(auth="Required", withoutContract="BestEffort")

    def ask():
        return ingress.chat(2, headers=bearer("shop's"))

    kit.until(lambda: ask().status_code == 404, "the key")
    assert ask().json()["error"]["code"] == "model_not_found"
    world.executor("ours")
    kit.until(lambda: ask().status_code == 200, "the pool it may use")
    assert {ask().headers["x-superinfer-executor"] for _ in range(4)} == {"ours-0-1"}


def test_quotas_are_shared_by_the_ready_replicas(world, kit):
    world.pool()
    world.contract("chat", quota={"concurrency": 2})
    world.executor(step_ms=20)
    world.list_replicas(2)
    ingress = world.ingress()
    body = kit.chat(500, stream=True)

    def stream():
        return ingress.client.stream("POST", "/v1/chat/completions", json=body, headers=kit.under("chat"))

    with stream() as running:
        assert running.status_code == 200
        over = ingress.chat(2, headers=kit.under("chat"))
        assert over.status_code == 429, over.text
        assert over.json()["error"]["code"] == "quota_exceeded"
        world.list_replicas(1)
        kit.until(lambda: ingress.chat(2, headers=kit.under("chat")).status_code == 200, "the other half")


def test_contracts_are_written_as_custom_resources(world, kit):
    world.pool()
    world.executor()
    ingress = world.ingress()
    document = kit.contract("posted", namespace=world.namespace, objectives={"TTFT": 20_000})
    made = ingress.client.post("/v1/contracts", json=document)
    assert made.status_code == 201, made.text
    # In effect at once, not when the watch has come round.
    assert ingress.chat(2, headers=kit.under("posted")).status_code == 200
    get = ("get", "slocontract", "posted", "-n", world.namespace, "-o", "json", "--show-managed-fields")
    stored = json.loads(world.server.kubectl(*get))
    assert stored["spec"]["objectives"][0]["targetMs"] == 20_000
    assert stored["metadata"]["managedFields"][0]["manager"] == "superinfer-ingress"
    document["spec"]["objectives"][0]["targetMs"] = 15_000
    path = f"/v1/contracts/{world.namespace}/posted"
    assert ingress.client.put(path, json=document).status_code == 200
    assert ingress.client.get(path).json()["effective"]["objectives"][0]["targetMs"] == 15_000
    assert ingress.client.put(f"/v1/contracts/{world.namespace}/other", json=document).status_code == 400
    assert ingress.client.delete(path).status_code == 200
    assert ingress.client.get(path).status_code == 404
    assert "NotFound" in world.server.kubectl(*get, check=False)


def test_what_somebody_else_wrote_is_left_to_them(world, kit):
    world.contract("theirs", objectives={"TTFT": 20_000})
    world.pool()
    ingress = world.ingress()
    path = f"/v1/contracts/{world.namespace}/theirs"
    document = kit.contract("theirs", namespace=world.namespace, objectives={"TTFT": 1})
    for answer in (ingress.client.post("/v1/contracts", json=document), ingress.client.delete(path)):
        assert answer.status_code == 409
        assert "kubectl" in answer.json()["error"]["message"]
    assert ingress.client.get(path).json()["effective"]["objectives"][0]["targetMs"] == 20_000


@pytest.mark.parametrize(
    ("namespace", "settings", "status", "says"),
    [
        pytest.param("nowhere", {}, 404, "nowhere", id="a namespace that is not there"),
        pytest.param(None, {"writeContracts": False}, 405, "kubectl", id="an ingress that only reads"),
    ],
)
def test_a_contract_that_cannot_be_written_says_why(world, kit, namespace, settings, status, says):
    world.pool(allowedNamespaces=["nowhere"])
    ingress = world.ingress(kubernetes=settings)
    pool = {"name": "smollm", "namespace": world.namespace}
    document = kit.contract("posted", namespace=namespace or world.namespace, poolRef=pool)
    answer = ingress.client.post("/v1/contracts", json=document)
    assert answer.status_code == status, answer.text
    assert says in answer.json()["error"]["message"]


def test_window_counts_are_published_for_the_operator_to_add_up(world, kit):
    world.pool()
    world.contract("chat")
    world.executor()
    replicas = [world.ingress(), world.ingress()]
    for number, ingress in enumerate(replicas, start=1):
        for _ in range(number):
            assert ingress.chat(2, headers=kit.under("chat")).status_code == 200
    key = f"{world.namespace}/chat"

    def published():
        listed = world.server.kubectl("get", "configmaps", "-n", world.release, "-o", "json")
        maps = [m for m in json.loads(listed)["items"] if m["metadata"]["name"].startswith("superinfer-att")]
        assert all(m["metadata"]["ownerReferences"][0]["kind"] == "Pod" for m in maps)
        found = [json.loads(m["data"]["counts.json"])["contracts"].get(key) for m in maps]
        return [one for one in found if one is not None]

    stored = StoredContract.of(parse_contract(kit.contract("chat", namespace=world.namespace)))
    contract = resolve_contracts([stored]).effective[key]
    kit.until(lambda: attainment_from(contract, published()).counts.offered == 3, "both replicas' counts")
    assert attainment_from(contract, published()).fulfilled


def test_serving_goes_on_while_the_api_server_is_away(kit, cluster_kit, rig, tmp_path):
    if absent := apiserver_missing():
        pytest.skip(f"{', '.join(absent)} not built: make apiserver")
    with running_apiserver(tmp_path / "own") as server:
        install_crds(server, CRDS)
        world = cluster_kit.make_world(server, kit, rig, tmp_path)
        world.pool()
        world.contract("chat")
        world.executor()
        ingress = world.ingress()
        asked = kit.under("chat")
        assert ingress.chat(2, headers=asked).status_code == 200
        server.stop_server()
        up = "superinfer_kubernetes_watch_up"
        kit.until(lambda: ingress.metric(up, resource="slocontracts") == 0, "the loss to be seen")
        ready = ingress.client.get("/readyz")
        assert ready.status_code == 200
        assert ready.json()["kubernetes"]["api_server"] == "away"
        assert ready.json()["kubernetes"]["serving_by"] == "the last state that was heard"
        assert ingress.chat(2, headers=asked).status_code == 200
        refused = ingress.client.post("/v1/contracts", json=kit.contract("new", namespace=world.namespace))
        assert refused.status_code == 503
        assert "retry-after" in refused.headers
        fresh = world.ingress(wait=False)
        assert fresh.client.get("/healthz").status_code == 200
        assert "not listed yet" in fresh.client.get("/readyz").text
        server.start_server()
        world.contract("later")
        kit.until(lambda: ingress.chat(2, headers=kit.under("later")).status_code == 200, "what came later")
        kit.until(lambda: fresh.client.get("/readyz").status_code == 200, "the fresh one")
        assert ingress.metric(up, resource="slocontracts") == 1


def test_a_replica_without_any_executors_is_ready_and_says_so_to_clients(world, kit):
    world.pool()
    world.contract("chat")
    ingress = world.ingress()
    answer = ingress.chat(2, headers=kit.under("chat"))
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "no_executors"


def test_a_terminating_replica_serves_until_everybody_has_heard_of_it(world, kit):
    world.pool()
    world.contract("chat")
    world.executor()
    ingress = world.ingress(shutdownDelay=3)
    ingress.process.child.terminate()
    kit.until(lambda: ingress.client.get("/readyz").status_code == 503, "the probe to fail")
    answer = ingress.chat(2, headers=kit.under("chat"))
    assert answer.status_code == 200
    assert answer.headers["connection"] == "close"
    assert ingress.process.child.wait(20) == 0
