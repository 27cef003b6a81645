"""Talking to the cluster under test: kubectl for what a person would do, JSON for what a test looks at.

Synchronous. Waiting always has a limit, and running into it shows what was seen last.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from e2e.cluster.nodes import kubectl
from e2e.cluster.shell import ClusterError

Object = dict[str, Any]
Seen = TypeVar("Seen")

__all__ = [
    "ClusterError",
    "Object",
    "apply",
    "condition",
    "delete",
    "events",
    "find",
    "get",
    "kubectl",
    "listed",
    "until",
]


def apply(*documents: Object, namespace: str | None = None) -> None:
    """`kubectl apply` documents, as a person would."""
    where = ["--namespace", namespace] if namespace else []
    text = "\n---\n".join(json.dumps(document) for document in documents)
    kubectl("apply", *where, "--filename=-", stdin=text)


def get(kind: str, name: str, namespace: str | None = None) -> Object:
    """Return one object.

    Raises:
        ClusterError: It is not there, or the API server is away.
    """
    where = ["--namespace", namespace] if namespace else []
    found: Object = json.loads(kubectl("get", kind, name, *where, "--output=json"))
    return found


def find(kind: str, name: str, namespace: str | None = None) -> Object | None:
    """Return one object, or nothing where there is none."""
    where = ["--namespace", namespace] if namespace else []
    text = kubectl("get", kind, name, *where, "--ignore-not-found", "--output=json").strip()
    return json.loads(text) if text else None


def listed(kind: str, namespace: str | None = None, *, selector: str = "", fields: str = "") -> list[Object]:
    """Return objects of a kind, in all namespaces unless one is named."""
    where = ["--namespace", namespace] if namespace else ["--all-namespaces"]
    if selector:
        where += ["--selector", selector]
    if fields:
        where += ["--field-selector", fields]
    items: list[Object] = json.loads(kubectl("get", kind, *where, "--output=json"))["items"]
    return items


def pods_of(pool: str, namespace: str) -> list[Object]:
    """Return the executor pods of a pool, those that are ending included."""
    return listed("pods", namespace, selector=f"superinfer.dev/pool={pool}")


def delete(kind: str, name: str, namespace: str | None = None, *, wait_s: float | None = None) -> None:
    """Delete an object; with `wait_s` until it is gone."""
    where = ["--namespace", namespace] if namespace else []
    waiting = ["--wait=true", f"--timeout={wait_s:.0f}s"] if wait_s else ["--wait=false"]
    kubectl("delete", kind, name, *where, "--ignore-not-found", *waiting, timeout_s=(wait_s or 30) + 30)


def condition(document: Object | None, kind: str) -> Object:
    """Return a status condition; empty where there is none."""
    found = ((document or {}).get("status") or {}).get("conditions") or ()
    return next((entry for entry in found if entry["type"] == kind), {})


def events(namespace: str, about: str) -> list[Object]:
    """Return the events about one object."""
    return listed("events", namespace, fields=f"involvedObject.name={about}")


def until(
    look: Callable[[], Seen],
    right: Callable[[Seen], object],
    *,
    within_s: float,
    what: str,
    every_s: float = 1.0,
) -> Seen:
    """Look again until what is seen is right, and return it.

    Raises:
        AssertionError: It was not within the time; carries what was seen last.
    """
    deadline = time.monotonic() + within_s
    seen: Seen | None = None
    trouble: Exception | None = None
    while True:
        try:
            seen, trouble = look(), None
            if right(seen):
                return seen
        except ClusterError as error:
            trouble = error
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s:.0f} s: {what}\nlast seen: {_short(trouble or seen)}")
        time.sleep(every_s)


def names(items: Iterable[Object]) -> list[str]:
    """Return the objects' names in order."""
    return sorted(item["metadata"]["name"] for item in items)


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str, indent=1)
    return text if len(text) < 6000 else text[:3000] + "\n...\n" + text[-3000:]
