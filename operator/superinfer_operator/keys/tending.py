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
    """Writes the Secret where it differs, and tells whose keys are not in it."""

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
            before, self._records, self._file = self._file, records, keys_file(records)
            await self._tell_of_room(_news(before.left_out, self.left_out), now)
            await self._tell_of_owners(_news(before.taken, self._file.taken), now)
        namespace, text = self._cluster.namespace, self._file.text
        known = self._cluster.secrets.objects.get(Key(namespace, API_KEYS_SECRET))
        if known is None or known.items.get(API_KEYS_ITEM) != text.encode():
            await self._writer.apply(SECRETS, keys_secret(text, namespace))

    async def _tell_of_room(self, records: list[KeysRecord], now: Now) -> None:
        for record in records[:_TOLD]:
            note = (
                f"{self.left_out[record]} of its {len(record.entries)} API keys do not work: all keys of the "
                f"cluster together do not fit, and namespace {record.namespace} has more than its share; "
                "delete keys that nobody uses"
            )
            await self._warn(record, "TooManyKeys", note, now)

    async def _tell_of_owners(self, records: list[KeysRecord], now: Now) -> None:
        for record in records[:_TOLD]:
            note = (
                f"{self._file.taken[record]} of its {len(record.entries)} API keys are keys of an older "
                "Secret, and stay that one's; make keys of its own for this one"
            )
            await self._warn(record, "KeysTaken", note, now)

    async def _warn(self, record: KeysRecord, reason: str, note: str, now: Now) -> None:
        about = About("Secret", record.namespace, record.name, record.uid, api_version="v1")
        await self._recorder.record(Happening(about, EventType.WARNING, reason, "LeaveOutKeys", note), now)


def _news(before: Mapping[KeysRecord, int], after: Mapping[KeysRecord, int]) -> list[KeysRecord]:
    """Secrets that were not told of yet."""
    told = {(one.namespace, one.name) for one in before}
    return [one for one in after if (one.namespace, one.name) not in told]
