"""The ASGI application: which path does what. The two hot paths first, by plain comparison.

Promises: every answer, whatever was asked for, is JSON with an OpenAI error object where it is an error; a
bug becomes one 500 with a request id and a log line, never a broken connection without an answer.
"""

import asyncio
import logging
import math
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from superinfer_core.refusal import RefusalCode
from superinfer_core.words import shown
from superinfer_ingress.completions import Completions
from superinfer_ingress.config import Config
from superinfer_ingress.contracts.keys import KeyRing
from superinfer_ingress.contracts.selection import Asker
from superinfer_ingress.executors.fleet import Fleet
from superinfer_ingress.http.body import ClientGone, Receive
from superinfer_ingress.http.errors import Refused, refused, status_of
from superinfer_ingress.http.exchange import Exchange, Scope
from superinfer_ingress.metrics import Metrics
from superinfer_ingress.models import model_object, models_list
from superinfer_ingress.openapi import OPENAPI_JSON
from superinfer_ingress.reach import Reach
from superinfer_ingress.surroundings import Surroundings

_log = logging.getLogger("superinfer.ingress")

COMPLETION_PATHS: Final = frozenset({"/v1/chat/completions", "/v1/completions"})
_PROMETHEUS: Final = [(b"content-type", b"text/plain; version=0.0.4; charset=utf-8")]
_encode: Final = msgspec.json.Encoder().encode

Handler = Callable[[Exchange, str], Awaitable[None]]
AdministratorsHandler = Callable[[Exchange, str, Asker], Awaitable[None]]


class Application:
    """The ASGI callable."""

    def __init__(
        self,
        config: Config,
        *,
        completions: Completions,
        fleet: Fleet,
        metrics: Metrics,
        keys: Callable[[], KeyRing],
        surroundings: Surroundings,
        reach: Reach,
        contracts: AdministratorsHandler,
    ) -> None:
        self._config = config
        self._completions = completions
        self._fleet = fleet
        self._metrics = metrics
        self._keys = keys
        self._surroundings = surroundings
        self._reach = reach
        self._started_s = int(time.time())
        self._open = config.auth == "Open"
        # Ids are unique over ingresses: 64 random bits of this process, then a number.
        self._id_prefix = f"req-{os.urandom(8).hex()}-"
        self._next_id = 0
        self._exact: Mapping[tuple[str, str], Handler] = {
            ("GET", "/v1/models"): self._models,
            ("GET", "/healthz"): self._healthz,
            ("GET", "/livez"): self._healthz,
            ("GET", "/readyz"): self._readyz,
            ("GET", "/metrics"): self._metrics_page,
            ("GET", "/openapi.json"): self._openapi,
        }
        self._contracts = contracts

    async def __call__(self, scope: Scope, receive: Receive, _send: object) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        self._next_id += 1
        exchange = Exchange(
            scope,
            receive,
            request_id=f"{self._id_prefix}{self._next_id:x}",
            limits=self._config.limits,
        )
        path: str = scope["path"]
        if self._completions.leaving:
            exchange.writer.close_after()  # the next request of this connection finds another replica
        try:
            if path in COMPLETION_PATHS and scope["method"] == "POST":
                await self._completions.handle(exchange, path, self.asker)
            else:
                await self._elsewhere(exchange, scope["method"], path)
        except ClientGone:
            return
        except asyncio.CancelledError:
            raise
        except Exception:  # noqa: BLE001 - the edge: a bug of ours must not look like the client's fault
            _log.exception("request %s to %s failed", exchange.request_id, path)
            if not exchange.started:
                exchange.json(500, _INTERNAL_ERROR)
            else:
                exchange.writer.abort()

    async def asker(self, exchange: Exchange) -> Asker:
        """Who sent this request.

        Raises:
            Refused: unauthorized.
        """
        presented = exchange.bearer
        key = await self._keys().find(presented) if presented else None
        if key is None and not self._open:
            what = "the API key is not known" if presented else "no API key was sent"
            raise refused(
                RefusalCode.UNAUTHORIZED,
                f"{what}; send `Authorization: Bearer KEY` with a key this ingress knows",
                "authorization",
            )
        return Asker(key, open_mode=self._open)

    async def administrator(self, exchange: Exchange) -> Asker:
        """Let only those through who may read and change contracts, of some namespace at least.

        Raises:
            Refused: unauthorized or forbidden.
        """
        asker = await self.asker(exchange)
        if not self._open and (asker.key is None or not asker.key.admin):
            raise refused(RefusalCode.FORBIDDEN, "this key may not manage contracts; use an admin key")
        return asker

    async def _elsewhere(self, exchange: Exchange, method: str, path: str) -> None:
        try:
            handler = self._exact.get((method, path))
            if handler is not None:
                await handler(exchange, path)
            elif path == "/v1/contracts" or path.startswith("/v1/contracts/"):
                await self._contracts(exchange, path, await self.administrator(exchange))
            elif path.startswith("/v1/models/") and method == "GET":
                await self._model(exchange, path)
            else:
                raise self._no_such(method, path)
        except Refused as error:
            status = error.status or status_of(error.refusal.code, self._config.infeasible_status)
            more = [(b"allow", error.allow.encode())] if error.allow is not None else []
            if error.retry_after_ms is not None:
                more.append((b"retry-after", b"%d" % max(1, math.ceil(error.retry_after_ms / 1000.0))))
            exchange.refuse(error.refusal, status, more, close=error.close)

    def _no_such(self, method: str, path: str) -> Refused:
        known = path in COMPLETION_PATHS or any(path == other for _, other in self._exact)
        known = known or path.startswith("/v1/models/")
        if known:
            allowed = "POST" if path in COMPLETION_PATHS else "GET"
            error = refused(RefusalCode.INVALID_REQUEST, f"{method} is not allowed here; use {allowed}")
            return Refused(error.refusal, status=405, allow=allowed)
        error = refused(RefusalCode.INVALID_REQUEST, f"there is nothing at {path[:200]!r}; see /openapi.json")
        return Refused(error.refusal, status=404)

    async def _models(self, exchange: Exchange, _path: str) -> None:
        links = self._reach.executors(await self.asker(exchange))
        exchange.json(200, _encode(models_list(links, self._started_s)))

    async def _model(self, exchange: Exchange, path: str) -> None:
        links = self._reach.executors(await self.asker(exchange))
        name = path.removeprefix("/v1/models/")
        found = model_object(links, name, self._started_s)
        if found is None:
            raise refused(
                RefusalCode.MODEL_NOT_FOUND,
                f"there is no model {shown(name)}; GET /v1/models lists them",
                "model",
            )
        exchange.json(200, _encode(found))

    async def _healthz(self, exchange: Exchange, _path: str) -> None:
        exchange.json(200, b'{"status":"alive"}')

    async def _readyz(self, exchange: Exchange, _path: str) -> None:
        if self._completions.draining or self._completions.leaving:
            raise refused(RefusalCode.SHUTTING_DOWN, "this ingress is shutting down")
        missing = self._surroundings.waiting_for(serving=self._fleet.ready)
        if missing is not None:
            raise refused(RefusalCode.NO_EXECUTORS, missing)
        exchange.json(200, _encode({"status": "ready", **self._surroundings.detail()}))

    async def _metrics_page(self, exchange: Exchange, _path: str) -> None:
        exchange.answer(200, _PROMETHEUS, self._metrics.exposition())

    async def _openapi(self, exchange: Exchange, _path: str) -> None:
        exchange.json(200, OPENAPI_JSON)


_INTERNAL_ERROR: Final = _encode(
    {
        "error": {
            "message": "the ingress failed on this request; its log has the details under x-request-id",
            "type": "server_error",
            "param": None,
            "code": None,
        }
    }
)
