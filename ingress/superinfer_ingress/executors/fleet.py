"""All executors of this ingress: which of them gets a request, and which of them are still there.

Promises: an executor whose last load report is older than `stale_after_ms` gets no new work; one that has
said nothing for `dead_after_ms` is given up and its requests hear of it; one that is no longer listed gets no
new work and is let go when nothing of ours runs there any more; requests spread over whoever keeps their
promise; ranking is deterministic for equal reports.
A moment without a fresh report (everything on a busy machine is late at times) makes a request wait for the
next report, never longer than an executor may be silent.
Concurrency: the event loop; one task that listens for silence, one that looks at processes.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from time import monotonic
from typing import Final

from superinfer_core.scheduling.routing import preference
from superinfer_ingress.config import Config, ExecutorSettings
from superinfer_ingress.executors.estimates import prefill_ms, tokens_of
from superinfer_ingress.executors.identity import Identity
from superinfer_ingress.executors.link import ExecutorLink
from superinfer_ingress.executors.peers import tell_peers

_log = logging.getLogger("superinfer.ingress.executors")

_WATCH_S: Final = 0.05
_LOOK_S: Final = 0.01
"""How often the processes of sidecars on this machine are looked at: a few microseconds each."""
_OWN_DELAY_S: Final = 0.2
"""A monitor tick this late means that we were not running, and nobody else is to blame for the silence."""


class Fleet:
    """The links of this ingress."""

    def __init__(self, config: Config, *, ingress_id: str, version: str) -> None:
        self._stale_ms = config.stale_after_ms
        self._dead_ms = config.dead_after_ms
        self._ingress_id = ingress_id
        self._version = version
        self._identity = None if config.tls is None else Identity(config.tls)
        self.links: Sequence[ExecutorLink] = tuple(self._link(settings) for settings in config.executors)
        self._leaving: dict[ExecutorLink, asyncio.Task[None] | None] = {}
        self._monitor: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Connect to every executor and watch them."""
        tell_peers(self.links)
        for link in self.links:
            link.start()
        self._monitor = asyncio.create_task(self._watch(), name="executor monitor")
        self._looking = asyncio.create_task(self._look(), name="executor processes")

    def follow(self, executors: Iterable[ExecutorSettings]) -> None:
        """These are the executors from now on; a link whose executor is still there is not touched."""
        wanted = {(settings.pool, settings.name): settings for settings in executors}
        links: list[ExecutorLink] = []
        for link in self.links:
            settings = wanted.get((link.settings.pool, link.name))
            if settings is None or settings.address != link.settings.address:
                link.leaving = True
                self._leaving[link] = None
                continue
            del wanted[settings.pool, settings.name]
            link.settings = settings
            link.leaving = settings.leaving
            links.append(link)
        fresh = [self._link(settings) for settings in wanted.values()]
        self.links = (*links, *fresh)
        tell_peers([link for link in self.links if not link.leaving])
        if self._monitor is not None:
            for link in fresh:
                link.start()
        self._let_go()

    def _link(self, settings: ExecutorSettings) -> ExecutorLink:
        link = ExecutorLink(
            settings, ingress_id=self._ingress_id, version=self._version, identity=self._identity
        )
        link.leaving = settings.leaving
        return link

    def _let_go(self) -> None:
        """Close what has left the list and has nothing of ours any more."""
        for link, closing in tuple(self._leaving.items()):
            if closing is None and not link.requests:
                self._leaving[link] = asyncio.create_task(link.close(), name=f"close {link.name}")
            elif closing is not None and closing.done():
                del self._leaving[link]

    async def close(self) -> None:
        """End every stream."""
        tasks = [task for task in (self._monitor, self._looking) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(link.close() for link in (*self.links, *self._leaving)))

    @property
    def ready(self) -> bool:
        """Whether any executor is serving."""
        return any(link.serving for link in self.links)

    def in_pool(self, pool: str | None) -> Sequence[ExecutorLink]:
        """Executors of a pool, connected or not; of every pool without one."""
        if pool is None:
            return self.links
        return [link for link in self.links if _same_pool(pool, link.settings.pool)]

    def is_fresh(self, link: ExecutorLink) -> bool:
        """Whether it takes new work, by a report that is not too old."""
        return link.serving and monotonic() * 1000.0 - link.reported_ms <= self._stale_ms

    def serving_model(self, links: Iterable[ExecutorLink], model: str) -> Sequence[ExecutorLink]:
        """Those of `links` whose engine has announced `model`."""
        return [link for link in links if link.engine is not None and link.engine.model == model]

    async def choose(
        self,
        pool: str | None,
        model: str,
        *,
        body_bytes: int,
        within_ms: float | None = None,
        besides: ExecutorLink | None = None,
    ) -> tuple[ExecutorLink, float] | None:
        """The executor that is to get the request, and the work it adds there (ms); None if none can.

        `within_ms` is what is left of its TTFT; `core.scheduling.routing` decides by it.

        Waits for a fresh report only where an executor is serving but silent for a moment, and only on the
        first choice: a second opinion is not worth waiting for.
        """
        links = self.serving_model(self.in_pool(pool), model)
        found = self._best(links, body_bytes, within_ms, besides)
        if found is not None or besides is not None:
            return found
        waiting = [link for link in links if link.serving]
        if not waiting:
            return None
        await _any_report(waiting, (self._dead_ms - self._stale_ms) / 1000.0)
        return self._best(links, body_bytes, within_ms, besides)

    def _best(
        self,
        links: Sequence[ExecutorLink],
        body_bytes: int,
        within_ms: float | None,
        besides: ExecutorLink | None,
    ) -> tuple[ExecutorLink, float] | None:
        fresh = [link for link in links if link is not besides and self.is_fresh(link)]
        if not fresh:
            return None
        tokens = tokens_of(body_bytes)
        ranked: list[tuple[tuple[bool, float, float, str], float, ExecutorLink]] = []
        for link in fresh:
            ttft_ms, work_ms = _predicted_ttft_ms(link, tokens)
            order = preference(link.name, ttft_ms=ttft_ms, requests=len(link.requests), within_ms=within_ms)
            ranked.append((order, work_ms, link))
        _, work_ms, link = min(ranked, key=lambda one: one[0])
        return link, work_ms

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            for link in (*self.links, *self._leaving):
                link.drop_if_ending()

    async def _watch(self) -> None:
        while True:
            due = monotonic() + _WATCH_S
            await asyncio.sleep(_WATCH_S)
            now = monotonic()
            if now - due > _OWN_DELAY_S:
                continue
            now_ms = now * 1000.0
            for link in (*self.links, *self._leaving):
                if link.connected and now_ms - link.heard_ms > self._dead_ms:
                    _log.warning(
                        "executor %s: silent for %.0f ms, given up", link.name, now_ms - link.heard_ms
                    )
                    link.drop()
            self._let_go()


def _predicted_ttft_ms(link: ExecutorLink, tokens: int) -> tuple[float, float]:
    """(when a prompt of `tokens` would have its first token, the work it adds), by the last report."""
    load = link.load
    if load is None or link.engine is None:
        return float("inf"), 0.0
    work_ms = prefill_ms(link, tokens)
    return load.backlog_ms + link.sent_since_report_ms + work_ms, work_ms


def _same_pool(asked: str, has: str) -> bool:
    """A contract names its pool with the namespace; a configuration file may leave it out."""
    return asked == has or ("/" not in has and asked.rpartition("/")[2] == has)


async def _any_report(links: Sequence[ExecutorLink], timeout_s: float) -> None:
    tasks = [asyncio.ensure_future(link.reported.wait()) for link in links]
    try:
        await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
