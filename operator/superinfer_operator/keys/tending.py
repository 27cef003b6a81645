"""Keeps the ingress' Secret of key digests equal to the labelled Secrets of users. One task."""

from collections.abc import Mapping
from typing import Final

from superinfer_core.api.v1alpha1.labels import API_KEYS_ITEM, API_KEYS_SECRET
from superinfer_kube.informer import Key
from superinfer_kube.resources import SECRETS
from superinfer_operator.keys.digests import KeysFile, keys_file, keys_secret
from superinfer_operator.reconciling.clock import Now
from superinfer_operator.reconciling.events import About, EventType, Happening
from superinfer_operator.reconciling.recording import Recorder
from superinfer_operator.reconciling.writing import Writer
from superinfer_operator.watching.cluster import Cluster
from superinfer_operator.watching.objects import KeysRecord

_TOLD: Final = 20
"""Events of one round at most; the metric counts them all."""


class KeysTender:
    """Writes the Secret where it differs, and tells whose keys have no room in it."""

    def __init__(self, cluster: Cluster, writer: Writer, recorder: Recorder) -> None:
        self._cluster = cluster
        self._writer = writer
        self._recorder = recorder
        self._records: tuple[KeysRecord, ...] | None = None
        self._file = KeysFile("")

    @property
    def left_out(self) -> Mapping[KeysRecord, int]:
        """Secrets whose keys have no room, and how many of each."""
        return self._file.left_out

    async def tend(self, now: Now) -> None:
        """Write it if it is not what it should be."""
        records = tuple(self._cluster.keys.objects.values())
        if records != self._records:
            before = {(one.namespace, one.name) for one in self._file.left_out}
            self._records, self._file = records, keys_file(records)
            await self._tell([one for one in self.left_out if (one.namespace, one.name) not in before], now)
        namespace, text = self._cluster.namespace, self._file.text
        known = self._cluster.secrets.objects.get(Key(namespace, API_KEYS_SECRET))
        if known is None or known.items.get(API_KEYS_ITEM) != text.encode():
            await self._writer.apply(SECRETS, keys_secret(text, namespace))

    async def _tell(self, records: list[KeysRecord], now: Now) -> None:
        for record in records[:_TOLD]:
            note = (
                f"{self.left_out[record]} of its {len(record.entries)} API keys do not work: all keys of the "
                f"cluster together do not fit, and namespace {record.namespace} has more than its share; "
                "delete keys that nobody uses"
            )
            about = About("Secret", record.namespace, record.name, record.uid, api_version="v1")
            happening = Happening(about, EventType.WARNING, "TooManyKeys", "LeaveOutKeys", note)
            await self._recorder.record(happening, now)
