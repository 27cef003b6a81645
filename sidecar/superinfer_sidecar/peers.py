"""Who may speak to the sidecar: peers with a certificate, or of this machine."""

from ipaddress import ip_address
from urllib.parse import unquote

import grpc

from superinfer_sidecar.settings import TlsFiles


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


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """Mutual TLS: a peer without a certificate of our authority gets no connection."""
    pair = (files.key.read_bytes(), files.cert.read_bytes())
    return grpc.ssl_server_credentials([pair], files.ca.read_bytes(), require_client_auth=True)
