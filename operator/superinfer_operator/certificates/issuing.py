"""Making and reading X.509 pairs with ECDSA P-256. The only place that touches the cryptography library."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from superinfer_operator.certificates.terms import CLOCK_SKEW

_AUTHORITY_NAME: Final = "SuperInfer pod authority"
_PEER_USES: Final = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
"""Sidecars are both: they serve the ingress and push checkpoints to each other."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate with its key, both PEM. The key stays out of every repr and log."""

    cert: bytes = field(repr=False)
    key: bytes = field(repr=False)


def self_signed(now: datetime, life: timedelta) -> Pair:
    """A new authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _AUTHORITY_NAME)])
    builder = (
        _begun(now, life)
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return Pair(_pem(builder.sign(key, hashes.SHA256())), _key_pem(key))


def issue(signer: Pair, dns_name: str, now: datetime, life: timedelta) -> Pair:
    """A certificate of `signer` for one name; it never outlives its signer."""
    authority = read_certificate(signer.cert)
    signing_key = serialization.load_pem_private_key(signer.key, password=None)
    if not isinstance(signing_key, ec.EllipticCurvePrivateKey):
        msg = "the authority's key is not an elliptic-curve key; delete the Secret to have a new one made"
        raise ValueError(msg)
    key = ec.generate_private_key(ec.SECP256R1())
    life = min(life, authority.not_valid_after_utc - now)
    builder = (
        _begun(now, life)
        # A common name holds 64 characters, namespace and pool together may have more: names are in the SAN.
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, dns_name[:64])]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(dns_name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(_PEER_USES), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(
                authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
            ),
            critical=False,
        )
    )
    return Pair(_pem(builder.sign(signing_key, hashes.SHA256())), _key_pem(key))


def read_certificate(pem: bytes) -> x509.Certificate:
    """The first certificate of a PEM text.

    Raises:
        ValueError: there is none that can be read.
    """
    return x509.load_pem_x509_certificate(pem)


def each_certificate(pem: bytes) -> list[bytes]:
    """Every certificate of a PEM text by itself; none where it cannot be read."""
    try:
        return [_pem(certificate) for certificate in x509.load_pem_x509_certificates(pem)]
    except ValueError:
        return []


def read_pair(cert: bytes | None, key: bytes | None) -> Pair | None:
    """A stored pair, if both halves can be read and belong together."""
    if not cert or not key:
        return None
    try:
        private = serialization.load_pem_private_key(key, password=None)
        matches = _public_bytes(private.public_key()) == _public_bytes(read_certificate(cert).public_key())
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return Pair(cert, key) if matches else None


def is_signed_by(pem: bytes, authority_pem: bytes) -> bool:
    """Whether a certificate was issued by this authority (its key, not only its name)."""
    try:
        read_certificate(pem).verify_directly_issued_by(read_certificate(authority_pem))
    except Exception:  # noqa: BLE001 - every failure to verify means the same: not signed by it
        return False
    return True


def names_of(pem: bytes) -> list[str]:
    """The DNS names a certificate is for."""
    try:
        extension = read_certificate(pem).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return extension.value.get_values_for_type(x509.DNSName)


def _begun(now: datetime, life: timedelta) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - CLOCK_SKEW).not_valid_after(now + life)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _public_bytes(key: object) -> bytes:
    encode = getattr(key, "public_bytes")  # noqa: B009 - a union of a dozen key types that all have it
    return bytes(encode(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo))
