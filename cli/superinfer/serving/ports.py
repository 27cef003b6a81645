"""Ports: is one free, and if not, say so before anything slow has started."""

import contextlib
import errno
import socket


def cannot_listen(host: str, port: int) -> tuple[str, str] | None:
    """Why binding `host:port` would fail, and what to do about it; None where it would not."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with contextlib.closing(socket.socket(family, socket.SOCK_STREAM)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return (
                    f"port {port} on {host} is in use",
                    "Stop what listens there, or choose another port with --port.",
                )
            if error.errno in {errno.EACCES, errno.EPERM}:
                return f"port {port} may not be opened by this user", "Choose a port above 1023 with --port."
            return (
                f"--host {host} is not an address of this machine",
                "Give 127.0.0.1, 0.0.0.0 or one it has.",
            )
    return None


def free_port(host: str = "127.0.0.1") -> int:
    """A port nobody uses right now."""
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
