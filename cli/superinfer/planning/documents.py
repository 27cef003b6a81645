"""Reads the objects a plan is made from, as `kubectl get -o yaml` prints them, into a snapshot.

Everything goes through the operator's own readers, so that a plan made here is the operator's. What only the
cluster knows is left out: scheduling policies, profiles whose ConfigMap is not among the files (then no
shapes are told, and why), and the revision of pods; executors that run are taken to be up to date.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from superinfer_core.contract.inheritance import StoredContract
from superinfer_core.contract.parse import stored_from_resource
from superinfer_core.contract.problems import ContractInvalid
from superinfer_core.placement import Node, Topology
from superinfer_core.small_input import small_input
from superinfer_core.words import shown
from superinfer_core.yaml_text import NotYaml, load_yaml_documents
from superinfer_ingress.small_file import read_small_bytes
from superinfer_operator.watching.hardware import NodeHardware, hardware_reader
from superinfer_operator.watching.nodes import node_facts
from superinfer_operator.watching.objects import TextRecord, text_record
from superinfer_operator.watching.pods import ExecutorPod, ForeignPod, pod_facts
from superinfer_operator.watching.pools import pool_record

STDIN: Final = "-"
SUFFIXES: Final = (".yaml", ".yml", ".json")
MAX_BYTES: Final = 512 << 20
"""Of one file: 10,000 nodes with their pods are less than half of that."""


class CannotPlan(Exception):
    """Something cannot be read; says what, where and what to do."""


@dataclass(slots=True)
class World:
    """What was read.

    Attributes:
        pools: documents, those of pools that are not accepted too.
        texts: ConfigMaps.
        nodes, hardware, executors, held: as the operator watches them.
        contracts: all of them.
        ignored: kinds that have no say in placement, with their number.
    """

    pools: list[dict[str, Any]] = field(default_factory=list)
    texts: dict[tuple[str, str], TextRecord] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    hardware: dict[str, NodeHardware] = field(default_factory=dict)
    executors: list[ExecutorPod] = field(default_factory=list)
    held: dict[tuple[str, str], int] = field(default_factory=dict)
    contracts: list[StoredContract] = field(default_factory=list)
    ignored: dict[str, int] = field(default_factory=dict)

    @property
    def pool_keys(self) -> set[str]:
        """Every pool, by namespace/name."""
        return {_key(document) for document in self.pools}

    @property
    def topologies(self) -> dict[str, Topology]:
        """The hardware that is known, by node."""
        return {name: one.topology for name, one in self.hardware.items() if one.topology is not None}


def read_world(files: Sequence[str], namespace: str) -> World:
    """Everything in the files, `-` for stdin.

    Args:
        files: YAML or JSON, several documents and Lists in one are fine.
        namespace: of objects that name none.

    Raises:
        CannotPlan: a file or an object cannot be read.
    """
    world = World()
    read_hardware = hardware_reader()
    readers: dict[str, Callable[[dict[str, Any]], None]] = {
        "ChipletPool": lambda document: world.pools.append(_pool(document)),
        "ConfigMap": lambda document: _add_text(world, text_record(document)),
        "Node": lambda document: _add_node(world, node_facts(document)),
        "NodeTopology": lambda document: world.hardware.update(
            {document["metadata"]["name"]: read_hardware(document)}
        ),
        "Pod": lambda document: _add_pod(world, document),
        "SLOContract": lambda document: world.contracts.append(stored_from_resource(document)),
    }
    for place, document in _documents(files):
        kind = str(document.get("kind") or "")
        reader = readers.get(kind)
        if reader is None:
            world.ignored[kind or "(no kind)"] = world.ignored.get(kind or "(no kind)", 0) + 1
            continue
        name = _identified(place, kind, document, namespace)
        try:
            reader(document)
        except ValidationError as problem:
            first = problem.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise CannotPlan(f"{place}: {kind} {name}: {where}: {first['msg']}") from None
        except ContractInvalid as problem:
            raise CannotPlan(f"{place}: {kind} {name}: {problem}") from None
        except ValueError as problem:
            raise CannotPlan(f"{place}: {kind} {name} cannot be read: {problem!s:.200}") from None
        except (LookupError, TypeError, AttributeError, ArithmeticError) as problem:
            raise CannotPlan(f"{place}: {kind} {name} cannot be read: {problem!r:.200}") from None
    return world


def _identified(place: str, kind: str, document: dict[str, Any], namespace: str) -> str:
    """The name of an object, which gets the namespace and uid it lacks."""
    metadata = document.setdefault("metadata", {})
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not name:
        raise CannotPlan(f"{place}: {kind} without metadata.name; give it one")
    own = metadata.get("namespace") or ""
    if not isinstance(own, str):
        raise CannotPlan(f"{place}: {kind} {name}: metadata.namespace is {shown(own)}; write its name")
    if kind not in ("Node", "NodeTopology"):
        own = metadata["namespace"] = own or namespace
    metadata.setdefault("uid", f"{kind}/{own}/{name}")
    return name


def _add_node(world: World, node: Node) -> None:
    world.nodes[node.name] = node


def _add_pod(world: World, document: dict[str, Any]) -> None:
    pod = pod_facts(document)
    if isinstance(pod, ForeignPod):
        for resource, amount in pod.requests:
            world.held[pod.node, resource] = world.held.get((pod.node, resource), 0) + amount
    else:
        world.executors.append(pod)


def _add_text(world: World, text: TextRecord) -> None:
    world.texts[text.namespace, text.name] = text


def _pool(document: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(document.get("spec"), dict):
        raise ValueError(f"spec is {shown(document.get('spec'))}; write the fields of a pool under it")
    pool_record(document)  # says at once what cannot be read at all
    return document


def _key(document: dict[str, Any]) -> str:
    return f"{document['metadata']['namespace']}/{document['metadata']['name']}"


def _documents(files: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in files:
        for place, text in _texts(name):
            try:
                loaded = load_yaml_documents(text)
            except NotYaml as problem:
                raise CannotPlan(f"{place}: not YAML: {problem}") from None
            yield from _flat(place, loaded)


def _flat(place: str, documents: Iterable[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for document in documents:
        if document is None:
            continue
        if not isinstance(document, dict):
            raise CannotPlan(f"{place}: holds {type(document).__name__}, not an object")
        if str(document.get("kind") or "").endswith("List") and isinstance(document.get("items"), list):
            kind = str(document["kind"]).removesuffix("List")
            items = document["items"]
            named = ({"kind": kind, **item} if kind and isinstance(item, dict) else item for item in items)
            yield from _flat(place, named)
        else:
            yield place, document


def _texts(name: str) -> Iterator[tuple[str, bytes]]:
    """What is to be read under a name, and where it is from; a directory means every document below it."""
    try:
        if name == STDIN:
            yield "stdin", small_input(sys.stdin.buffer.read, "stdin", MAX_BYTES)
            return
        if not name:
            raise CannotPlan("-f is empty; give a file, a directory, or - for stdin")
        path = Path(name)
        files = sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES) if path.is_dir() else [path]
        if not files:
            raise CannotPlan(f"{name}: holds no {', '.join(f'*{one}' for one in SUFFIXES)}")
        for file in files:
            yield str(file), read_small_bytes(file, MAX_BYTES)
    except OSError as error:
        raise CannotPlan(f"{error.filename or name}: {error.strerror or error}") from None
