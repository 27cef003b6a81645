"""Who a certificate is for: the DNS names that peers check. No pod ever resolves them."""

from typing import Final

INGRESS_NAME: Final = "ingress.superinfer.dev"
"""The only name that may submit work to a sidecar."""

_POOLS: Final = "pool.superinfer.dev"


def executor_name(namespace: str, pool: str) -> str:
    """The name of every sidecar of one pool; only they may exchange checkpoints."""
    return f"{pool}.{namespace}.{_POOLS}"
