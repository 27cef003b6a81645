"""The certificate of one pool's sidecars, or of the ingress: kept, extended by a newer bundle, or reissued.

`next_leaf` is a function of what the Secret holds, the authority and the time; what is still good is kept.
"""

from collections.abc import Mapping
from datetime import datetime

from superinfer_operator.certificates.authority import (
    BUNDLE_ITEM,
    CERT_ITEM,
    KEY_ITEM,
    Authority,
    is_known,
)
from superinfer_operator.certificates.issuing import (
    Pair,
    each_certificate,
    is_signed_by,
    issue,
    names_of,
    read_certificate,
    read_pair,
)
from superinfer_operator.certificates.terms import Terms, is_due


def next_leaf(
    items: Mapping[str, bytes] | None, authority: Authority, dns_name: str, now: datetime, terms: Terms
) -> dict[str, bytes]:
    """The items the Secret should hold; equal to `items` where nothing is to be done."""
    held = items or {}
    pair = read_pair(held.get(CERT_ITEM), held.get(KEY_ITEM))
    if pair is None or not _is_good(pair, authority, dns_name, now, terms):
        pair = issue(authority.signer, dns_name, now, terms.leaf)
    return {CERT_ITEM: pair.cert, KEY_ITEM: pair.key, BUNDLE_ITEM: authority.bundle}


def _is_good(pair: Pair, authority: Authority, dns_name: str, now: datetime, terms: Terms) -> bool:
    certificate = read_certificate(pair.cert)
    return (
        dns_name in names_of(pair.cert)
        and not is_due(certificate.not_valid_before_utc, certificate.not_valid_after_utc, now)
        and any(is_signed_by(pair.cert, signer) for signer in _signers(authority, now, terms))
    )


def _signers(authority: Authority, now: datetime, terms: Terms) -> list[bytes]:
    """Whose certificates are kept: of a lost authority, too, until everybody has heard of the new one."""
    lost = [] if is_known(authority, now, terms) else each_certificate(authority.previous)
    return [authority.signer.cert, *lost]
