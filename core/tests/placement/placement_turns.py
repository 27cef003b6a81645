"""Things that happen to a cluster, drawn at random."""

from dataclasses import replace

from hypothesis import strategies as st
from placement_cases import UNHEALTHY, switched
from placement_world import World

from superinfer_core.placement.demand import PoolDemand
from superinfer_core.placement.node import HEALTHY, Node

KINDS = ("cordon", "sicken", "heal", "lose", "remove", "add", "scale", "more", "drop", "revise")


@st.composite
def random_turns(draw: st.DrawFn, kinds: tuple[str, ...] = KINDS) -> list[tuple[str, int]]:
    """Kinds of turns, each with a number that says what it is about."""
    return draw(st.lists(st.tuples(st.sampled_from(kinds), st.integers(0, 9)), min_size=1, max_size=6))


def turn(world: World, kind: str, which: int, spare: tuple[PoolDemand, ...], now: float = 0.0) -> None:
    """Change one thing."""
    if kind == "add":
        world.nodes += (switched(f"new{len(world.nodes)}-{which}", gpus=2),)
    elif kind == "more":
        fresh = {p.key: p for p in spare if p.key not in {q.key for q in world.pools}}
        world.pools += tuple(list(fresh.values())[:1])
    elif world.nodes and kind in ("cordon", "sicken", "heal", "lose", "remove"):
        _turn_node(world, kind, which, now)
    elif world.pools and kind in ("scale", "drop", "revise"):
        one = world.pools[which % len(world.pools)]
        if kind == "drop":
            world.pools = tuple(other for other in world.pools if other is not one)
        elif kind == "scale":
            world.replace_pool(replace(one, replicas=which))
        else:
            world.replace_pool(replace(one, revision=f"r{which}"))


def _turn_node(world: World, kind: str, which: int, now: float) -> None:
    node: Node = world.nodes[which % len(world.nodes)]
    if kind == "remove":
        world.nodes = tuple(other for other in world.nodes if other is not node)
    elif kind == "cordon":
        world.replace_node(replace(node, schedulable=not node.schedulable))
    elif kind == "lose":
        world.replace_node(replace(node, ready=not node.ready, not_ready_since=now if node.ready else None))
    elif node.topology is not None and node.topology.gpus:
        gpus = list(node.topology.gpus)
        at = which % len(gpus)
        gpus[at] = replace(gpus[at], health=UNHEALTHY if kind == "sicken" else HEALTHY)
        world.replace_node(replace(node, topology=replace(node.topology, gpus=tuple(gpus))))
