"""API keys: hashed at rest, compared in constant time, each bound to namespaces and a Secret's name.

Two forms are stored. `sha256` is for generated keys (256 random bits need no slow hash). `scrypt` is for keys
people chose; it costs tens of milliseconds, so such a key carries a public id in front (`id.secret`), only
the entry of that id is ever tried, off the event loop, one at a time, and a success is remembered.
A key is shown once, when it is made; neither it nor its hash is ever logged.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from superinfer_core.words import shown
from superinfer_core.yaml_text import NotYaml, load_yaml
from superinfer_ingress.small_file import read_small_text

_PREFIX: Final = "sk-si-"
_LONGEST_KEY: Final = 512
_REMEMBERED: Final = 4096
_SCRYPT_N, _SCRYPT_R, _SCRYPT_P = 2**14, 8, 1


class KeysInvalid(Exception):
    """A keys file cannot be used; names the entry and the field, never a hash."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What a presented key may do.

    Attributes:
        name: for logs; not secret.
        namespaces: whose contracts its bare contract ids mean.
        secret: name of the Secret it belongs to (a contract's apiKeySecretRef), or None.
        admin: may read and change contracts.
        admin_of: of these namespaces alone; None for every one.
    """

    name: str
    namespaces: tuple[str, ...]
    secret: str | None
    admin: bool
    admin_of: frozenset[str] | None = None

    def administers(self, namespace: str) -> bool:
        """Whether it may read and change the contracts of a namespace."""
        return self.admin and (self.admin_of is None or namespace in self.admin_of)

    def confined(self, home: str) -> "ApiKey":
        """The same in a cluster, where anybody may call a key of the own namespace an administrator's.

        Only keys of `home`, the namespace of the installation, are administrators' of every namespace.
        """
        if not self.admin or home in self.namespaces:
            return self
        return replace(self, admin_of=frozenset(self.namespaces))


class _Entry(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", hide_input_in_errors=True
    )

    name: Annotated[str, Field(min_length=1, max_length=128)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    scrypt: (
        Annotated[str, Field(pattern=r"^\d{1,8}\$\d{1,3}\$\d{1,3}\$[0-9a-f]{16,128}\$[0-9a-f]{64}$")] | None
    ) = None
    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")] | None = None
    namespace: str | None = None
    namespaces: tuple[str, ...] = ()
    secret: str | None = None
    admin: bool = False

    @model_validator(mode="after")
    def _one_hash(self) -> Self:
        if (self.sha256 is None) == (self.scrypt is None):
            msg = "give exactly one of sha256 and scrypt"
            raise ValueError(msg)
        if self.scrypt is not None and self.id is None:
            msg = "a scrypt key needs an id: clients send id.secret"
            raise ValueError(msg)
        return self

    @property
    def api_key(self) -> ApiKey:
        own = (self.namespace,) if self.namespace is not None else ()
        return ApiKey(self.name, tuple(dict.fromkeys(own + self.namespaces)), self.secret, self.admin)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    keys: tuple[_Entry, ...] = ()


class KeyRing:
    """The known keys. Replaced as a whole when the file changes; safe to read at any time."""

    def __init__(self, entries: tuple[_Entry, ...] = (), home: str | None = None) -> None:
        self._home = home
        self._by_digest = {bytes.fromhex(e.sha256): self._key(e) for e in entries if e.sha256 is not None}
        self._slow = {e.id: e for e in entries if e.scrypt is not None}
        self._remembered: dict[bytes, ApiKey] = {}
        self._one_at_a_time = asyncio.Lock()

    def _key(self, entry: _Entry) -> ApiKey:
        return entry.api_key if self._home is None else entry.api_key.confined(self._home)

    def __len__(self) -> int:
        """How many keys are known."""
        return len(self._by_digest) + len(self._slow)

    async def find(self, presented: str) -> ApiKey | None:
        """The key that was presented, or None. Never raises, whatever was presented."""
        if not presented or len(presented) > _LONGEST_KEY:
            return None
        raw = presented.encode("utf-8", "replace")
        digest = hashlib.sha256(raw).digest()
        # Indexed by a hash of the secret: what its timing tells cannot be steered without the secret.
        # The comparison that decides is constant-time all the same.
        for known in (self._by_digest, self._remembered):
            found = known.get(digest)
            if found is not None and any(hmac.compare_digest(digest, one) for one in known if one == digest):
                return found
        entry = self._slow.get(presented.partition(".")[0])
        if entry is None:
            return None
        async with self._one_at_a_time:
            matches = await asyncio.to_thread(_scrypt_matches, entry.scrypt or "", raw)
        if not matches:
            return None
        if len(self._remembered) >= _REMEMBERED:
            self._remembered.clear()
        self._remembered[digest] = self._key(entry)
        return self._remembered[digest]


def load_keys(path: Path) -> KeyRing:
    """Read a keys file.

    Raises:
        KeysInvalid: it cannot be read, or an entry is wrong.
    """
    return read_keys(_text_of(path), str(path))


def read_keys(text: str, where: str, *, home: str | None = None) -> KeyRing:
    """The keys of a document.

    Args:
        text: the document.
        where: it is from, named in errors.
        home: in a cluster, the namespace of the installation; see `ApiKey.confined`.

    Raises:
        KeysInvalid: it is no YAML, or an entry is wrong.
    """
    return KeyRing(_entries(text, where), home)


def _entries(text: str, where: str) -> tuple[_Entry, ...]:
    try:
        document = load_yaml(text) or {}
        if not isinstance(document, dict):
            msg = f"{where}: is no keys file; it begins with `keys:` (`superinfer keys create` writes one)"
            raise KeysInvalid(msg)
        return _File.model_validate(document).keys
    except ValidationError as error:
        raise KeysInvalid(_wrong(where, error)) from None
    except NotYaml as error:
        msg = f"{where}: cannot be read as YAML: {error}"
        raise KeysInvalid(msg) from None


def new_key(
    name: str, *, namespaces: tuple[str, ...] = (), secret: str | None = None, admin: bool = False
) -> tuple[str, dict[str, object]]:
    """A fresh key to show once, and the entry to store."""
    plain = _PREFIX + secrets.token_urlsafe(32)
    entry: dict[str, object] = {"name": name, "sha256": hashlib.sha256(plain.encode()).hexdigest()}
    if namespaces:
        entry["namespaces"] = list(namespaces)
    if secret is not None:
        entry["secret"] = secret
    if admin:
        entry["admin"] = True
    return plain, entry


def scrypt_entry(
    name: str, key_id: str, chosen: str, *, namespaces: tuple[str, ...] = ()
) -> dict[str, object]:
    """The entry for a key somebody chose; clients send `key_id.chosen`."""
    salt = secrets.token_bytes(16)
    digest = _scrypt(f"{key_id}.{chosen}".encode(), salt, _SCRYPT_N, _SCRYPT_R, _SCRYPT_P)
    stored = f"{_SCRYPT_N}${_SCRYPT_R}${_SCRYPT_P}${salt.hex()}${digest.hex()}"
    return {"name": name, "id": key_id, "scrypt": stored, "namespaces": list(namespaces)}


def add_key(path: Path, entry: dict[str, object]) -> None:
    """Append an entry to a keys file, creating it for its owner only.

    Raises:
        KeysInvalid: the file or the entry is not usable; the file is left as it was.
    """
    try:
        _Entry.model_validate(entry)
    except ValidationError as error:
        raise KeysInvalid(_wrong("key", error)) from None
    with _alone(path):
        if path.exists():
            load_keys(path)
            document = load_yaml(_text_of(path)) or {}
        else:
            document = {}
        entries = [*document.get("keys", []), entry]
        if any(other.get("name") == entry["name"] for other in entries[:-1]):
            msg = f"{path}: a key named {shown(entry['name'])} is there already; choose another name"
            raise KeysInvalid(msg)
        _write(path, entries)


def listed_keys(path: Path) -> tuple[ApiKey, ...]:
    """What each key of a file may do, in the order of the file.

    Raises:
        KeysInvalid: it cannot be read, or an entry is wrong.
    """
    return tuple(entry.api_key for entry in _entries(_text_of(path), str(path)))


def remove_key(path: Path, name: str) -> None:
    """Take the key of that name out of a file.

    Raises:
        KeysInvalid: the file is not usable, or has no such key; it is left as it was.
    """
    with _alone(path):
        names = [key.name for key in listed_keys(path)]
        if name not in names:
            known = ", ".join(names[:20]) or "none"
            msg = f"{path}: there is no key named {shown(name)}; those there are: {known}"
            raise KeysInvalid(msg)
        document = load_yaml(_text_of(path))
        _write(path, [entry for entry in document["keys"] if entry["name"] != name])


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Nobody else changes a keys file of the same directory meanwhile: of two changes neither is lost."""
    try:
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        msg = f"{path}: cannot be written ({error.strerror})"
        raise KeysInvalid(msg) from None
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def _write(path: Path, entries: list[dict[str, object]]) -> None:
    """Put entries in place of a file whole or not at all; whoever could read it before can read it after."""
    path = path.resolve()  # what a link points to is replaced, not the link
    fresh = path.with_suffix(path.suffix + ".new")
    try:
        fresh.unlink(missing_ok=True)
        fresh.touch(mode=0o600)
        fresh.write_text(yaml.safe_dump({"keys": entries}, sort_keys=False), encoding="utf-8")
        if path.exists():
            before = path.stat()
            with contextlib.suppress(PermissionError):  # then it is ours alone: never for another group
                os.chown(fresh, before.st_uid, before.st_gid)
                fresh.chmod(stat.S_IMODE(before.st_mode))
        fresh.replace(path)
    except OSError as error:
        msg = f"{path}: cannot be written ({error.strerror})"
        raise KeysInvalid(msg) from None


def _text_of(path: Path) -> str:
    try:
        return read_small_text(path)
    except UnicodeDecodeError:
        msg = f"{path}: is not UTF-8; is it the right file?"
    except OSError as error:
        msg = f"{path}: cannot be read ({error.strerror})"
    raise KeysInvalid(msg)


def _wrong(where: str, error: ValidationError) -> str:
    return "\n".join(
        f"{where}: {'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_input=False)
    )


def _scrypt_matches(stored: str, raw: bytes) -> bool:
    n, r, p, salt, digest = stored.split("$")
    try:
        computed = _scrypt(raw, bytes.fromhex(salt), int(n), int(r), int(p))
    except (ValueError, MemoryError):
        return False
    return hmac.compare_digest(computed, bytes.fromhex(digest))


def _scrypt(raw: bytes, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(raw, salt=salt, n=n, r=r, p=p, maxmem=128 * 1024 * 1024, dklen=32)
