"""Makes the ConfigMaps that pools refer to watched: the operator watches only those with its label.

So that nobody has to know of the label, it is put on a ConfigMap the first time a pool refers to it. A
reference to something that is not there is looked up again from time to time, not in every round. One task.
"""

from collections.abc import Iterable
from typing import Final

from superinfer_kube.errors import KubeError, NotFound
from superinfer_kube.resources import CONFIG_MAPS
from superinfer_operator.placing.setup import PoolSetup
from superinfer_operator.reconciling.clock import Now
from superinfer_operator.reconciling.writing import Writer
from superinfer_operator.watching.cluster import CONFIG_LABEL

LOOK_AGAIN_S: Final = 30.0


class ReferenceKeeper:
    """Labels what is referred to."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._looked: dict[tuple[str, str], float] = {}
        self.next_at: float | None = None
        """When to look again; None where nothing is missing."""

    async def keep(self, setups: Iterable[PoolSetup], now: Now) -> None:
        """Label the ConfigMaps that pools refer to and that are not watched yet."""
        missing = {reference for setup in setups for reference in setup.missing}
        self._looked = {ref: at for ref, at in self._looked.items() if ref in missing}
        for reference in sorted(missing):
            if now.seconds - self._looked.get(reference, -LOOK_AGAIN_S) < LOOK_AGAIN_S:
                continue
            self._looked[reference] = now.seconds
            await self._label(*reference)
        self.next_at = min(self._looked.values(), default=now.seconds) + LOOK_AGAIN_S if missing else None

    async def _label(self, namespace: str, name: str) -> None:
        try:
            found = await self._writer.api.get(CONFIG_MAPS, name, namespace)
        except NotFound:
            return
        except KubeError as error:
            self._writer.failures.append(error)
            return
        metadata = {
            "name": name,
            "namespace": namespace,
            "uid": found["metadata"]["uid"],
            "labels": {CONFIG_LABEL: "true"},
        }
        await self._writer.apply(CONFIG_MAPS, {"metadata": metadata})
