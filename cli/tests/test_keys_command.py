"""`superinfer keys`: a key is shown once, only its hash is kept, and the ingress accepts it."""

import json
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from superinfer_ingress.contracts.keys import add_key, listed_keys, load_keys, new_key

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
        (("",), "is empty"),
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


def test_keys_are_listed_by_name_and_never_shown(superinfer: Run, tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    made = [
        json.loads(superinfer("keys", "create", *more, "--keys", str(file), "-o", "json").stdout)["key"]
        for more in (["shop", "--namespace", "shop", "--secret", "s"], ["ops", "--admin"])
    ]
    text = superinfer("keys", "list", "--keys", str(file))
    listed = superinfer("keys", "list", "--keys", str(file), "-o", "json")
    assert (text.exit_code, listed.exit_code) == (0, 0)
    assert json.loads(listed.stdout)["keys"] == [
        {"name": "shop", "namespaces": ["shop"], "secret": "s", "admin": False},
        {"name": "ops", "namespaces": ["default"], "secret": None, "admin": True},
    ]
    assert [line.split()[0] for line in text.stdout.splitlines()] == ["shop", "ops"]
    hashes = [line.split()[-1] for line in file.read_text().splitlines() if "sha256" in line]
    assert len(hashes) == 2
    assert not any(secret in text.stdout + listed.stdout for secret in [*made, *hashes])


async def test_a_deleted_key_is_refused_and_the_others_stay(superinfer: Run, tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    made = {
        name: json.loads(superinfer("keys", "create", name, "--keys", str(file), "-o", "json").stdout)["key"]
        for name in ("a", "b")
    }
    done = superinfer("keys", "delete", "a", "--keys", str(file), "-o", "json")
    assert done.exit_code == 0
    assert json.loads(done.stdout) == {"name": "a", "deleted": True, "file": str(file)}
    assert file.stat().st_mode & 0o077 == 0
    ring = load_keys(file)
    assert await ring.find(made["a"]) is None
    assert await ring.find(made["b"]) is not None
    assert "1 key" in superinfer("keys", "check", "--keys", str(file)).stdout.split(": ")[1].splitlines()
    assert superinfer("keys", "delete", "b", "--keys", str(file)).exit_code == 0
    assert len(load_keys(file)) == 0


def test_deleting_a_key_that_is_not_there_names_those_there_are(superinfer: Run, tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    superinfer("keys", "create", "a", "--keys", str(file))
    before = file.read_text()
    done = superinfer("keys", "delete", "b", "--keys", str(file))
    assert done.exit_code == 2
    assert "those there are: a" in done.stderr
    assert file.read_text() == before
    assert superinfer("keys", "list", "--keys", str(tmp_path / "none.yaml")).exit_code == 2


def test_whoever_could_read_the_file_still_can_and_a_link_stays_one(superinfer: Run, tmp_path: Path) -> None:
    file, link = tmp_path / "real.yaml", tmp_path / "keys.yaml"
    link.symlink_to(file)
    assert superinfer("keys", "create", "a", "--keys", str(file)).exit_code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o640)
    for change in (("create", "b"), ("delete", "a")):
        assert superinfer("keys", *change, "--keys", str(link)).exit_code == 0
    assert link.is_symlink()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert [key.name for key in listed_keys(file)] == ["b"]


def test_of_many_keys_made_at_once_none_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"

    def make(number: int) -> None:
        add_key(file, new_key(f"k{number}")[1])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make, range(24)))
    assert {key.name for key in listed_keys(file)} == {f"k{number}" for number in range(24)}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "It serves contracts with access: {mode: AnyKey}; --secret NAME"),
        (
            ("--secret", "mine"),
            "contracts of default with access: {apiKeySecretRef: {name: mine}}, and those",
        ),
    ],
    ids=["of no Secret", "of a Secret"],
)
def test_a_new_key_says_which_contracts_it_serves(
    superinfer: Run, tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    done = superinfer("keys", "create", "a", "--keys", str(tmp_path / "keys.yaml"), *arguments)
    assert says in done.stdout
