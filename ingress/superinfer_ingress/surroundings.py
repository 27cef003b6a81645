"""Where contracts, pools, executors and keys come from: files and lists of one machine, or a cluster.

The rest of the ingress does not know which. What changes is told to the `Followers`; `ready` says whether
enough is known to serve by.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from superinfer_core.contract.conflicts import PoolFacts
from superinfer_ingress.config import Config, ExecutorSettings
from superinfer_ingress.contracts.files import DirectorySource
from superinfer_ingress.contracts.keys import KeyRing, KeysInvalid, load_keys
from superinfer_ingress.contracts.selection import DEFAULT_NAMESPACE
from superinfer_ingress.contracts.source import ContractSource, MemorySource
from superinfer_ingress.watching import watch

_log = logging.getLogger("superinfer.ingress")


@dataclass(frozen=True, slots=True)
class Followers:
    """Who hears of what changed."""

    executors: Callable[[Iterable[ExecutorSettings]], None]
    replicas: Callable[[int], None]
    """So many ready replicas share the quotas."""
    keys: Callable[[KeyRing], None]
    contracts: Callable[[], Awaitable[None]]
    """Contracts or pools changed: read them again."""


class Surroundings(Protocol):
    """What an ingress serves by."""

    @property
    def source(self) -> ContractSource:
        """Where contracts are kept."""
        ...

    def pools(self) -> Iterable[PoolFacts] | None:
        """Every pool; None where there is nothing to know of them."""
        ...

    def default_contract(self, pool: str) -> str | None:
        """Service or object key of a pool's default contract."""
        ...

    async def begin(self, followers: Followers) -> None:
        """Tell everything that can be told before the first request."""
        ...

    async def follow(self, followers: Followers) -> None:
        """Tell what changes, for as long as the task lives."""
        ...

    def waiting_for(self, *, serving: bool) -> str | None:
        """What is still missing for this ingress to be worth sending requests to; None if nothing is.

        `serving`: whether any executor takes work.
        """
        ...

    def detail(self) -> Mapping[str, Any]:
        """What /readyz says beside that."""
        ...


class LocalFiles:
    """Executors and pools of the configuration; contracts and keys of files, which may change."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.source: ContractSource = MemorySource()
        if config.contracts is not None:
            config.contracts.mkdir(parents=True, exist_ok=True)
            self.source = DirectorySource(config.contracts, default_namespace=DEFAULT_NAMESPACE)
        # Read here, so that keys that cannot be used end the start with what is wrong with them.
        self._first_keys = KeyRing() if config.keys is None else load_keys(config.keys)

    def pools(self) -> None:
        """A configuration says too little of its pools to judge contracts by it."""

    def default_contract(self, pool: str) -> str | None:
        """As configured."""
        settings = self._config.pools.get(pool)
        return None if settings is None else settings.default_contract

    async def begin(self, followers: Followers) -> None:
        """Everything there is, before the first request."""
        followers.keys(self._first_keys)
        await followers.contracts()

    async def follow(self, followers: Followers) -> None:
        """Read files again when they change."""

        async def changed() -> None:
            await followers.contracts()
            if self._config.keys is not None:
                try:
                    followers.keys(await asyncio.to_thread(load_keys, self._config.keys))
                except KeysInvalid as error:
                    _log.warning("keys stay as they were: %s", error)

        await watch(self._watched(), changed)

    def waiting_for(self, *, serving: bool) -> str | None:
        """Executors are all there is to wait for."""
        return None if serving else "no executor is serving"

    def detail(self) -> Mapping[str, Any]:
        """Nothing more to say."""
        return {}

    def _watched(self) -> Sequence[Path]:
        paths = [self._config.contracts] if self._config.contracts is not None else []
        if self._config.keys is not None:
            # The directory: editors and Kubernetes replace the file instead of writing into it.
            paths.append(self._config.keys.resolve().parent)
        return list(dict.fromkeys(paths))
