"""Secrets as the operator writes them, with the label that tells its own from everybody else's. Pure."""

import base64
from collections.abc import Mapping
from typing import Any

from superinfer_core.api.v1alpha1 import labels
from superinfer_kube.informer import Key


def opaque_secret(
    key: Key, items: Mapping[str, bytes], owner: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A Secret with these items, which belongs to `owner` where there is one."""
    metadata: dict[str, Any] = {
        "name": key.name,
        "namespace": key.namespace,
        "labels": {
            labels.APP_NAME_LABEL: labels.APP_NAME,
            labels.APP_MANAGED_BY_LABEL: labels.MANAGED_BY_OPERATOR,
        },
    }
    if owner is not None:
        metadata["ownerReferences"] = [dict(owner)]
    data = {name: base64.b64encode(value).decode() for name, value in sorted(items.items())}
    return {"metadata": metadata, "type": "Opaque", "data": data}
