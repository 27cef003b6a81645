"""Which executors somebody may reach without naming a contract, and what they are under then.

A contract names its pool. Without one an asker reaches only pools that serve one of its namespaces, or that a
contract it may use is bound to: not whatever executors there are. Owned by the event loop.
"""

from collections.abc import Callable, Iterable, Sequence

from superinfer_core.contract.conflicts import PoolFacts
from superinfer_core.refusal import RefusalCode
from superinfer_core.words import shown
from superinfer_ingress.contracts.selection import Asker, Directory, visible_pools
from superinfer_ingress.executors.fleet import Fleet
from superinfer_ingress.executors.link import ExecutorLink
from superinfer_ingress.http.errors import refused


class Reach:
    """What askers reach."""

    def __init__(
        self,
        fleet: Fleet,
        *,
        directory: Callable[[], Directory],
        pools: Callable[[], Iterable[PoolFacts] | None],
        default_contract: Callable[[str], str | None],
    ) -> None:
        self._fleet = fleet
        self._directory = directory
        self._pools = pools
        self._default_contract = default_contract

    def executors(self, asker: Asker) -> Sequence[ExecutorLink]:
        """The executors an asker may know of: other tenants' are none of its business."""
        return self._within(self._visible(asker))

    def default_contract(self, asker: Asker, model: str) -> str | None:
        """Service key of the contract that a pool in reach has for requests that name none."""
        for link in self._fleet.serving_model(self.executors(asker), model):
            default = self._default_contract(link.settings.pool)
            if default is not None:
                return default
        return None

    def best_effort_pool(self, asker: Asker, model: str) -> str | None:
        """The pool of a request under no contract; None where every pool will do.

        Raises:
            Refused: model_not_found where no pool in reach serves the model.
        """
        visible = self._visible(asker)
        if visible is None:
            return None
        links = self._fleet.serving_model(self._within(visible), model)
        if not links:
            raise refused(
                RefusalCode.MODEL_NOT_FOUND,
                f"model: no pool this key may use serves {shown(model)}; GET /v1/models lists what there is",
                "model",
            )
        return min(links, key=lambda link: (not link.serving, link.settings.pool)).settings.pool

    def _visible(self, asker: Asker) -> frozenset[str] | None:
        return visible_pools(self._directory(), asker, self._pools())

    def _within(self, visible: frozenset[str] | None) -> Sequence[ExecutorLink]:
        return [link for link in self._fleet.links if visible is None or link.settings.pool in visible]
