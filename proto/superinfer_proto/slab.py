"""KV blocks in shared memory between an engine and its sidecar: one file of equal slots, one writer.

Promise: a slot is valid only while its header carries a sequence number, which is written after everything
else and taken away before anything else; a writer killed at any instant leaves a slot that says nothing,
never one that says something wrong. A reader checks the sequence before and after it reads, and the seal,
which binds content hash, layout and payload. The file outlives its writer. Nothing here waits; several
threads of the writing process need a lock of their own.

    header page | counters | slot headers | journal ring | payloads

The journal tells readers what happened in order; one that falls behind further than the ring scans the slots.
"""

import fcntl
import hashlib
import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple

import xxhash

ENGINE_SLAB: Final = "engine.slab"
"""In an executor's directory: written by the engine, read by the sidecar."""
STORE_SLAB: Final = "store.slab"
"""Beside it: written by the sidecar, read by the engine."""
MAGIC: Final = b"SISLAB03"
PAGE: Final = 4096
MOST_HASH_BYTES: Final = 32
MOST_SLOTS: Final = 1 << 20
MOST_JOURNAL: Final = 1 << 17
_HEADER: Final = struct.Struct(
    "<8sQQQQ64s"
)  # magic, slots, payload bytes, journal entries, generation, layout
_HEAD_AT: Final = 256
_COUNTERS_AT: Final = 512
_SLOT: Final = struct.Struct("<QQQIBxH32s")  # sequence, seal, stream, ordinal, hash length, tail tokens, hash
_SLOT_BYTES: Final = 64
_ENTRY: Final = struct.Struct("<QQQIII4x")  # sequence, stream, slot sequence, slot, ordinal, kind
_NUMBER: Final = struct.Struct("<Q")
_MASK: Final = (1 << 64) - 1
_POPULATE: Final = getattr(mmap, "MAP_POPULATE", 0)


class SlabInvalid(Exception):
    """The file is not a slab, or not one that can be used here."""


class Happened(IntEnum):
    """What a journal entry says."""

    STORED = 1
    """A slot has a new block, first needed by the stream."""
    REFERENCED = 2
    """A stream needs a block that was there already."""


class Counter(IntEnum):
    """What the writing engine counts, for its sidecar's metrics."""

    SAVED_BLOCKS = 0
    SAVED_NS = 1
    LOADED_BLOCKS = 2
    LOAD_NS = 3
    LOAD_FAILURES = 4
    DEFERRED_BLOCKS = 5
    NO_ROOM_BLOCKS = 6
    EVICTED_BLOCKS = 7
    ERASED_BLOCKS = 8


@dataclass(frozen=True, slots=True)
class SlabShape:
    """What a slab is made for.

    Attributes:
        layout: what the bytes of a payload mean; another layout is foreign.
        payload_bytes: of every block.
        slots: how many blocks there is room for.
    """

    layout: str
    payload_bytes: int
    slots: int

    @classmethod
    def of_memory(cls, layout: str, payload_bytes: int, memory_bytes: int) -> "SlabShape":
        """As many slots as fit; raises SlabInvalid where not even one does."""
        per_slot = _rounded(payload_bytes) + _SLOT_BYTES + 2 * _ENTRY.size
        slots = min(MOST_SLOTS, (memory_bytes - 2 * PAGE) // per_slot) if payload_bytes > 0 else 0
        if slots < 1:
            raise SlabInvalid(
                f"{memory_bytes} bytes hold no block of {payload_bytes} bytes: give more memory"
            )
        return cls(layout, payload_bytes, slots)

    @property
    def journal_entries(self) -> int:
        """Length of the ring."""
        return min(MOST_JOURNAL, max(64, 2 * self.slots))


class Slot(NamedTuple):
    """A valid slot's header; `tail_tokens`: so many tokens of a block that was not full, 0 of a whole one."""

    sequence: int
    seal: int
    stream: int
    ordinal: int
    block_hash: bytes
    tail_tokens: int


class Entry(NamedTuple):
    """One line of the journal."""

    sequence: int
    stream: int
    slot_sequence: int
    slot: int
    ordinal: int
    kind: int


def seal_of(layout: str, block_hash: bytes, payload: memoryview | bytes) -> int:
    """Binds a payload to what it is said to be; a block whose seal differs is never used."""
    digest = xxhash.xxh3_64_intdigest(payload)
    return xxhash.xxh3_64_intdigest(b"%s\0%s" % (layout.encode(), block_hash), seed=digest) or 1


def tail_name(before: bytes, token_ids: Sequence[int]) -> bytes:
    """The content name of a block that is not full: from its tokens, and the name of what comes before it.

    That one, the engine's own, covers the tenant's salt, and so does this.
    """
    tokens = b"".join(token.to_bytes(8, "little") for token in token_ids)
    return hashlib.sha256(b"tail\0%d\0%s%s" % (len(before), before, tokens)).digest()


def stream_of(request_id: str, choice: int) -> int:
    """The number of one choice of one request, the same in every process and for every attempt."""
    return xxhash.xxh3_64_intdigest(f"{request_id}/{choice}".encode())


def has_writer(path: Path) -> bool:
    """Whether a process writes the slab at `path`, or might, where it cannot be opened; maps nothing."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


class Slab:
    """One mapped slab. `create` and `adopt` make the writer's mapping, `open` a reader's."""

    def __init__(self, path: Path, file: int, *, writable: bool) -> None:
        self.path = path
        self._file = file
        size = os.fstat(file).st_size
        if size < 2 * PAGE:
            raise SlabInvalid(f"{path} is too short to be a slab ({size} bytes)")
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        # A writer's is mapped whole now: touching every page first would cost ten times the copy, in the
        # middle of a step. A reader's pages come sixteen at a time; and what is mapped has to be unmapped
        # when its process dies, before its sockets close and its death is known.
        flags = mmap.MAP_SHARED | (_POPULATE if writable else 0)
        self._map = mmap.mmap(file, size, flags, protection)
        self.memory = memoryview(self._map)
        magic, slots, payload_bytes, entries, self.generation, layout = _HEADER.unpack_from(self._map, 0)
        if magic != MAGIC:
            raise SlabInvalid(f"{path} is no slab of this version")
        try:
            self.shape = SlabShape(layout.rstrip(b"\0").decode(), payload_bytes, slots)
        except UnicodeDecodeError as error:
            raise SlabInvalid(f"{path}: its layout is unreadable") from error
        if not 1 <= slots <= MOST_SLOTS or entries != self.shape.journal_entries:
            raise SlabInvalid(f"{path}: {slots} slots with {entries} journal entries make no sense")
        self._entries = entries
        self._slots_at = 2 * PAGE
        self._journal_at = self._slots_at + _SLOT_BYTES * slots
        self._stride = _rounded(payload_bytes)
        self._payloads_at = _rounded(self._journal_at + entries * _ENTRY.size)
        if self._payloads_at + self._stride * slots > size:
            raise SlabInvalid(f"{path} is cut short: {size} bytes")
        self.inode = os.fstat(file).st_ino

    # --- making one

    @classmethod
    def create(cls, path: Path, shape: SlabShape, *, generation: int) -> "Slab":
        """A new, empty slab at `path`, whatever was there; its memory is taken now and cannot lack later.

        Raises SlabInvalid where the file system has no room for it.
        """
        layout = shape.layout.encode()
        if len(layout) > 64:
            raise SlabInvalid(f"layout {shape.layout!r} is longer than 64 bytes")
        size = _rounded(2 * PAGE + _SLOT_BYTES * shape.slots + shape.journal_entries * _ENTRY.size)
        size += _rounded(shape.payload_bytes) * shape.slots
        path.parent.mkdir(parents=True, exist_ok=True)
        made = path.with_name(f".{path.name}.{os.getpid()}")
        file = os.open(made, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(file, 0, size)
            header = _HEADER.pack(
                MAGIC, shape.slots, shape.payload_bytes, shape.journal_entries, generation, layout
            )
            os.pwrite(file, header, 0)
            slab = cls(path, file, writable=True)
            made.rename(path)
        except OSError as error:
            os.close(file)
            made.unlink(missing_ok=True)
            raise SlabInvalid(f"no room for {size >> 20} MiB in {path.parent}: {error.strerror}") from error
        return slab

    @classmethod
    def open(cls, path: Path, *, writable: bool = False) -> "Slab":
        """Map what is there; raises OSError or SlabInvalid."""
        file = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
        try:
            return cls(path, file, writable=writable)
        except (SlabInvalid, OSError, ValueError, struct.error) as error:
            os.close(file)
            if isinstance(error, SlabInvalid | OSError):
                raise
            raise SlabInvalid(f"{path}: {error}") from error

    @classmethod
    def adopt(cls, path: Path, shape: SlabShape, *, generation: int) -> "Slab":
        """The slab an earlier process left, if it has this very shape and nobody writes it; else a new one.

        The result is locked for this process: one that dies lets go of it.
        """
        try:
            slab = cls.open(path, writable=True)
        except (OSError, SlabInvalid):
            slab = cls.create(path, shape, generation=generation)
        else:
            if slab.shape != shape or not slab.lock():
                slab.close()
                slab = cls.create(path, shape, generation=generation)
        if not slab.lock():
            raise SlabInvalid(f"{path} is written by another process: give every executor its own directory")
        # A writer that died between a slot and its entry: no sequence may be given twice.
        slab.catch_up()
        return slab

    def catch_up(self) -> None:
        """Let the journal go on after the newest slot."""
        newest = max((header.sequence for _, header in self.scan()), default=0)
        if newest > self.head:
            _NUMBER.pack_into(self._map, _HEAD_AT, newest)

    def lock(self) -> bool:
        """Become the one writer; False while another process is. Held until `close`, or death."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Unmap, where nobody holds a view any more; the file stays."""
        try:
            self.memory.release()
            self._map.close()
        except BufferError:
            pass  # a view is still held: the mapping goes with it
        os.close(self._file)

    # --- slots

    def payload(self, slot: int) -> memoryview:
        """The bytes of a slot, valid or not."""
        start = self._payloads_at + slot * self._stride
        return self.memory[start : start + self.shape.payload_bytes]

    def read(self, slot: int) -> Slot | None:
        """A slot's header, or None where it holds nothing."""
        sequence, seal, stream, ordinal, length, tail_tokens, block_hash = _SLOT.unpack_from(
            self._map, self._slots_at + slot * _SLOT_BYTES
        )
        if sequence == 0 or not 0 < length <= MOST_HASH_BYTES:
            return None
        return Slot(sequence, seal, stream, ordinal, block_hash[:length], tail_tokens)

    def holds(self, slot: int, sequence: int) -> bool:
        """Whether the slot still has what it had when it was given this sequence."""
        (found,) = _NUMBER.unpack_from(self._map, self._slots_at + slot * _SLOT_BYTES)
        return bool(found == sequence != 0)

    def copy_of(self, slot: int, sequence: int) -> tuple[Slot, bytes] | None:
        """Header and payload of a slot, if it has that sequence before and after and its seal is right."""
        header = self.read(slot)
        if header is None or header.sequence != sequence:
            return None
        payload = bytes(self.payload(slot))
        if seal_of(self.shape.layout, header.block_hash, payload) != header.seal:
            return None
        return (header, payload) if self.holds(slot, sequence) else None

    def clear(self, slot: int) -> None:
        """The slot holds nothing from now on; before its payload is touched."""
        _NUMBER.pack_into(self._map, self._slots_at + slot * _SLOT_BYTES, 0)

    def erase(self, slot: int) -> None:
        """Clear the slot and overwrite its payload."""
        self.clear(slot)
        self.payload(slot)[:] = bytes(self.shape.payload_bytes)

    def publish(
        self, slot: int, block_hash: bytes, seal: int, stream: int, ordinal: int, *, tail_tokens: int = 0
    ) -> int:
        """Make a cleared slot valid, its payload being there; answers its sequence."""
        if not 0 < len(block_hash) <= MOST_HASH_BYTES:
            raise SlabInvalid(f"a block hash has 1 to {MOST_HASH_BYTES} bytes, got {len(block_hash)}")
        at, sequence = self._slots_at + slot * _SLOT_BYTES, self.head + 1
        _SLOT.pack_into(self._map, at, 0, seal, stream, ordinal, len(block_hash), tail_tokens, block_hash)
        _NUMBER.pack_into(self._map, at, sequence)
        self._append(sequence, stream, sequence, slot, ordinal, Happened.STORED)
        return sequence

    # --- journal

    @property
    def head(self) -> int:
        """Sequence of the newest entry; 0 before the first."""
        (head,) = _NUMBER.unpack_from(self._map, _HEAD_AT)
        return int(head)

    def note(
        self, kind: Happened, stream: int, *, slot: int = 0, slot_sequence: int = 0, ordinal: int = 0
    ) -> None:
        """Write an entry that changes no slot."""
        self._append(self.head + 1, stream, slot_sequence, slot, ordinal, kind)

    def entries(self, since: int) -> tuple[list[Entry], bool]:
        """Entries after `since`, oldest first, and whether older ones than these were missed."""
        head = self.head
        first = max(since + 1, head - self._entries + 1, 1)
        found: list[Entry] = []
        for sequence in range(first, head + 1):
            at = self._journal_at + (sequence % self._entries) * _ENTRY.size
            entry = Entry(*_ENTRY.unpack_from(self._map, at))
            if entry.sequence != sequence or entry.slot >= self.shape.slots:
                return found, True  # overwritten meanwhile, or damaged
            found.append(entry)
        return found, first > since + 1

    def scan(self) -> Iterator[tuple[int, Slot]]:
        """Every valid slot."""
        for number in range(self.shape.slots):
            header = self.read(number)
            if header is not None:
                yield number, header

    def _append(
        self, sequence: int, stream: int, slot_sequence: int, slot: int, ordinal: int, kind: int
    ) -> None:
        at = self._journal_at + (sequence % self._entries) * _ENTRY.size
        _ENTRY.pack_into(self._map, at, sequence, stream, slot_sequence, slot, ordinal, kind)
        _NUMBER.pack_into(self._map, _HEAD_AT, sequence)

    # --- counters

    def count(self, counter: Counter, amount: int = 1) -> None:
        """Add to a counter of the writer."""
        at = _COUNTERS_AT + 8 * counter
        (value,) = _NUMBER.unpack_from(self._map, at)
        _NUMBER.pack_into(self._map, at, (value + amount) & _MASK)

    def counted(self, counter: Counter) -> int:
        """What the writer has counted."""
        (value,) = _NUMBER.unpack_from(self._map, _COUNTERS_AT + 8 * counter)
        return int(value)


def _rounded(size: int) -> int:
    return -(-size // PAGE) * PAGE
