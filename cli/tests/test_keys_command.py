"""`superinfer keys`: a key is shown once, only its hash is kept, and the ingress accepts it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from superinfer_ingress.contracts.keys import load_keys

Run = Callable[..., Any]


async def test_a_created_key_is_known_to_the_ingress_and_not_in_the_file(
    superinfer: Run, tmp_path: Path
) -> None:
    file = tmp_path / "keys.yaml"
    done = superinfer("keys", "create", "checkout", "--namespace", "shop", "--keys", str(file), "-o", "json")
    assert done.exit_code == 0
    key = json.loads(done.stdout)["key"]
    assert key not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0
    found = await load_keys(file).find(key)
    assert found is not None
    assert found.namespaces == ("shop",)
    assert await load_keys(file).find(key + "x") is None


def test_a_name_is_used_once(superinfer: Run, tmp_path: Path) -> None:
    file = str(tmp_path / "keys.yaml")
    assert superinfer("keys", "create", "a", "--keys", file).exit_code == 0
    again = superinfer("keys", "create", "a", "--keys", file)
    assert again.exit_code == 2
    assert "another name" in again.stderr


def test_a_broken_file_is_named_and_left_alone(superinfer: Run, tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    file.write_text("keys: 3\n")
    assert superinfer("keys", "check", "--keys", str(file)).exit_code == 2
    assert superinfer("keys", "create", "a", "--keys", str(file)).exit_code == 2
    assert file.read_text() == "keys: 3\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("",), "name"),
        (("a", "--namespace", "Not One"), "--namespace"),
        (("a", "--keys", "/no/such/directory/keys.yaml"), "No such file or directory"),
    ],
    ids=["no name", "no namespace", "no directory"],
)
def test_a_key_that_could_not_be_used_is_not_made(
    superinfer: Run, tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    file = tmp_path / "keys.yaml"
    done = superinfer("keys", "create", "--keys", str(file), *arguments)
    assert done.exit_code == 2
    assert says in done.stderr
    assert not file.exists()


def test_what_never_ends_is_refused_as_a_keys_file(superinfer: Run) -> None:
    done = superinfer("keys", "check", "--keys", "/dev/zero")
    assert done.exit_code == 2
    assert "is larger than" in done.stderr
