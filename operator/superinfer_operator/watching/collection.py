"""Objects of one kind in some namespaces, or in all of them, as one collection.

Promise: what is known is the same mapping however many watches tell it; each is heard, and in trouble, by
itself. Concurrency: as of the informers it is made of.
"""

from collections import ChainMap
from collections.abc import Callable, Collection, Mapping, MutableMapping
from typing import Any, Generic, TypeVar, cast

from superinfer_kube.client import KubeClient
from superinfer_kube.informer import Informer, Key
from superinfer_kube.resources import Resource

T = TypeVar("T")


class NamespacedCollection(Generic[T]):
    """One watch for every namespace, or one for all."""

    def __init__(
        self,
        client: KubeClient,
        resource: Resource,
        parse: Callable[[dict[str, Any]], T],
        *,
        namespaces: Collection[str] | None,
        labels: str,
    ) -> None:
        """Prepare the watches.

        Args:
            client: of the cluster.
            resource: a namespaced kind.
            parse: makes an object of a document.
            namespaces: where to look; None everywhere.
            labels: a selector.
        """
        places = (None,) if namespaces is None else tuple(sorted(namespaces))
        self.informers = tuple(
            Informer(client, resource, parse, namespace=place, labels=labels) for place in places
        )
        # Nothing writes through it: keys of different namespaces never meet.
        parts = [cast("MutableMapping[Key, T]", informer.objects) for informer in self.informers]
        self.objects: Mapping[Key, T] = ChainMap(*parts)
