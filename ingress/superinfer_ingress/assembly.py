"""Puts one ingress together and runs it: the only place that knows every part."""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec

from superinfer_core.contract.resolution import Resolution
from superinfer_core.failover.blame import BlamePolicy
from superinfer_core.failover.retry import RetryPolicy
from superinfer_ingress.access_log import access_line
from superinfer_ingress.app import Application
from superinfer_ingress.completions import Clocks, Completions
from superinfer_ingress.config import Config
from superinfer_ingress.contracts.accounts import Accounts
from superinfer_ingress.contracts.http_api import ContractsApi
from superinfer_ingress.contracts.keys import KeyRing
from superinfer_ingress.contracts.store import ContractStore
from superinfer_ingress.executors.fleet import Fleet
from superinfer_ingress.ledger import LedgerBudget
from superinfer_ingress.lines import LineSink
from superinfer_ingress.metrics import Metrics
from superinfer_ingress.placement import Placement
from superinfer_ingress.reach import Reach
from superinfer_ingress.record import Record
from superinfer_ingress.resumption import Resumption
from superinfer_ingress.server import IngressServer
from superinfer_ingress.small_file import read_small_bytes
from superinfer_ingress.surroundings import Followers, LocalFiles, Surroundings

_VERSION: Final = version("superinfer-ingress")
_encode: Final = msgspec.json.Encoder().encode
"""One line a request: the json module took ten times as long (8.6 us)."""


def _monotonic_ms() -> float:
    # Not the event loop's clock: uvloop's has whole milliseconds and stands still within a turn.
    return time.monotonic() * 1000.0


def _unix_ms() -> float:
    return time.time() * 1000.0


class Ingress:
    """One ingress process."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._keys = KeyRing()
        self._accounts = Accounts(_monotonic_ms, config.ingress_replicas)
        self._metrics = Metrics(contract_cap=config.metric_contracts)
        self._surroundings = self._find_surroundings()
        self._store = ContractStore(
            self._surroundings.source, changed=self._contracts_changed, pools=self._surroundings.pools
        )
        self._fleet = Fleet(config, ingress_id=_own_name(config), version=_VERSION)
        self._ledgers = LedgerBudget(config.limits.ledger_tokens)
        self._metrics.watch(self._accounts, self._fleet, self._ledgers, _monotonic_ms)
        self._access = None if config.access_log == "Off" else LineSink(sys.stderr, close=False)
        self._requests = None
        if config.request_log is not None:
            self._requests = LineSink(config.request_log.open("a", encoding="utf-8"), close=True)
        placement = Placement(
            self._fleet,
            clock_ms=_monotonic_ms,
            decision_timeout_ms=config.decision_timeout_ms,
            enforce=config.admission == "Enforce",
            salt_key=_salt_key(config.cache_salt_key_file),
        )
        reach = self._reach = Reach(
            self._fleet,
            directory=lambda: self._store.directory,
            pools=self._surroundings.pools,
            default_contract=self._default_contract,
        )
        self._completions = Completions(
            config,
            fleet=self._fleet,
            placement=placement,
            resumption=Resumption(
                self._fleet,
                placement,
                policy=RetryPolicy(config.resume.within * 1000.0),
                blame=BlamePolicy.of(config.resume.attempts),
                clock_ms=_monotonic_ms,
                counted=self._metrics.resumed,
            ),
            accounts=self._accounts,
            directory=lambda: self._store.directory,
            reach=reach,
            ledgers=self._ledgers,
            clocks=Clocks(_monotonic_ms, _unix_ms),
            finished=self._finished,
        )
        self._metrics.in_flight.set_function(lambda: self._completions.in_flight)

    async def run(self, on_ready: Callable[[int], None]) -> None:
        """Serve until told to stop."""
        followers = Followers(
            executors=self._fleet.follow,
            replicas=self._accounts.share,
            keys=self._take_keys,
            contracts=self._store.reload,
        )
        await self._surroundings.begin(followers)
        application = Application(
            self._config,
            completions=self._completions,
            fleet=self._fleet,
            metrics=self._metrics,
            keys=lambda: self._keys,
            surroundings=self._surroundings,
            reach=self._reach,
            contracts=ContractsApi(self._store, self._accounts, _monotonic_ms).handle,
        )
        server = IngressServer(self._config, application, self._completions)
        self._fleet.start()
        following = asyncio.create_task(self._surroundings.follow(followers))
        try:
            await server.run_until_told(lambda: on_ready(server.port))
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await self._fleet.close()
            for sink in (self._access, self._requests):
                if sink is not None:
                    await sink.close()

    def _find_surroundings(self) -> Surroundings:
        config = self._config
        if config.kubernetes is None:
            return LocalFiles(config)
        # Imported only here: one machine needs none of it.
        from superinfer_ingress.cluster.membership import ClusterMember

        return ClusterMember(
            config,
            config.kubernetes,
            accounts=self._accounts,
            clock_ms=_monotonic_ms,
            registry=self._metrics.registry,
        )

    def _take_keys(self, keys: KeyRing) -> None:
        self._keys = keys

    def _default_contract(self, pool: str) -> str | None:
        """Service key of a pool's default contract; what is no object's key is one already."""
        key = self._surroundings.default_contract(pool)
        resolved = None if key is None else self._store.resolution.contracts.get(key)
        return key if resolved is None else resolved.service_key

    def _contracts_changed(self, resolution: Resolution) -> None:
        self._accounts.follow(resolution.effective.values())

    def _finished(self, record: Record) -> None:
        self._metrics.finished(record)
        if self._access is not None:
            as_json = self._config.access_log == "Json"
            self._access.add(access_line(record, as_json=as_json, unix_s=time.time()))
        if self._requests is not None:
            self._requests.add(_encode(record.as_json()).decode())


def _own_name(config: Config) -> str:
    """In a cluster all replicas have one configuration, and each the name of its pod."""
    return config.name if config.kubernetes is None else os.environ.get("POD_NAME", config.name)


def _salt_key(path: Path | None) -> bytes | None:
    return None if path is None else read_small_bytes(path).strip()
