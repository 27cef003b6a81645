"""/v1/contracts: post, put, list, read and delete contracts, with how they are doing.

Whoever calls has been let through as an administrator of some namespaces; contracts of others are as if they
were not there. Contract errors are 400 with every wrong field named; a contract that contradicts others is
409 with both sides and what would settle it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

import msgspec

from superinfer_core.api.v1alpha1.slocontract import SLOContract
from superinfer_core.contract.document import load_document
from superinfer_core.contract.effective import EffectiveContract
from superinfer_core.contract.fulfilment import Attainment
from superinfer_core.contract.inheritance import StoredContract
from superinfer_core.contract.parse import parse_contract
from superinfer_core.contract.problems import ContractInvalid
from superinfer_core.refusal import Refusal, RefusalCode
from superinfer_core.words import shown
from superinfer_ingress.contracts.accounts import Accounts
from superinfer_ingress.contracts.selection import DEFAULT_NAMESPACE, Asker
from superinfer_ingress.contracts.source import FiledContract, NotWritten
from superinfer_ingress.contracts.store import ContractConflict, ContractStore, OwnedElsewhere
from superinfer_ingress.http.errors import Refused, refused
from superinfer_ingress.http.exchange import Exchange

_ROOT = "/v1/contracts"
_LISTED_PER_TURN: Final = 16
_encode = msgspec.json.Encoder().encode


class ContractsApi:
    """The handler of everything under /v1/contracts."""

    def __init__(self, store: ContractStore, accounts: Accounts, clock_ms: Callable[[], float]) -> None:
        self._store = store
        self._accounts = accounts
        self._clock_ms = clock_ms

    async def handle(self, exchange: Exchange, path: str, asker: Asker) -> None:
        """Serve one request of an administrator.

        Raises:
            Refused: with a 4xx, for everything a caller can get wrong.
        """
        method = exchange.scope["method"]
        rest = path.removeprefix(_ROOT).strip("/")
        if not rest:
            if method == "GET":
                exchange.json(200, await self._list(asker))
            elif method == "POST":
                await self._keep(exchange, await self._posted(exchange), asker)
            else:
                raise _not_allowed(method, "GET, POST")
            return
        if method == "PUT":
            await self._put(exchange, rest, asker)
            return
        if method not in ("GET", "DELETE"):
            raise _not_allowed(method, "GET, PUT, DELETE")
        filed = self._find(rest, asker)
        if method == "GET":
            exchange.json(200, _encode(self._describe(filed)))
            return
        try:
            await self._store.delete(filed)
        except OwnedElsewhere as owned:
            raise _owned_elsewhere(owned) from None
        except NotWritten as error:
            raise _not_written(error) from None
        deleted = {"object": "contract", "id": filed.stored.service_key, "deleted": True}
        exchange.json(200, _encode(deleted))

    async def _put(self, exchange: Exchange, rest: str, asker: Asker) -> None:
        """As POST, for the contract the path names; one that is not there yet is made."""
        contract = await self._posted(exchange)
        stored = StoredContract.of(contract, namespace=DEFAULT_NAMESPACE)
        asked = rest if "/" in rest else f"{DEFAULT_NAMESPACE}/{rest}"
        if asked not in (stored.service_key, stored.object_key):
            message = f"the document is contract {stored.service_key}, the path says {shown(asked)}"
            raise refused(RefusalCode.INVALID_REQUEST, f"{message}; make them the same", "name")
        await self._keep(exchange, contract, asker)

    async def _posted(self, exchange: Exchange) -> SLOContract:
        raw = await exchange.body()
        try:
            return parse_contract(load_document(raw))
        except ContractInvalid as invalid:
            first = invalid.problems[0]
            raise refused(RefusalCode.INVALID_REQUEST, str(invalid), first.field) from None

    async def _keep(self, exchange: Exchange, contract: SLOContract, asker: Asker) -> None:
        stored = StoredContract.of(contract, namespace=DEFAULT_NAMESPACE)
        if not asker.administers(stored.namespace):
            message = f"this key may not manage contracts of namespace {shown(stored.namespace)}"
            raise refused(RefusalCode.FORBIDDEN, f"{message}; use an admin key of that namespace")
        # What is kept is the long form, whatever was posted.
        kept = contract.model_dump(mode="json", by_alias=True, exclude_none=True)
        try:
            filed, is_new = await self._store.put(stored, kept)
        except ContractConflict as conflict:
            problem = conflict.problems[0]
            raise Refused(
                Refusal(RefusalCode.INVALID_REQUEST, str(conflict), problem.field or None), status=409
            ) from None
        except OwnedElsewhere as owned:
            raise _owned_elsewhere(owned) from None
        except NotWritten as error:
            raise _not_written(error) from None
        exchange.json(201 if is_new else 200, _encode(self._describe(filed)))

    def _find(self, rest: str, asker: Asker) -> FiledContract:
        key = rest if "/" in rest else f"{DEFAULT_NAMESPACE}/{rest}"
        filed = self._store.find(key)
        if filed is None or not asker.administers(filed.stored.namespace):
            raise refused(
                RefusalCode.UNKNOWN_CONTRACT,
                f"there is no contract {shown(key)}; GET {_ROOT} lists those there are",
                "contract",
            )
        return filed

    async def _list(self, asker: Asker) -> bytes:
        """All the asker may manage, a few at a time: thousands must not hold up the streams here."""
        pieces: list[bytes] = []
        for number, filed in enumerate(tuple(self._store.all())):
            if number % _LISTED_PER_TURN == _LISTED_PER_TURN - 1:
                await asyncio.sleep(0)
            if asker.administers(filed.stored.namespace):
                pieces.append(_encode(self._describe(filed)))
        problems = _encode([asdict(problem) for problem in self._store.problems])
        return b'{"object":"list","data":[%b],"problems":%b}' % (b",".join(pieces), problems)

    def _describe(self, filed: FiledContract) -> dict[str, Any]:
        stored = filed.stored
        resolved = self._store.resolution.contracts.get(stored.object_key)
        effective = resolved.effective if resolved is not None else None
        problems = resolved.problems if resolved is not None else ()
        return {
            "object": "contract",
            "id": stored.service_key,
            "name": stored.name,
            "namespace": stored.namespace,
            "created": stored.created,
            "generation": stored.generation,
            "file": filed.file or None,
            "owner": filed.owner or None,
            "accepted": effective is not None,
            "problems": [{**asdict(problem), "kind": problem.kind.value} for problem in problems],
            "spec": filed.document.get("spec", filed.document),
            "effective": _effective(effective) if effective is not None else None,
            "attainment": self._attainment(effective) if effective is not None else None,
        }

    def _attainment(self, contract: EffectiveContract) -> dict[str, Any]:
        account = self._accounts.of(contract)
        return attainment_object(account.attainment(self._clock_ms()), contract, account.quota.in_flight)


def attainment_object(attainment: Attainment, contract: EffectiveContract, in_flight: int) -> dict[str, Any]:
    """How a contract is doing over its window, as JSON."""
    counts = attainment.counts
    promises = [
        {
            "metric": entry.objective.metric.value,
            "percentile": entry.objective.percentile,
            "target_ms": entry.objective.target_ms,
            **_budget(entry.budget),
        }
        for entry in attainment.objectives
    ]
    return {
        "fulfilled": attainment.fulfilled if counts.offered else None,
        "holds": attainment.holds,
        "budget_left": round(attainment.budget_left, 4),
        "window_s": contract.window_s,
        "window_covered": round(attainment.covered, 4),
        "in_flight": in_flight,
        "offered": counts.offered,
        "served": counts.served,
        "admitted": counts.admitted,
        "kept": counts.kept,
        "degraded": counts.degraded,
        "cancelled": counts.cancelled,
        "excluded": counts.excluded,
        "objectives": promises,
        "jitter": _budget(attainment.jitter) if attainment.jitter is not None else None,
        "availability": _budget(attainment.availability) if attainment.availability is not None else None,
    }


def _budget(budget: Any) -> dict[str, Any]:
    return {
        "promised_percent": budget.percent,
        "considered": budget.considered,
        "missed": budget.missed,
        "share": round(budget.share, 6),
        "budget_left": round(budget.left, 4),
        "met": budget.met,
    }


def _effective(contract: EffectiveContract) -> dict[str, Any]:
    return {
        "tier": contract.tier.value,
        "priority": contract.priority,
        "objectives": [
            {"metric": o.metric.value, "percentile": o.percentile, "targetMs": o.target_ms}
            for o in contract.objectives
        ],
        "maxJitterMs": contract.max_jitter_ms,
        "availability": contract.availability,
        "windowS": contract.window_s,
        "onInfeasible": contract.on_infeasible.value,
        "fallback": contract.fallback,
        "parent": contract.parent,
        "pool": contract.pool,
    }


def _not_allowed(method: str, allowed: str) -> Refused:
    refusal = Refusal(RefusalCode.INVALID_REQUEST, f"{method} is not allowed here; use {allowed}")
    return Refused(refusal, status=405, allow=allowed)


def _not_written(error: NotWritten) -> Refused:
    refusal = Refusal(RefusalCode.INVALID_REQUEST, str(error))
    return Refused(refusal, status=error.status, retry_after_ms=error.retry_after_ms)


def _owned_elsewhere(owned: OwnedElsewhere) -> Refused:
    return Refused(Refusal(RefusalCode.INVALID_REQUEST, str(owned), "name"), status=409)
