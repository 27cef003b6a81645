"""The Secret of digests is a keys file the ingress takes, and holds no key."""

import base64

import yaml

from superinfer_operator.keys.digests import MOST_BYTES, keys_file, keys_secret
from superinfer_operator.watching.objects import keys_record


def record(name, items, namespace="shop", **metadata):
    data = {item: base64.b64encode(value.encode()).decode() for item, value in items.items()}
    return keys_record({"metadata": {"name": name, "namespace": namespace, **metadata}, "data": data})


def text_of(*records):
    return keys_file(records).text


def many(namespace, name, count, created):
    items = {f"key-{number:05}": f"{namespace}-{name}-{number}" for number in range(count)}
    return record(name, items, namespace=namespace, creationTimestamp=created)


def names_in(file):
    return [entry["name"] for entry in yaml.safe_load(file.text)["keys"]]


def test_each_key_is_bound_to_its_namespace_and_secret():
    entries = yaml.safe_load(text_of(record("team", {"alice": "sk-1"})))["keys"]
    assert entries == [
        {
            "name": "shop/team/alice",
            "namespaces": ["shop"],
            "secret": "team",
            "sha256": "0f2c10bf3d128c719c6bfa4ecbae94b7fceebaea6e4438fef38a90e5acc326f3",
        }
    ]
    assert "sk-1" not in text_of(record("team", {"alice": "sk-1"}))


def test_an_administrators_secret_makes_keys_of_administrators():
    admin = record("root", {"k": "x"}, annotations={"superinfer.dev/admin": "true"})
    assert yaml.safe_load(text_of(admin))["keys"][0]["admin"] is True


def test_the_same_keys_make_the_same_text_in_any_order():
    a, b = record("a", {"k": "1"}), record("b", {"k": "2"}, namespace="other")
    assert text_of(a, b) == text_of(b, a)


def test_without_keys_there_is_an_empty_file():
    document = keys_secret(text_of(), "system")
    assert yaml.safe_load(base64.b64decode(document["data"]["keys.yaml"])) == {"keys": []}


def test_a_namespace_with_endless_keys_takes_none_from_others():
    """A Secret that does not fit is not written: nobody's key could be added, or taken back."""
    greedy = [many("greedy", f"s{number}", 4000, f"2026-01-0{number}T00:00:00Z") for number in (1, 2, 3)]
    few, some = (
        many("few", "team", 3, "2026-06-01T00:00:00Z"),
        many("some", "team", 300, "2026-05-01T00:00:00Z"),
    )
    file = keys_file([*greedy, few, some])
    assert len(file.text.encode()) <= MOST_BYTES
    kept = names_in(file)
    assert [name for name in kept if name.startswith("few/")] == [f"few/team/key-{n:05}" for n in range(3)]
    assert len([name for name in kept if name.startswith("some/")]) == 300
    assert {one.namespace for one in file.left_out} == {"greedy"}
    assert len(kept) + sum(file.left_out.values()) == 12_303


def test_of_a_namespace_with_too_many_the_oldest_secrets_work():
    old, new = (
        many("shop", "z-old", 10, "2026-01-01T00:00:00Z"),
        many("shop", "a-new", 10, "2026-02-01T00:00:00Z"),
    )
    file = keys_file([new, old], most_bytes=15 * 160)
    kept = names_in(file)
    assert set(names_in(keys_file([old]))) <= set(kept)
    assert file.left_out == {new: 20 - len(kept)}
    assert file.left_out[new] > 0


def test_room_for_all_is_given_to_all():
    file = keys_file([many("a", "s", 1000, ""), many("b", "s", 2, "")])
    assert file.left_out == {}
    assert len(names_in(file)) == 1002


OLD, NEW = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"


def test_a_key_that_somebody_copies_stays_its_first_owners():
    """Else whoever learns a key could make everybody who uses it strangers to their own contracts."""
    owner = record("team", {"k": "sk-1"}, namespace="shop", creationTimestamp=OLD)
    copy = record("mine", {"k": "sk-1", "own": "sk-2"}, namespace="zoo", creationTimestamp=NEW)
    file = keys_file([copy, owner])
    assert names_in(file) == ["shop/team/k", "zoo/mine/own"]
    assert (file.taken, file.left_out) == ({copy: 1}, {})
    assert names_in(keys_file([copy])) == ["zoo/mine/k", "zoo/mine/own"], "its owner gave it up"


def test_a_key_twice_in_one_secret_is_one_key():
    file = keys_file([record("team", {"a": "sk-1", "b": "sk-1"})])
    assert file.taken == {}
    assert {entry["sha256"] for entry in yaml.safe_load(file.text)["keys"]} == {
        "0f2c10bf3d128c719c6bfa4ecbae94b7fceebaea6e4438fef38a90e5acc326f3"
    }
