"""The authority that signs every pod's certificate, and its rotation without a gap.

A new authority is first announced (in everybody's `ca.crt`), then signs, and the old one stays trusted until
it ends. That goes for one that was lost, too: whom pods trusted is still trusted, and what it signed is kept
until everybody knows the new one. `next_authority` is a function of what the Secret holds and the time:
calling it again changes nothing, whatever call the last one died in. Concurrency: none; only keys are random.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from cryptography import x509

from superinfer_operator.certificates.issuing import (
    Pair,
    each_certificate,
    read_certificate,
    read_pair,
    self_signed,
)
from superinfer_operator.certificates.terms import Terms, is_due

CERT_ITEM: Final = "tls.crt"
KEY_ITEM: Final = "tls.key"
BUNDLE_ITEM: Final = "ca.crt"
_NEXT_CERT: Final = "next.crt"
_NEXT_KEY: Final = "next.key"
_PREVIOUS_CERT: Final = "previous.crt"


@dataclass(frozen=True, slots=True)
class Authority:
    """What the authority's Secret should hold.

    Attributes:
        signer: signs certificates now.
        successor: announced, signs later; None while none is needed.
        previous: PEM of the authority before, or of those a lost one had announced; trusted until they end.
        bundle: PEM of everything a peer must trust.
    """

    signer: Pair
    successor: Pair | None
    previous: bytes
    bundle: bytes

    @property
    def items(self) -> dict[str, bytes]:
        """The Secret's items."""
        items = {CERT_ITEM: self.signer.cert, KEY_ITEM: self.signer.key, BUNDLE_ITEM: self.bundle}
        if self.successor is not None:
            items |= {_NEXT_CERT: self.successor.cert, _NEXT_KEY: self.successor.key}
        if self.previous:
            items[_PREVIOUS_CERT] = self.previous
        return items


def next_authority(
    items: Mapping[str, bytes] | None, now: datetime, terms: Terms, *, trusted: bytes = b""
) -> Authority:
    """The authority from now on.

    Args:
        items: of the Secret as it is; None or unreadable for a new one.
        now: the time.
        terms: lives.
        trusted: PEM of the authorities that pods trust, for a new one that has to follow a lost one.
    """
    held = items or {}
    signer = read_pair(held.get(CERT_ITEM), held.get(KEY_ITEM))
    if signer is None or read_certificate(signer.cert).not_valid_after_utc <= now:
        return _complete(self_signed(now, terms.authority), None, trusted, now)
    successor = read_pair(held.get(_NEXT_CERT), held.get(_NEXT_KEY))
    previous = held.get(_PREVIOUS_CERT, b"")
    life = read_certificate(signer.cert)
    if successor is None and is_due(life.not_valid_before_utc, life.not_valid_after_utc, now):
        successor = self_signed(now, terms.authority)
    elif successor is not None and _announced_long_enough(successor, life, now, terms):
        signer, successor, previous = successor, None, signer.cert
    return _complete(signer, successor, previous, now)


def _announced_long_enough(successor: Pair, signer: x509.Certificate, now: datetime, terms: Terms) -> bool:
    """A signer near its end cannot wait for the whole announcement."""
    begins = read_certificate(successor.cert).not_valid_before_utc
    return now >= min(begins + terms.announce, signer.not_valid_after_utc - terms.leaf / 10)


def _complete(signer: Pair, successor: Pair | None, previous: bytes, now: datetime) -> Authority:
    previous = b"".join(one for one in each_certificate(previous) if not _ended(one, now))
    trusted = [signer.cert, *([successor.cert] if successor is not None else []), *filter(None, [previous])]
    return Authority(signer, successor, previous, b"".join(trusted))


def is_known(authority: Authority, now: datetime, terms: Terms) -> bool:
    """Whether its signer was announced long enough for every peer to have heard of it."""
    return now >= read_certificate(authority.signer.cert).not_valid_before_utc + terms.announce


def _ended(pem: bytes, now: datetime) -> bool:
    return read_certificate(pem).not_valid_after_utc <= now
