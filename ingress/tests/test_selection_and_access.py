"""Which contract a request is under, and whose keys it serves, under `auth: Required`."""

import subprocess
import sys

import pytest


@pytest.fixture(scope="session")
def keyed(shared, executor, kit):
    """An ingress with keys: one of shop, one of two namespaces, one without a contract, one administrator."""
    keys = shared.directory / "keys.yaml"
    plain = {}
    for name, options in {
        "shop": ["--namespace", "shop", "--secret", "shop-keys"],
        "both": ["--namespace", "shop", "--namespace", "bank", "--secret", "bank-keys"],
        "stranger": ["--namespace", "elsewhere", "--secret", "none"],
        "admin": ["--admin"],
    }.items():
        made = subprocess.run(
            [sys.executable, "-m", "superinfer_ingress", "new-key", "--keys", keys, "--name", name, *options],
            capture_output=True,
            text=True,
            check=True,
        )
        plain[name] = made.stdout.strip()
    own = {"apiKeySecretRef": {"name": "shop-keys"}}
    contracts = [
        kit.contract("chat", access=own),
        kit.contract("ledger", namespace="bank", access={"apiKeySecretRef": {"name": "bank-keys"}}),
        kit.contract("chat", namespace="bank", access={"apiKeySecretRef": {"name": "bank-keys"}}),
        kit.contract("open", namespace="common", access={"mode": "AnyKey"}),
        kit.contract("locked", namespace="common"),
    ]
    ingress = shared.ingress([executor], contracts, auth="Required", withoutContract="Reject", keys=str(keys))
    return ingress, plain, keys


def headers_of(plain, key, contract):
    headers = {"authorization": f"Bearer {plain.get(key, key)}"} if key else {}
    return {**headers, "x-slo-contract-id": contract} if contract else headers


@pytest.mark.parametrize(
    ("key", "contract", "expected"),
    [
        pytest.param(None, "shop/chat", (401, "unauthorized"), id="no key"),
        pytest.param("sk-si-guess", "shop/chat", (401, "unauthorized"), id="unknown key"),
        pytest.param("é" * 40, "shop/chat", (401, "unauthorized"), id="not even text"),
        pytest.param("shop", None, "shop/chat", id="a key's only contract needs no name"),
        pytest.param("shop", "chat", "shop/chat", id="a bare id means the key's namespace"),
        pytest.param("shop", "bank/chat", (403, "forbidden"), id="another team's contract"),
        pytest.param("shop", "common/open", "common/open", id="any known key where it says so"),
        pytest.param("shop", "open", "common/open", id="a bare id finds an AnyKey contract elsewhere"),
        pytest.param("shop", "common/locked", (403, "forbidden"), id="no Secret named: serves nobody"),
        pytest.param("shop", "nothing", (404, "unknown_contract"), id="an unknown id is never best effort"),
        pytest.param("both", None, (400, "invalid_slo"), id="several contracts and none named"),
        pytest.param("both", "ledger", "bank/ledger", id="several namespaces, one has it"),
        pytest.param("both", "chat", (400, "invalid_slo"), id="several namespaces have it"),
        pytest.param("both", "bank/chat", "bank/chat", id="several namespaces, named in full"),
        pytest.param("stranger", None, (400, "invalid_slo"), id="a key without contracts"),
        pytest.param("shop", "Not A Name", (400, "invalid_slo"), id="not a name"),
    ],
)
def test_the_contract_of_a_request(keyed, key, contract, expected):
    ingress, plain, _ = keyed
    headers = {k: v.encode() for k, v in headers_of(plain, key, contract).items()}
    answer = ingress.client.post(
        "/v1/completions", json={"model": "stub", "prompt": "x", "max_tokens": 1}, headers=headers
    )
    if isinstance(expected, str):
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-superinfer-contract"] == expected
    else:
        assert (answer.status_code, answer.json()["error"]["code"]) == expected
        assert answer.json()["error"]["message"]


def test_only_administrators_see_and_change_contracts(keyed, kit):
    ingress, plain, _ = keyed
    for method, path in (("GET", "/v1/contracts"), ("DELETE", "/v1/contracts/shop/chat")):
        answer = ingress.client.request(method, path, headers=headers_of(plain, "shop", None))
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")
        assert ingress.client.request(method, path).status_code == 401
    listed = ingress.client.get("/v1/contracts", headers=headers_of(plain, "admin", None))
    assert listed.status_code == 200


def test_keys_are_kept_as_hashes_for_the_owner_only(keyed):
    _, plain, keys = keyed
    text = keys.read_text()
    assert not any(key in text for key in plain.values())
    assert keys.stat().st_mode & 0o077 == 0


def test_a_key_that_is_taken_out_of_the_file_stops_working(rig, executor, kit):
    from superinfer_ingress.contracts.keys import add_key, new_key

    keys = rig.directory / "keys.yaml"
    plain, entry = new_key("shop", namespaces=("shop",))
    add_key(keys, entry)
    ingress = rig.ingress(
        [executor], [kit.contract("open", access={"mode": "AnyKey"})], auth="Required", keys=str(keys)
    )
    headers = {"authorization": f"Bearer {plain}"}
    assert ingress.chat(1, headers=headers).status_code == 200
    keys.write_text("keys: [{name: broken")
    keys.write_text("keys: []\n")
    kit.until(lambda: ingress.chat(1, headers=headers).status_code == 401, "the key to be forgotten")


def test_a_pools_default_contract_and_best_effort(rig, executor, kit):
    pools = {"default": {"defaultContract": "shop/usual"}}
    ingress = rig.ingress([executor], [kit.contract("usual")], pools=pools, withoutContract="Reject")
    answer = ingress.chat(1)
    assert (answer.status_code, answer.headers["x-superinfer-contract"]) == (200, "shop/usual")


def test_a_contract_of_another_pool_is_not_served_here(rig, executor, kit):
    elsewhere = kit.contract("far", poolRef={"name": "other"})
    ingress = rig.ingress([executor], [elsewhere, kit.contract("near", poolRef={"name": "default"})])
    answer = ingress.chat(1, headers=kit.under("far"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_executors")
    assert ingress.chat(1, headers=kit.under("near")).status_code == 200
    wrong = ingress.chat(1, headers=kit.under("near"), model="other-model")
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (404, "model_not_found")
