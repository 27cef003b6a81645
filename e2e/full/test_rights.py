"""What the service accounts may do: what they need, and nothing else, compared with a golden file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from e2e.harness import release
from e2e.harness.objects import kubectl

GOLDEN = Path(__file__).parent / "golden"
# What every service account may do, and is not ours.
EVERYBODY = ("selfsubject", "[/", "/.well-known")


def _rights(account: str, namespace: str) -> str:
    """`kubectl auth can-i --list` of a service account, in an order of its own."""
    user = f"system:serviceaccount:{release.NAMESPACE}:{account}"
    lines = kubectl("auth", "can-i", "--list", f"--as={user}", "--namespace", namespace).splitlines()[1:]
    ours = (" ".join(line.split()) for line in lines if not any(word in line for word in EVERYBODY))
    return "\n".join(sorted(line for line in ours if line)) + "\n"


@pytest.mark.parametrize("account", ["superinfer-operator", "superinfer-ingress"])
@pytest.mark.parametrize(
    "namespace",
    [pytest.param(release.NAMESPACE, id="own-namespace"), pytest.param("shop", id="other-namespace")],
)
def test_rights_are_exactly_these(installed: None, account: str, namespace: str) -> None:
    """The rights of a service account are those of the golden file, in its own namespace and in another."""
    where = "own" if namespace == release.NAMESPACE else "other"
    golden = GOLDEN / f"{account}.{where}.txt"
    seen = _rights(account, namespace)
    if os.environ.get("SUPERINFER_E2E_GOLDEN") == "write":
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(seen)
    assert seen == golden.read_text(), f"rights changed; if that is meant, write {golden.name} anew"
    assert "*" not in seen, "no wildcards"


def test_executors_have_no_rights(installed: None) -> None:
    """Executor pods run without a token, so nothing in them can ask the API server for anything."""
    rights = _rights("default", "shop")
    assert rights.strip() == ""
