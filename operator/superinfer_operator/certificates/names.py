"""Who the certificate of the ingress is for; those of pools have `labels.executor_tls_name`."""

from typing import Final

INGRESS_NAME: Final = "ingress.superinfer.dev"
"""The only name that may submit work to a sidecar."""
