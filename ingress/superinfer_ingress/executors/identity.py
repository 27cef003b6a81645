"""The certificate this ingress shows to sidecars, read again when its files change.

Promises: a connection that is made after a rotation uses the new files; one that stands is left alone. Files
that cannot be used, in the middle of being replaced for example, leave the last good ones in use.
Concurrency: the event loop; reading costs well under a millisecond and happens only when a file changed.
"""

import logging
import ssl
from pathlib import Path

from superinfer_ingress.config import TlsSettings
from superinfer_proto.duplex import client_context

_log = logging.getLogger("superinfer.ingress.executors")

_Stamp = tuple[tuple[int, int, int], ...]


class Identity:
    """Certificate, key and authority of one ingress."""

    def __init__(self, files: TlsSettings) -> None:
        self._files = files
        self._context: ssl.SSLContext | None = None
        self._stamp: _Stamp = ()

    def context(self) -> ssl.SSLContext:
        """What to connect with now.

        Raises:
            OSError: there never were files that could be used.
        """
        try:
            stamp = tuple(_stamp(path) for path in (self._files.ca, self._files.cert, self._files.key))
            if self._context is None or stamp != self._stamp:
                self._context = client_context(self._files.ca, self._files.cert, self._files.key)
                self._stamp = stamp
        except OSError as error:  # ssl.SSLError is one
            if self._context is None:
                raise
            _log.warning("the certificate stays the one that was there: %s", error)
        return self._context


def _stamp(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return (status.st_mtime_ns, status.st_size, status.st_ino)
