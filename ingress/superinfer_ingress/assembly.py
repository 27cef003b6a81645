"""Puts one ingress together and runs it: the only place that knows every part."""

import asyncio
import json
import logging
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Final

from superinfer_core.contract.resolution import Resolution
from superinfer_ingress.access_log import access_line
from superinfer_ingress.app import Application
from superinfer_ingress.completions import Clocks, Completions
from superinfer_ingress.config import Config
from superinfer_ingress.contracts.accounts import Accounts
from superinfer_ingress.contracts.http_api import ContractsApi
from superinfer_ingress.contracts.keys import KeyRing, KeysInvalid, load_keys
from superinfer_ingress.contracts.store import ContractStore
from superinfer_ingress.executors.fleet import Fleet
from superinfer_ingress.ledger import LedgerBudget
from superinfer_ingress.lines import LineSink
from superinfer_ingress.metrics import Metrics
from superinfer_ingress.placement import Placement
from superinfer_ingress.record import Record
from superinfer_ingress.server import IngressServer
from superinfer_ingress.watching import watch

_log = logging.getLogger("superinfer.ingress")

_VERSION: Final = version("superinfer-ingress")


def _monotonic_ms() -> float:
    # Not the event loop's clock: uvloop's has whole milliseconds and stands still within a turn.
    return time.monotonic() * 1000.0


def _unix_ms() -> float:
    return time.time() * 1000.0


class Ingress:
    """One ingress process."""

    def __init__(self, config: Config) -> None:
        self._config = config
        if config.contracts is not None:
            config.contracts.mkdir(parents=True, exist_ok=True)
        self._keys = KeyRing() if config.keys is None else load_keys(config.keys)
        self._accounts = Accounts(_monotonic_ms, config.ingress_replicas)
        self._store = ContractStore(config.contracts, changed=self._contracts_changed)
        self._fleet = Fleet(config, ingress_id=config.name, version=_VERSION)
        self._ledgers = LedgerBudget(config.limits.ledger_tokens)
        self._metrics = Metrics(contract_cap=config.metric_contracts)
        self._metrics.watch(self._accounts, self._fleet, self._ledgers, _monotonic_ms)
        self._access = None if config.access_log == "Off" else LineSink(sys.stderr, close=False)
        self._requests = None
        if config.request_log is not None:
            self._requests = LineSink(config.request_log.open("a", encoding="utf-8"), close=True)
        self._completions = Completions(
            config,
            fleet=self._fleet,
            placement=Placement(
                self._fleet,
                clock_ms=_monotonic_ms,
                decision_timeout_ms=config.decision_timeout_ms,
                enforce=config.admission == "Enforce",
                salt_key=_salt_key(config.cache_salt_key_file),
            ),
            accounts=self._accounts,
            directory=lambda: self._store.directory,
            ledgers=self._ledgers,
            clocks=Clocks(_monotonic_ms, _unix_ms),
            finished=self._finished,
        )
        self._metrics.in_flight.set_function(lambda: self._completions.in_flight)

    async def run(self, on_ready: Callable[[int], None]) -> None:
        """Serve until told to stop."""
        await self._store.reload()
        application = Application(
            self._config,
            completions=self._completions,
            fleet=self._fleet,
            metrics=self._metrics,
            keys=lambda: self._keys,
            contracts=ContractsApi(self._store, self._accounts, _monotonic_ms).handle,
        )
        server = IngressServer(self._config, application, self._completions)
        self._fleet.start()
        watching = asyncio.create_task(watch(self._watched(), self._files_changed))
        try:
            await server.run_until_told(lambda: on_ready(server.port))
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await self._fleet.close()
            for sink in (self._access, self._requests):
                if sink is not None:
                    await sink.close()

    def _watched(self) -> list[Path]:
        paths = [self._config.contracts] if self._config.contracts is not None else []
        if self._config.keys is not None:
            # The directory: editors and Kubernetes replace the file instead of writing into it.
            paths.append(self._config.keys.resolve().parent)
        return list(dict.fromkeys(paths))

    async def _files_changed(self) -> None:
        await self._store.reload()
        if self._config.keys is not None:
            try:
                self._keys = await asyncio.to_thread(load_keys, self._config.keys)
            except KeysInvalid as error:
                _log.warning("keys stay as they were: %s", error)

    def _contracts_changed(self, resolution: Resolution) -> None:
        self._accounts.follow(resolution.effective.values())

    def _finished(self, record: Record) -> None:
        self._metrics.finished(record)
        if self._access is not None:
            as_json = self._config.access_log == "Json"
            self._access.add(access_line(record, as_json=as_json, unix_s=time.time()))
        if self._requests is not None:
            self._requests.add(json.dumps(record.as_json(), separators=(",", ":")))


def _salt_key(path: Path | None) -> bytes | None:
    return None if path is None else path.read_bytes().strip()
