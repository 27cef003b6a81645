"""What this ingress knows of each contract's past: quota, rolling window, error budget.

Promises: an edited contract keeps its requests in flight and its quota's debt; its window starts anew only
when what is counted (objectives, jitter, window) changed. Reading a window costs a few microseconds at most
every quarter of a second, not once per request.
Concurrency: owned by the event loop.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from superinfer_core.contract.budget import WindowState
from superinfer_core.contract.effective import EffectiveContract
from superinfer_core.contract.fulfilment import Attainment, ContractWindow, RequestOutcome
from superinfer_core.contract.quota import QuotaState
from superinfer_core.slo import RequestSlo

_STATE_AGE_MS: Final = 250.0


class Account:
    """One contract's books."""

    __slots__ = ("_state", "_state_ms", "contract", "quota", "window")

    def __init__(self, contract: EffectiveContract, now_ms: float, replicas: int) -> None:
        self.contract = contract
        self.quota = QuotaState(contract.quota, now_ms=now_ms, replicas=replicas)
        self.window = ContractWindow(contract)
        self._state = WindowState()
        self._state_ms = float("-inf")

    def follow(self, contract: EffectiveContract, now_ms: float) -> None:
        """The contract was edited."""
        if contract.quota != self.contract.quota:
            self.quota.update(now_ms, quota=contract.quota)
        if _counted(contract) != _counted(self.contract):
            self.window = ContractWindow(contract)
            self._state_ms = float("-inf")
        self.contract = contract

    def state(self, now_ms: float) -> WindowState:
        """Whether the window can still be saved, and what is left of its budget; a little old at times."""
        if now_ms - self._state_ms > _STATE_AGE_MS:
            self._state = self.window.state(now_ms)
            self._state_ms = now_ms
        return self._state

    def record(self, now_ms: float, outcome: RequestOutcome, slo: RequestSlo | None = None) -> bool:
        """Count a finished request; True if it kept everything it was promised.

        Without `slo` it is held to the contract's own targets.
        """
        return self.window.record(now_ms, outcome, slo)

    def attainment(self, now_ms: float) -> Attainment:
        """The contract over the window that ends now."""
        return self.window.attainment(now_ms)


class Accounts:
    """The books of every contract in effect."""

    def __init__(self, clock_ms: Callable[[], float], replicas: int) -> None:
        self._clock_ms = clock_ms
        self._replicas = replicas
        self._accounts: dict[str, Account] = {}

    def __iter__(self) -> Iterator[Account]:
        """Every account."""
        return iter(self._accounts.values())

    def share(self, replicas: int) -> None:
        """So many ready replicas share every quota from now on."""
        if replicas == self._replicas:
            return
        self._replicas = replicas
        now_ms = self._clock_ms()
        for account in self._accounts.values():
            account.quota.update(now_ms, replicas=replicas)

    def of(self, contract: EffectiveContract) -> Account:
        """The books of a contract in effect."""
        account = self._accounts.get(contract.key)
        if account is None:
            account = self._accounts[contract.key] = Account(contract, self._clock_ms(), self._replicas)
        return account

    def follow(self, contracts: Iterable[EffectiveContract]) -> None:
        """The contracts in effect changed."""
        now_ms = self._clock_ms()
        current = {contract.key: contract for contract in contracts}
        for key in [key for key in self._accounts if key not in current]:
            del self._accounts[key]
        for key, contract in current.items():
            account = self._accounts.get(key)
            if account is None:
                self._accounts[key] = Account(contract, now_ms, self._replicas)
            elif account.contract != contract:
                account.follow(contract, now_ms)


def _counted(contract: EffectiveContract) -> tuple[object, ...]:
    return contract.objectives, contract.max_jitter_ms, contract.window_s, contract.availability
