"""The Secret of digests is a keys file the ingress takes, and holds no key."""

import base64

import yaml

from superinfer_operator.keys.digests import keys_secret, keys_text
from superinfer_operator.watching.objects import keys_record


def record(name, items, namespace="shop", **metadata):
    data = {item: base64.b64encode(value.encode()).decode() for item, value in items.items()}
    return keys_record({"metadata": {"name": name, "namespace": namespace, **metadata}, "data": data})


def test_each_key_is_bound_to_its_namespace_and_secret():
    entries = yaml.safe_load(keys_text([record("team", {"alice": "sk-1"})]))["keys"]
    assert entries == [
        {
            "name": "shop/team/alice",
            "namespaces": ["shop"],
            "secret": "team",
            "sha256": "0f2c10bf3d128c719c6bfa4ecbae94b7fceebaea6e4438fef38a90e5acc326f3",
        }
    ]
    assert "sk-1" not in keys_text([record("team", {"alice": "sk-1"})])


def test_an_administrators_secret_makes_keys_of_administrators():
    admin = record("root", {"k": "x"}, annotations={"superinfer.dev/admin": "true"})
    assert yaml.safe_load(keys_text([admin]))["keys"][0]["admin"] is True


def test_the_same_keys_make_the_same_text_in_any_order():
    a, b = record("a", {"k": "1"}), record("b", {"k": "2"}, namespace="other")
    assert keys_text([a, b]) == keys_text([b, a])


def test_without_keys_there_is_an_empty_file():
    document = keys_secret(keys_text([]), "system")
    assert yaml.safe_load(base64.b64decode(document["data"]["keys.yaml"])) == {"keys": []}
