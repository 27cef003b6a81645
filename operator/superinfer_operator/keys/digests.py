"""The one Secret the ingress reads: digests of the API keys of every labelled Secret. Pure.

An ingress never sees a key that nobody presents to it, and may read no Secret but this one.
"""

from collections.abc import Iterable
from typing import Any

import yaml

from superinfer_core.api.v1alpha1 import labels
from superinfer_kube.informer import Key
from superinfer_operator.reconciling.secrets import opaque_secret
from superinfer_operator.watching.objects import KeysRecord


def keys_text(records: Iterable[KeysRecord]) -> str:
    """The file of all digests; the same for the same keys, whatever their order."""
    entries = []
    for record in sorted(records, key=lambda r: (r.namespace, r.name)):
        for item, digest in record.entries:
            entry: dict[str, Any] = {
                "name": f"{record.namespace}/{record.name}/{item}"[:128],
                "sha256": digest,
                "namespaces": [record.namespace],
                "secret": record.name,
            }
            if record.admin:
                entry["admin"] = True
            entries.append(entry)
    return yaml.safe_dump({"keys": entries}, sort_keys=True)


def keys_secret(text: str, namespace: str) -> dict[str, Any]:
    """The Secret that holds it."""
    return opaque_secret(Key(namespace, labels.API_KEYS_SECRET), {labels.API_KEYS_ITEM: text.encode()})
