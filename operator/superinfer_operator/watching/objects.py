"""Facts about what the operator keeps beside pools: objects it made, Secrets of keys, texts. Frozen."""

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from superinfer_core.api.v1alpha1 import labels

_MAX_TEXT_CHARACTERS: Final = 262_144
_OWN_LABELS: Final = (
    labels.APP_NAME_LABEL,
    labels.APP_COMPONENT_LABEL,
    labels.APP_MANAGED_BY_LABEL,
    labels.POOL_LABEL,
)


@dataclass(frozen=True, slots=True)
class MadeObject:
    """A Service or budget the operator made: whether it is still what it should be.

    Attributes:
        digest: of the fields the operator writes.
        owner: UID of its owner.
    """

    namespace: str
    name: str
    digest: str
    owner: str


@dataclass(frozen=True, slots=True)
class SecretRecord:
    """A Secret with its items, which are never logged.

    Attributes:
        managed: it carries our label; others belong to somebody else (cert-manager, say).
        owner: UID of its owner.
    """

    namespace: str
    name: str
    items: Mapping[str, bytes] = field(repr=False)
    managed: bool = False
    owner: str = ""


@dataclass(frozen=True, slots=True)
class KeysRecord:
    """A Secret of API keys, as digests.

    Attributes:
        entries: (item name, SHA-256 of the key), sorted.
        admin: its keys are keys of administrators.
        uid, created: which Secret, and since when, as the API server writes it.
    """

    namespace: str
    name: str
    entries: tuple[tuple[str, str], ...]
    admin: bool
    uid: str = ""
    created: str = ""


@dataclass(frozen=True, slots=True)
class TextRecord:
    """A ConfigMap that pools refer to, or that an ingress publishes counts in."""

    namespace: str
    name: str
    items: Mapping[str, str]


def made_object(document: Mapping[str, Any]) -> MadeObject:
    """A Service or budget, reduced to what can be compared with a desired one."""
    metadata = document["metadata"]
    owners = metadata.get("ownerReferences") or [{}]
    return MadeObject(
        metadata["namespace"], metadata["name"], intent_digest(document), owners[0].get("uid", "")
    )


def intent_digest(document: Mapping[str, Any]) -> str:
    """What the operator wants of a Service or budget, whatever the server or a person adds beside it."""
    spec = document.get("spec") or {}
    found = document["metadata"].get("labels") or {}
    wanted = {
        "labels": [found.get(label) for label in _OWN_LABELS],
        "selector": spec.get("selector"),
        "clusterIP": spec.get("clusterIP"),
        # The server leaves out what is false.
        "publishNotReadyAddresses": bool(spec.get("publishNotReadyAddresses")),
        "maxUnavailable": spec.get("maxUnavailable"),
        "ports": [
            [port.get(name) for name in ("name", "port", "targetPort", "protocol", "appProtocol")]
            for port in spec.get("ports") or ()
        ],
    }
    return hashlib.blake2b(json.dumps(wanted, sort_keys=True).encode(), digest_size=12).hexdigest()


def secret_record(document: Mapping[str, Any]) -> SecretRecord:
    """A Secret with its items decoded; items that are not base64 are left out."""
    metadata = document["metadata"]
    found = metadata.get("labels") or {}
    owners = metadata.get("ownerReferences") or [{}]
    return SecretRecord(
        namespace=metadata["namespace"],
        name=metadata["name"],
        items=_decoded(document),
        managed=found.get(labels.APP_MANAGED_BY_LABEL) == labels.MANAGED_BY_OPERATOR,
        owner=owners[0].get("uid", ""),
    )


def keys_record(document: Mapping[str, Any]) -> KeysRecord:
    """A Secret of API keys; the keys themselves are forgotten at once."""
    metadata = document["metadata"]
    entries = [
        (name, hashlib.sha256(value.strip()).hexdigest())
        for name, value in sorted(_decoded(document).items())
        if value.strip()
    ]
    admin = (metadata.get("annotations") or {}).get(labels.ADMIN_ANNOTATION) == "true"
    return KeysRecord(
        metadata["namespace"],
        metadata["name"],
        tuple(entries),
        admin,
        uid=str(metadata.get("uid") or ""),
        created=str(metadata.get("creationTimestamp") or ""),
    )


def text_record(document: Mapping[str, Any]) -> TextRecord:
    """A ConfigMap's texts; longer ones than any profile or policy are left out."""
    metadata = document["metadata"]
    items = {
        name: text for name, text in (document.get("data") or {}).items() if len(text) <= _MAX_TEXT_CHARACTERS
    }
    return TextRecord(metadata["namespace"], metadata["name"], items)


def _decoded(document: Mapping[str, Any]) -> dict[str, bytes]:
    items = {}
    for name, text in (document.get("data") or {}).items():
        try:
            items[name] = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            continue
    return items
