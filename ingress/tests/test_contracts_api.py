"""POST, PUT, GET and DELETE /v1/contracts, and the directory of files behind it."""

import json

import pytest
import yaml

SHORT = """
service_id: legacy-chat
slo:
  latency: {p95_ms: 2000, p99_ms: 4000}
availability: 99.9
"""


@pytest.fixture(scope="session")
def editable(shared, executor, kit):
    return shared.ingress([executor], [kit.contract("given")])


def post(ingress, document, kind="application/json"):
    raw = document if isinstance(document, (str, bytes)) else json.dumps(document)
    return ingress.client.post("/v1/contracts", content=raw, headers={"content-type": kind})


def test_a_posted_contract_is_served_at_once_and_survives_a_restart(rig, executor, kit):
    first = rig.ingress([executor])
    made = post(first, yaml.safe_dump(kit.contract("fresh", tier="Gold")), "application/yaml")
    assert made.status_code == 201, made.text
    assert made.json()["id"] == "shop/fresh"
    assert first.chat(1, headers=kit.under("shop/fresh")).status_code == 200
    assert first.attainment("shop/fresh")["kept"] == 1
    second = rig.ingress([executor], contracts=None)
    files = list(first.contracts.glob("*.superinfer.yaml"))
    assert len(files) == 1
    (second.contracts / files[0].name).write_bytes(files[0].read_bytes())
    kit.until(
        lambda: second.chat(1, headers=kit.under("shop/fresh")).status_code == 200, "the file to be read"
    )
    assert second.client.get("/v1/contracts/shop/fresh").json()["created"] == made.json()["created"]


def test_replace_then_delete(editable, kit):
    assert post(editable, kit.contract("brief", tier="Gold")).status_code == 201
    again = post(editable, kit.contract("brief", tier="Bronze"))
    assert (again.status_code, again.json()["generation"]) == (200, 2)
    assert again.json()["effective"]["tier"] == "Bronze"
    gone = editable.client.delete("/v1/contracts/shop/brief")
    assert gone.json() == {"object": "contract", "id": "shop/brief", "deleted": True}
    answer = editable.chat(1, headers=kit.under("shop/brief"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_contract")


def test_put_makes_and_replaces_what_the_path_names_and_nothing_else(editable, kit):
    def put(path, document):
        return editable.client.put(f"/v1/contracts/{path}", json=document)

    assert put("shop/exact", kit.contract("exact", tier="Gold")).status_code == 201
    again = put("shop/exact", kit.contract("exact", tier="Silver"))
    assert (again.status_code, again.json()["effective"]["tier"]) == (200, "Silver")
    other = put("shop/exact", kit.contract("another"))
    assert other.status_code == 400
    assert "shop/another" in other.json()["error"]["message"]
    assert editable.client.get("/v1/contracts/shop/another").status_code == 404
    assert put("shop/given", kit.contract("given")).status_code == 409
    assert editable.client.patch("/v1/contracts/shop/exact").headers["allow"] == "GET, PUT, DELETE"


def test_the_short_form_of_the_first_users(editable, kit):
    made = post(editable, SHORT, "application/yaml")
    assert made.status_code == 201, made.text
    objectives = made.json()["effective"]["objectives"]
    assert {(o["metric"], o["percentile"], o["targetMs"]) for o in objectives} == {
        ("E2E", 95, 2000),
        ("E2E", 99, 4000),
    }
    assert editable.chat(1, headers=kit.under("legacy-chat")).status_code == 200


@pytest.mark.parametrize(
    ("document", "names"),
    [
        pytest.param(b"", "document", id="nothing"),
        pytest.param(b"\xff\xfe{", "UTF-8", id="not text"),
        pytest.param(b'{"kind": "SLOContract", ', "neither YAML nor JSON", id="truncated"),
        pytest.param("a: &a [*a]", "anchor or alias", id="an alias"),
        pytest.param({"kind": "SLOContract"}, "spec", id="no spec"),
        pytest.param("{kind: Nope}", "kind", id="another kind"),
        pytest.param("[1, 2]", "document", id="a list"),
    ],
)
def test_what_is_not_a_contract_is_named(editable, document, names):
    answer = post(editable, document, "application/yaml")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
    assert names in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("spec", "field", "value"),
    [
        pytest.param({"tier": "Platinum"}, "spec.tier", "Platinum", id="unknown tier"),
        pytest.param({"objectives": {"TTFT": -5}}, "targetMs", "-5", id="negative target"),
        pytest.param({"objectives": {"TTFT": 1e400}}, "targetMs", "inf", id="infinite target"),
        pytest.param({"objectives": {"TTFT": "300ms"}}, "targetMs", "300ms", id="a unit"),
        pytest.param({"availability": "200"}, "spec.availability", "200", id="more than everything"),
        pytest.param({"window": "1 fortnight"}, "spec.window", "fortnight", id="unknown unit"),
        pytest.param({"objectivs": []}, "spec.objectivs", "", id="a typing mistake"),
    ],
)
def test_a_wrong_field_is_named_with_its_value(editable, kit, spec, field, value):
    answer = post(editable, yaml.safe_dump(kit.contract("wrong", **spec)), "application/yaml")
    message = answer.json()["error"]["message"]
    assert answer.status_code == 400
    assert field in message
    assert value in message


def test_a_contract_that_contradicts_another_names_both_sides(editable, kit):
    twin = kit.contract("twin", serviceID="given")
    answer = post(editable, twin)
    assert answer.status_code == 409
    assert "shop/twin" in answer.json()["error"]["message"]
    assert "shop/given" in answer.json()["error"]["message"]
    assert editable.chat(1, headers=kit.under("given")).status_code == 200


def test_a_hand_written_file_is_left_to_its_author(editable, kit):
    answer = editable.client.delete("/v1/contracts/shop/given")
    assert answer.status_code == 409
    assert "given.yaml" in answer.json()["error"]["message"]
    assert post(editable, kit.contract("given", tier="Gold")).status_code == 409


def test_a_bad_file_is_listed_and_breaks_nothing(rig, executor, kit):
    ingress = rig.ingress([executor], [kit.contract("good")])
    bad = kit.contract("bad", tier="Platinum")
    other = kit.contract("other")
    (ingress.contracts / "more.yaml").write_text(yaml.safe_dump_all([bad, other]))
    (ingress.contracts / "noise.yaml").write_bytes(b"\xff\x00: [")
    kit.until(
        lambda: ingress.chat(1, headers=kit.under("other")).status_code == 200, "the good half of the file"
    )
    listed = ingress.client.get("/v1/contracts").json()
    assert {c["id"]: c["accepted"] for c in listed["data"]} == {
        "shop/bad": False,
        "shop/good": True,
        "shop/other": True,
    }
    assert any(p["file"] == "noise.yaml" for p in listed["problems"])
    answer = ingress.chat(1, headers=kit.under("shop/bad"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_contract")
    assert "Platinum" in answer.json()["error"]["message"]


def test_a_file_broken_by_an_edit_keeps_what_it_promised(rig, executor, kit):
    ingress = rig.ingress([executor], [kit.contract("steady")])
    (ingress.contracts / "given.yaml").write_text("kind: [")
    kit.until(lambda: ingress.client.get("/v1/contracts").json()["problems"], "the problem to be seen")
    assert ingress.chat(1, headers=kit.under("steady")).status_code == 200


def test_a_directory_that_is_gone_changes_nothing_and_is_read_again_when_it_is_back(rig, executor, kit):
    import shutil

    ingress = rig.ingress([executor], [kit.contract("good")])
    shutil.rmtree(ingress.contracts)
    answer = post(ingress, kit.contract("new"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "invalid_request")
    assert ingress.chat(1, headers=kit.under("good")).status_code == 200
    ingress.contracts.mkdir()
    (ingress.contracts / "back.yaml").write_text(yaml.safe_dump(kit.contract("back")))
    kit.until(
        lambda: ingress.chat(1, headers=kit.under("back")).status_code == 200, "the new directory to be read"
    )
    (ingress.contracts / "later.yaml").write_text(yaml.safe_dump(kit.contract("later")))
    kit.until(
        lambda: ingress.chat(1, headers=kit.under("later")).status_code == 200, "changes of it to be read"
    )
