"""The uvicorn server around the application: signals, draining, and the end.

On SIGTERM or SIGINT the listener stays open: /readyz answers 503 at once; new requests do so after
`shutdownDelay` (load balancers need a moment to hear of it). Running ones finish, up to `shutdownGrace`;
then what is left ends with an error its client can read, and the process exits. A second signal ends it at
once.
"""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any, Final

import uvicorn
from typing_extensions import override

from superinfer_ingress.completions import Completions
from superinfer_ingress.config import Config
from superinfer_ingress.http.connection import IngressProtocol

_KEEP_ALIVE_S: Final = 75
_LAST_WORDS_S: Final = 2.0
"""Time for the last error events to leave after the grace period."""
_POLL_S: Final = 0.02


_BACKLOG: Final = 4096
_SEND_BUFFER_BYTES: Final = 128 * 1024
"""The kernel would grow it to megabytes: an answer that nobody reads has to be noticed before that."""


def _listen(config: Config) -> socket.socket:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listener = socket.create_server((config.host, config.port), family=family, backlog=_BACKLOG)
    # Connections inherit it.
    size = min(_SEND_BUFFER_BYTES, config.limits.client_buffer_bytes)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
    listener.setblocking(False)  # noqa: FBT003 - the name says it
    return listener


class IngressServer(uvicorn.Server):
    """uvicorn with our signals: it drains before it closes."""

    def __init__(self, config: Config, application: Any, completions: Completions) -> None:
        limits = config.limits

        class Protocol(IngressProtocol):
            """The limits of this configuration."""

        Protocol.limits = limits
        super().__init__(
            uvicorn.Config(
                application,
                http=Protocol,
                ws="none",
                loop="uvloop",
                lifespan="off",
                access_log=False,
                log_config=None,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=max(1, int(_LAST_WORDS_S)),
            )
        )
        self._delay_s = config.shutdown_delay
        self._grace_s = config.shutdown_grace
        self._completions = completions
        self._drain: asyncio.Task[None] | None = None

        self._socket = _listen(config)

    @property
    def port(self) -> int:
        """The port it listens on, also where the configuration said 0."""
        return int(self._socket.getsockname()[1])

    async def run_until_told(self, on_ready: Callable[[], None]) -> None:
        """Serve until a signal, drain, stop."""
        ready = asyncio.create_task(self._announce(on_ready))
        try:
            await self.serve(sockets=[self._socket])
        finally:
            ready.cancel()

    @override
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    async def _announce(self, on_ready: Callable[[], None]) -> None:
        while not self.started:  # noqa: ASYNC110 - uvicorn offers a flag, not an event
            await asyncio.sleep(_POLL_S)
        on_ready()

    def _on_signal(self) -> None:
        if self._drain is None:
            self._completions.leaving = True
            self._drain = asyncio.create_task(self._drain_then_exit())
        else:
            self.should_exit = self.force_exit = True

    async def _drain_then_exit(self) -> None:
        if self._delay_s > 0:
            await asyncio.sleep(self._delay_s)
        self._completions.draining = True
        if not await self._idle_within(self._grace_s):
            self._completions.cut()
            await self._idle_within(_LAST_WORDS_S)
        self.should_exit = True

    async def _idle_within(self, seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while self._completions.in_flight and loop.time() < until:  # noqa: ASYNC110 - a few ms at the very end
            await asyncio.sleep(_POLL_S)
        return not self._completions.in_flight
