"""Certificates are made once, kept while good, and replaced without a moment in which peers are strangers."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from superinfer_core.api.v1alpha1 import labels
from superinfer_operator.certificates import Authority, Terms, next_authority, next_leaf
from superinfer_operator.certificates.issuing import each_certificate

NOW = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)
TERMS = Terms(authority=timedelta(days=300), leaf=timedelta(days=90), announce=timedelta(hours=24))
NAME = labels.executor_tls_name("smollm", "ml")


def rotated(authority: Authority, now: datetime) -> Authority:
    return next_authority(authority.items, now, TERMS)


def test_the_authority_is_made_once_and_then_kept() -> None:
    first = next_authority(None, NOW, TERMS)
    assert rotated(first, NOW + timedelta(days=100)).items == first.items


@pytest.mark.parametrize(
    "items",
    [
        pytest.param({}, id="empty"),
        pytest.param({"tls.crt": b"garbage", "tls.key": b"garbage"}, id="not PEM"),
        pytest.param({"tls.crt": next_authority(None, NOW, TERMS).signer.cert}, id="the key is missing"),
        pytest.param(
            {
                "tls.crt": next_authority(None, NOW, TERMS).signer.cert,
                "tls.key": next_authority(None, NOW, TERMS).signer.key,
            },
            id="halves of two authorities",
        ),
        pytest.param(
            next_authority(None, NOW - timedelta(days=400), TERMS).items, id="ended while nobody was looking"
        ),
    ],
)
def test_an_unusable_authority_is_replaced(items: dict[str, bytes]) -> None:
    made = next_authority(items, NOW, TERMS)
    assert made.signer.cert != items.get("tls.crt")
    assert next_authority(made.items, NOW, TERMS).items == made.items


def test_a_successor_is_trusted_everywhere_before_it_signs() -> None:
    first = next_authority(None, NOW, TERMS)
    announced = rotated(first, NOW + timedelta(days=201))
    assert announced.signer == first.signer
    assert announced.successor is not None
    assert announced.bundle == first.signer.cert + announced.successor.cert
    still = rotated(announced, NOW + timedelta(days=201, hours=23))
    assert still.items == announced.items
    switched = rotated(announced, NOW + timedelta(days=202, hours=1))
    assert switched.signer == announced.successor
    assert first.signer.cert in switched.bundle  # certificates of the old one are still out there
    over = rotated(switched, NOW + timedelta(days=301))
    assert first.signer.cert not in over.bundle


def test_an_announcement_never_outlasts_the_signer() -> None:
    first = next_authority(None, NOW, TERMS)
    late = rotated(first, NOW + timedelta(days=299))  # the operator was away for months
    assert late.successor is not None
    assert rotated(late, NOW + timedelta(days=299, minutes=1)).signer == late.successor


def test_a_good_certificate_is_kept_and_an_old_one_replaced() -> None:
    authority = next_authority(None, NOW, TERMS)
    leaf = next_leaf(None, authority, NAME, NOW, TERMS)
    assert next_leaf(leaf, authority, NAME, NOW + timedelta(days=59), TERMS) == leaf
    assert next_leaf(leaf, authority, NAME, NOW + timedelta(days=61), TERMS)["tls.crt"] != leaf["tls.crt"]


def test_a_certificate_for_another_name_is_replaced() -> None:
    authority = next_authority(None, NOW, TERMS)
    leaf = next_leaf(None, authority, labels.INGRESS_TLS_NAME, NOW, TERMS)
    assert next_leaf(leaf, authority, NAME, NOW, TERMS)["tls.crt"] != leaf["tls.crt"]


def test_a_new_bundle_reaches_peers_without_a_new_certificate() -> None:
    first = next_authority(None, NOW, TERMS)
    due = NOW + timedelta(days=201)
    leaf = next_leaf(None, first, NAME, due, TERMS)
    announced = rotated(first, due)
    extended = next_leaf(leaf, announced, NAME, due, TERMS)
    assert (extended["tls.crt"], extended["ca.crt"]) == (leaf["tls.crt"], announced.bundle)


def test_certificates_follow_when_the_successor_signs() -> None:
    first = next_authority(None, NOW, TERMS)
    due = NOW + timedelta(days=201)
    leaf = next_leaf(None, first, NAME, due, TERMS)
    switched = rotated(rotated(first, due), due + timedelta(hours=25))
    followed = next_leaf(leaf, switched, NAME, due + timedelta(hours=25), TERMS)
    assert followed["tls.crt"] != leaf["tls.crt"]


@pytest.mark.parametrize(
    ("server_age", "client_age"),
    [
        pytest.param(0, 1, id="old server, peer that follows the successor"),
        pytest.param(1, 0, id="server of the successor, peer that has the old certificate"),
        pytest.param(1, 1, id="both of the successor"),
    ],
)
def test_peers_before_and_after_a_rotation_still_shake_hands(
    tmp_path: Path, server_age: int, client_age: int
) -> None:
    now = datetime.now(UTC)
    started = now - timedelta(days=202)
    first = next_authority(None, started, TERMS)
    announced = rotated(first, started + timedelta(days=201))
    old = next_leaf(None, announced, NAME, now - timedelta(hours=1), TERMS)
    switched = rotated(announced, started + timedelta(days=202, hours=1))
    new = next_leaf(old, switched, NAME, now, TERMS)
    assert shake_hands(tmp_path, [old, new][server_age], [old, new][client_age], NAME)


def test_what_a_lost_authority_signed_is_kept_until_everybody_knows_the_new_one() -> None:
    lost = next_authority(None, NOW, TERMS)
    leaf = next_leaf(None, lost, NAME, NOW, TERMS)
    later = NOW + timedelta(days=3)
    made = next_authority(None, later, TERMS, trusted=lost.bundle)
    assert made.bundle == made.signer.cert + lost.signer.cert
    extended = next_leaf(leaf, made, NAME, later + timedelta(hours=23), TERMS)
    assert (extended["tls.crt"], extended["ca.crt"]) == (leaf["tls.crt"], made.bundle)
    assert rotated(made, later + timedelta(hours=1)).items == made.items
    followed = next_leaf(extended, made, NAME, later + timedelta(hours=25), TERMS)
    assert followed["tls.crt"] != leaf["tls.crt"]
    assert lost.signer.cert not in rotated(made, NOW + timedelta(days=301)).bundle


def test_an_authority_lost_twice_within_a_day_keeps_the_first_ones_certificates() -> None:
    first = next_authority(None, NOW, TERMS)
    leaf = next_leaf(None, first, NAME, NOW, TERMS)
    second = next_authority(None, NOW + timedelta(hours=1), TERMS, trusted=first.bundle)
    third = next_authority(None, NOW + timedelta(hours=2), TERMS, trusted=second.bundle)
    kept = next_leaf(leaf, third, NAME, NOW + timedelta(hours=2), TERMS)
    assert kept["tls.crt"] == leaf["tls.crt"]
    assert {second.signer.cert, first.signer.cert} <= set(each_certificate(third.bundle))


@pytest.mark.parametrize(
    ("server_lost", "client_lost"),
    [
        pytest.param(True, False, id="a server that has not read its files again"),
        pytest.param(False, True, id="a peer that has not read its files again"),
        pytest.param(False, False, id="both have"),
    ],
)
def test_peers_before_and_after_a_loss_still_shake_hands(
    tmp_path: Path, server_lost: bool, client_lost: bool
) -> None:
    now = datetime.now(UTC)
    lost = next_authority(None, now - timedelta(days=1), TERMS)
    old = next_leaf(None, lost, NAME, now - timedelta(hours=1), TERMS)
    made = next_authority(None, now, TERMS, trusted=old["ca.crt"])
    new = next_leaf(old, made, NAME, now, TERMS)
    server, client = (old if is_old else new for is_old in (server_lost, client_lost))
    assert shake_hands(tmp_path, server, client, NAME)


def test_a_trusted_text_that_is_no_certificate_is_no_authority() -> None:
    made = next_authority(None, NOW, TERMS, trusted=b"garbage")
    assert made.bundle == made.signer.cert


def test_a_stranger_is_refused(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    ours = next_leaf(None, next_authority(None, now, TERMS), NAME, now, TERMS)
    theirs = next_leaf(None, next_authority(None, now, TERMS), NAME, now, TERMS)
    with pytest.raises(ssl.SSLError):
        shake_hands(tmp_path, ours, theirs, NAME)
    with pytest.raises(ssl.SSLError):
        shake_hands(tmp_path, ours, ours, "other.ml.pool.superinfer.dev")


def shake_hands(directory: Path, server: dict[str, bytes], client: dict[str, bytes], name: str) -> bool:
    """A mutual TLS handshake in memory with the files as pods have them."""
    here = context(directory / "server", server, ssl.PROTOCOL_TLS_SERVER)
    there = context(directory / "client", client, ssl.PROTOCOL_TLS_CLIENT)
    down, up = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        here.wrap_bio(up, down, server_side=True),
        there.wrap_bio(down, up, server_hostname=name),
    ]
    done = [False, False]
    for _ in range(10):
        for index in (1, 0):
            try:
                ends[index].do_handshake()
                done[index] = True
            except ssl.SSLWantReadError:
                continue
    return all(done)


def context(directory: Path, items: dict[str, bytes], protocol: ssl._SSLMethod) -> ssl.SSLContext:
    directory.mkdir(exist_ok=True)
    for item, content in items.items():
        (directory / item).write_bytes(content)
    made = ssl.SSLContext(protocol)
    made.load_cert_chain(directory / "tls.crt", directory / "tls.key")
    made.load_verify_locations(directory / "ca.crt")
    made.verify_mode = ssl.CERT_REQUIRED
    return made
