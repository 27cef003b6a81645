"""Keeps the ingress' Secret of key digests equal to the labelled Secrets of users. One task."""

from superinfer_core.api.v1alpha1.labels import API_KEYS_ITEM, API_KEYS_SECRET
from superinfer_kube.informer import Key
from superinfer_kube.resources import SECRETS
from superinfer_operator.keys.digests import keys_secret, keys_text
from superinfer_operator.reconciling.writing import Writer
from superinfer_operator.watching.cluster import Cluster


class KeysTender:
    """Writes the Secret where it differs."""

    def __init__(self, cluster: Cluster, writer: Writer) -> None:
        self._cluster = cluster
        self._writer = writer

    async def tend(self) -> None:
        """Write it if it is not what it should be."""
        namespace = self._cluster.namespace
        text = keys_text(self._cluster.keys.objects.values())
        known = self._cluster.secrets.objects.get(Key(namespace, API_KEYS_SECRET))
        if known is None or known.items.get(API_KEYS_ITEM) != text.encode():
            await self._writer.apply(SECRETS, keys_secret(text, namespace))
