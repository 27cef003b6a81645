"""A collection of the cluster, kept up to date for as long as somebody reads it.

Promises: the first objects are followed by one SYNCED; from then on every change comes once, in order per
object. It never goes silent: bookmarks prove that the stream lives, and one that is quiet for longer is
opened again from where it was. A version that is too old is a new listing, told as the difference to what was
known, deletions included. While the API server is away what is known stays, `trouble` says why and since
when, and connecting is tried again with growing, scattered pauses. Nothing is ever polled.
Concurrency: one task reads `changes()`; `objects` and `trouble` may be read by any task of the event loop.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from time import monotonic
from typing import Any, Final, Generic, TypeVar

import msgspec
from typing_extensions import override

from superinfer_kube.client import Document, KubeClient, selected
from superinfer_kube.errors import Forbidden, Gone, KubeError, NotFound, Unavailable, error_from_status
from superinfer_kube.nesting import decode_json
from superinfer_kube.resources import Resource

_log = logging.getLogger("superinfer.kube")

T = TypeVar("T")

_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 8.0
_SHORT_STREAM_S: Final = 1.0
"""A stream that ended sooner than this is a failure, whatever its end looked like."""
_PER_TURN: Final = 16


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Which object; the namespace is "" for kinds that have none."""

    namespace: str
    name: str

    @override
    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class ChangeKind(StrEnum):
    """What happened to an object; SYNCED is about all of them."""

    ADDED = "Added"
    MODIFIED = "Modified"
    DELETED = "Deleted"
    SYNCED = "Synced"
    """Everything that existed has been told."""


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """One change.

    Attributes:
        kind: what happened.
        key: to which object.
        object: as parsed; the last known one where it was deleted; None where it could not be parsed.
        document: as the server sent it; empty where a deletion was found by listing.
        problem: why it could not be parsed.
        former: what was known of it before; None where it is new or could not be parsed.
    """

    kind: ChangeKind
    key: Key = Key("", "")
    object: T | None = None
    document: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""
    former: T | None = None

    @property
    def matters(self) -> bool:
        """Whether anything of what was parsed changed; a status somebody writes often does not."""
        return self.kind is not ChangeKind.MODIFIED or bool(self.problem) or self.object != self.former


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why the collection may be out of date."""

    since_s: float
    """On the monotonic clock."""
    why: str
    error: KubeError


@dataclass(frozen=True, slots=True)
class Patience:
    """How long is waited for what; the defaults are for a real API server, which bookmarks every minute."""

    silence_s: float = 100.0
    """A stream without a byte for so long is opened again."""
    stream_s: tuple[int, int] = (300, 600)
    """The server ends a stream after a time between these, so that its replicas share the load anew."""
    first_pause_s: float = _FIRST_PAUSE_S
    longest_pause_s: float = _LONGEST_PAUSE_S


class Informer(Generic[T]):
    """One collection."""

    def __init__(
        self,
        client: KubeClient,
        resource: Resource,
        parse: Callable[[Document], T],
        *,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        patience: Patience | None = None,
    ) -> None:
        self.resource = resource
        self.synced = asyncio.Event()
        """Set once everything that existed was told."""
        self.heard_s = monotonic()
        """When the server last said something, bookmarks included."""
        self.relists = 0
        self._client = client
        self._parse = parse
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self._patience = patience or Patience()
        self._objects: dict[Key, T] = {}
        self._versions: dict[Key, str] = {}
        self._version = ""
        self._trouble: Trouble | None = None

    @property
    def objects(self) -> Mapping[Key, T]:
        """What is known, by key; those that could not be parsed are missing."""
        return self._objects

    @property
    def trouble(self) -> Trouble | None:
        """Why nothing is heard at the moment; None while the watch stands."""
        return self._trouble

    async def changes(self) -> AsyncIterator[Change[T]]:
        """Every change, for ever; ends only with the task that reads it."""
        pause_s = self._patience.first_pause_s
        hurried = False
        while True:
            started_s = monotonic()
            orderly = True  # ended by the server's own time, or too old: nothing to wait for
            try:
                if not self._version:
                    async for change in self._list():
                        yield change
                async for change in self._watch():
                    yield change
                error: KubeError = Unavailable("the stream ended at once", what=f"watch {self._words}")
            except Gone as gone:
                _log.info("%s: %s; listing anew", self._words, gone.message)
                self._version, error = "", gone
            except KubeError as failed:
                orderly, error = False, failed
            lasted = monotonic() - started_s >= _SHORT_STREAM_S
            if orderly and (lasted or not hurried):
                hurried = not lasted
                pause_s = self._patience.first_pause_s
                continue
            if self.heard_s >= started_s:
                pause_s = self._patience.first_pause_s
            await self._pause(pause_s, error)
            pause_s = min(self._patience.longest_pause_s, pause_s * 2)

    async def _list(self) -> AsyncIterator[Change[T]]:
        listing = await self._client.list(
            self.resource, self._namespace, labels=self._labels, fields=self._fields
        )
        self._heard()
        self.relists += 1
        missing = set(self._versions)
        for number, document in enumerate(listing.items):
            if number % _PER_TURN == _PER_TURN - 1:
                await asyncio.sleep(0)  # thousands are parsed here, and others have streams to serve
            key = key_of(document)
            missing.discard(key)
            for change in self._take(ChangeKind.MODIFIED, key, document):
                yield change
        for key in sorted(missing):
            for change in self._take(ChangeKind.DELETED, key, {}):
                yield change
        self._version = listing.resource_version
        if not self.synced.is_set():
            self.synced.set()
            yield Change(ChangeKind.SYNCED)

    async def _watch(self) -> AsyncIterator[Change[T]]:
        query = selected(self._labels, self._fields) | {
            "resourceVersion": self._version,
            "timeoutSeconds": str(random.randint(*self._patience.stream_s)),
        }
        silence_s = self._patience.silence_s
        async with self._client.stream(
            self.resource, self._namespace, query=query, silence_s=silence_s
        ) as lines:
            self._heard()
            async for line in lines:
                self._heard()
                kind, document = _event(line, self._words)
                self._version = document["metadata"].get("resourceVersion", self._version)
                if kind is not None:
                    for change in self._take(kind, key_of(document), document):
                        yield change

    def _take(self, kind: ChangeKind, key: Key, document: Document) -> Iterator[Change[T]]:
        """What an event means beside what is known; nothing where it is known already."""
        if kind is ChangeKind.DELETED:
            known = self._versions.pop(key, None) is not None
            before = self._objects.pop(key, None)
            if known:
                yield Change(ChangeKind.DELETED, key, before, document, former=before)
            return
        version = document["metadata"].get("resourceVersion", "")
        former = self._versions.get(key)
        if former is not None and former == version:
            return
        self._versions[key] = version
        before = self._objects.get(key)
        kind = ChangeKind.ADDED if former is None else ChangeKind.MODIFIED
        try:
            parsed = self._parse(document)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            _log.warning("%s %s cannot be read: %s", self.resource.plural, key, error)
            self._objects.pop(key, None)
            yield Change(kind, key, None, document, problem=str(error), former=before)
            return
        self._objects[key] = parsed
        yield Change(kind, key, parsed, document, former=before)

    def _heard(self) -> None:
        self.heard_s = monotonic()
        if self._trouble is not None:
            away_s = self.heard_s - self._trouble.since_s
            _log.info("%s: heard again after %.1f s", self._words, away_s)
            self._trouble = None

    async def _pause(self, pause_s: float, error: KubeError) -> None:
        why = str(error)
        if self._trouble is None or type(self._trouble.error) is not type(error):
            since_s = monotonic() if self._trouble is None else self._trouble.since_s
            level = logging.ERROR if isinstance(error, Forbidden | NotFound) else logging.WARNING
            _log.log(level, "%s: not heard, trying again: %s", self._words, why)
            self._trouble = Trouble(since_s, why, error)
        asked_s = error.retry_after_s if isinstance(error, Unavailable) else 0.0
        await asyncio.sleep(max(asked_s, pause_s) * (0.5 + random.random()))

    @property
    def _words(self) -> str:
        return f"{self.resource.plural} of {self._namespace or 'the cluster'}"


def key_of(document: Mapping[str, Any]) -> Key:
    """Namespace and name of an object."""
    metadata = document["metadata"]
    return Key(metadata.get("namespace") or "", metadata["name"])


_KINDS: Final[Mapping[str, ChangeKind | None]] = {
    "ADDED": ChangeKind.ADDED,
    "MODIFIED": ChangeKind.MODIFIED,
    "DELETED": ChangeKind.DELETED,
    "BOOKMARK": None,
}


def _event(line: bytes, what: str) -> tuple[ChangeKind | None, Document]:
    """Kind (None for a bookmark) and object of one line of a watch."""
    try:
        event = decode_json(line)
        document = event["object"]
        if event["type"] == "ERROR":
            raise error_from_status(int(document.get("code", 500)), document, what=f"watch {what}")
        if not isinstance(document["metadata"], dict):
            raise TypeError
        return _KINDS[event["type"]], document
    except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise Unavailable(f"not a watch event: {line[:200]!r}", what=f"watch {what}") from error
