"""Who may speak to the sidecar: peers of this machine, or with a certificate that names them.

Promises: a peer without a certificate of our authority gets no connection; one with it may do only what its
name allows: the ingress submits work, sidecars of the same pool exchange checkpoints. Certificates are read
again when their files change; files that are being replaced leave the last good ones in use. Where no name of
our own is set (`--tls-pool-name`), any certificate of the authority will do.
Concurrency: handshakes ask for certificates on gRPC's threads; the rest is the event loop's.
"""

import logging
import threading
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import grpc
import grpc.aio

from superinfer_core.api.v1alpha1.labels import INGRESS_TLS_NAME
from superinfer_sidecar.settings import SidecarSettings, TlsFiles

_LOG = logging.getLogger(__name__)
_NAMES_KEY: Final = "x509_subject_alternative_name"

_Stamp = tuple[tuple[int, int, int], ...]


def is_local(peer: str) -> bool:
    """Whether a gRPC peer ("ipv4:127.0.0.1:5", "ipv6:[::1]:5", "unix:") is of this machine."""
    kind, _, rest = peer.partition(":")
    if kind == "unix":
        return True
    if kind not in ("ipv4", "ipv6"):
        return False
    host = unquote(rest.rpartition(":")[0]).strip("[]").partition("%")[0]
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


class Certificates:
    """Certificate, key and authority of one sidecar, as of now."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._stamp: _Stamp = ()
        self._read: tuple[bytes, bytes, bytes] = (b"", b"", b"")

    def current(self) -> tuple[bytes, bytes, bytes]:
        """(certificate, key, authority); the last good ones while files cannot be read.

        Raises:
            OSError: there never were any.
        """
        with self._lock:
            files = (self._files.cert, self._files.key, self._files.ca)
            try:
                stamp = tuple(_stamp(path) for path in files)
                if stamp != self._stamp:
                    cert, key, ca = (path.read_bytes() for path in files)
                    self._read, self._stamp = (cert, key, ca), stamp
            except OSError as error:
                if not self._stamp:
                    raise
                _LOG.warning("certificates stay the ones that were there: %s", error)
            return self._read

    def server_credentials(self) -> grpc.ServerCredentials:
        """Mutual TLS that asks for the files anew with every handshake."""
        shown: list[tuple[bytes, bytes, bytes]] = [self.current()]

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            current = self.current()
            if current == shown[0]:
                return None  # gRPC goes on with what it has
            shown[0] = current
            _LOG.info("certificates were replaced")
            return _configuration(current)

        return grpc.dynamic_ssl_server_credentials(
            _configuration(shown[0]), fetch, require_client_authentication=True
        )

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """For a channel to another sidecar, opened now."""
        cert, key, ca = self.current()
        return grpc.ssl_channel_credentials(ca, key, cert)


class Peers:
    """Decides who may call what."""

    def __init__(self, settings: SidecarSettings) -> None:
        self._pool_name = settings.tls_pool_name
        self._insecure = settings.insecure
        self.certificates = None if settings.tls is None else Certificates(settings.tls)

    def lets_in_anyone(self, listen: str) -> bool:
        """Whether whoever can reach this address may do everything: there is nothing to ask a peer."""
        return self.certificates is None and (self._insecure or is_local(_peer_of(listen)))

    def why_not_submit(self, context: Any) -> str | None:
        """Why this caller may not submit work; None if it may."""
        return self._why_not(context, INGRESS_TLS_NAME, "submit work")

    def why_not_copy(self, context: Any) -> str | None:
        """Why this caller may not exchange checkpoints; None if it may."""
        return self._why_not(context, self._pool_name, "exchange checkpoints")

    def open_channel(self, address: str, options: tuple[tuple[str, Any], ...] = ()) -> grpc.aio.Channel:
        """A channel to another sidecar of the same pool, with the certificate of now.

        Raises:
            PermissionError: it is not of this machine and there is no certificate to show.
        """
        if self.certificates is None:
            if not self._insecure and not address.startswith("unix:") and not is_local(f"ipv4:{address}"):
                msg = f"{address} is not of this machine and needs mutual TLS (or --insecure)"
                raise PermissionError(msg)
            return grpc.aio.insecure_channel(address, options=options)
        if self._pool_name:
            options = (*options, ("grpc.ssl_target_name_override", self._pool_name))
        return grpc.aio.secure_channel(address, self.certificates.channel_credentials(), options=options)

    def _why_not(self, context: Any, name: str, what: str) -> str | None:
        if self.certificates is None:
            if self._insecure or is_local(context.peer()):
                return None
            return "peers that are not loopback need mutual TLS (or --insecure)"
        if not self._pool_name:
            return None
        names = {raw.decode("utf-8", "replace") for raw in context.auth_context().get(_NAMES_KEY, ())}
        if name in names:
            return None
        shown = ", ".join(sorted(names)) or "nobody"
        return f"only {name} may {what}; this certificate is for {shown}"


def _peer_of(listen: str) -> str:
    """An address to listen on as gRPC would name a peer there; names of hosts are nobody's."""
    if listen.startswith("unix:"):
        return listen
    return f"{'ipv6' if listen.startswith('[') else 'ipv4'}:{listen}"


def _configuration(pair: tuple[bytes, bytes, bytes]) -> grpc.ServerCertificateConfiguration:
    cert, key, ca = pair
    return grpc.ssl_server_certificate_configuration([(key, cert)], ca)


def _stamp(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return (status.st_mtime_ns, status.st_size, status.st_ino)
