"""The one Secret the ingress reads: digests of the API keys of every labelled Secret. Pure.

An ingress never sees a key that nobody presents to it, and may read no Secret but this one. A Secret holds a
megabyte, and one that is too large is not written at all: no key of anybody could be added, or taken back.
Promises: the file always fits; where not all keys do, namespaces share the room, so that those with few keys
keep them whatever others make, and of a namespace the keys of its oldest Secrets are kept. A key that is in
several Secrets is the oldest's: nobody takes a key over who learns of it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from superinfer_core.api.v1alpha1 import labels
from superinfer_kube.informer import Key
from superinfer_operator.reconciling.secrets import opaque_secret
from superinfer_operator.watching.objects import KeysRecord

MOST_BYTES: Final = 900_000
"""What the API server takes of a Secret, with room for the rest of it."""

_HEAD: Final = '{"keys":[\n'
_TAIL: Final = "\n]}\n"


@dataclass(frozen=True, slots=True)
class KeysFile:
    """The file of digests.

    Attributes:
        text: JSON, which is YAML, too; the same for the same keys, whatever their order.
        left_out: Secrets whose keys had no room, and how many of each.
        taken: Secrets with keys that an older Secret has, too, and how many of each.
    """

    text: str
    left_out: Mapping[KeysRecord, int] = field(default_factory=dict)
    taken: Mapping[KeysRecord, int] = field(default_factory=dict)


def keys_file(records: Iterable[KeysRecord], most_bytes: int = MOST_BYTES) -> KeysFile:
    """The file of all digests there is room for."""
    by_namespace: dict[str, list[tuple[KeysRecord, str]]] = {}
    owners: dict[str, KeysRecord] = {}
    taken: dict[KeysRecord, int] = {}
    for record in sorted(records, key=lambda one: (one.created, one.namespace, one.name)):
        lines = by_namespace.setdefault(record.namespace, [])
        for item, digest in record.entries:
            if owners.setdefault(digest, record) is record:
                lines.append((record, _line(record, item, digest)))
            else:
                taken[record] = taken.get(record, 0) + 1
    needed = {namespace: _bytes(lines) for namespace, lines in by_namespace.items()}
    share = _fair_share(list(needed.values()), most_bytes - len(_HEAD) - len(_TAIL))
    kept: list[str] = []
    left_out: dict[KeysRecord, int] = {}
    for _, lines in sorted(by_namespace.items()):
        room = share
        for record, line in lines:
            room -= len(line) + 2
            if room >= 0:
                kept.append(line)
            else:
                left_out[record] = left_out.get(record, 0) + 1
    return KeysFile(_HEAD + ",\n".join(kept) + _TAIL, left_out, taken)


def keys_secret(text: str, namespace: str) -> dict[str, Any]:
    """The Secret that holds it."""
    return opaque_secret(Key(namespace, labels.API_KEYS_SECRET), {labels.API_KEYS_ITEM: text.encode()})


def _line(record: KeysRecord, item: str, digest: str) -> str:
    entry: dict[str, Any] = {
        "name": f"{record.namespace}/{record.name}/{item}"[:128],
        "sha256": digest,
        "namespaces": [record.namespace],
        "secret": record.name,
    }
    if record.admin:
        entry["admin"] = True
    return json.dumps(entry, sort_keys=True, separators=(",", ":"))


def _bytes(lines: Sequence[tuple[KeysRecord, str]]) -> int:
    return sum(len(line) + 2 for _, line in lines)


def _fair_share(needed: Sequence[int], room: int) -> int:
    """The most that each may take, so that who needs less than that gets all of it."""
    left = room
    for number, need in enumerate(sorted(needed)):
        share = left // (len(needed) - number)
        if need > share:
            return share
        left -= need
    return room
