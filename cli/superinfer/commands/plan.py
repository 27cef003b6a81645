"""`superinfer plan`: where executors would go, and why others would not, without touching anything."""

import time
from pathlib import Path
from typing import Annotated

import typer

from superinfer import exit_codes
from superinfer.numbers import finite
from superinfer.output import Output, OutputOption, emit_json, fail
from superinfer.planning.documents import CannotPlan, World, read_world
from superinfer.planning.outlook import Outlook, look_ahead
from superinfer.planning.report import (
    offers_json,
    plan_json,
    print_offers,
    print_plan,
    print_repacking,
    repacking_json,
)
from superinfer_core.placement.geometry import GpuProduct, product_named
from superinfer_core.placement.index import PlacementIndex
from superinfer_core.placement.repack import repack
from superinfer_core.placement.shape_options import ShapeTerms, UnknownShape, shape_options
from superinfer_core.placement.shapes import ShapeOffer, Traffic, offers
from superinfer_core.prediction.profile import Profile, ProfileInvalid
from superinfer_ingress.small_file import read_small_text

HELP = """Plan placement: which executor on which chiplet, and node by node why others have none.

Reads what `kubectl get -o yaml` prints (ChipletPools, Nodes, NodeTopologies, Pods, SLOContracts, and the
ConfigMaps of profiles) and plans as the operator does, changing nothing; `pools` of the JSON is the status
each pool would get. --replicas asks "what if". With contracts and --profile it also shows the shapes that
would keep each contract, and what they trade: cost, latency margin, loss with a node.

\b
Examples:
  kubectl get nodes,nodetopologies,chipletpools,pods,slocontracts -A -o yaml | superinfer plan -f -
  superinfer plan -f pools.yaml --nodes nodes.yaml --replicas shop/chat=12
  superinfer plan -f cluster.yaml -f contract.yaml --profile 3g.71gb=profile.json --rps 20

\b
Exit codes:
  0  everything has a place
  1  something has none; the reasons are shown
  2  a file cannot be read"""

Files = Annotated[
    list[str], typer.Option("--file", "-f", help="Files or directories of objects; - reads stdin.")
]


def plan(
    files: Files,
    nodes: Annotated[
        list[str] | None, typer.Option(help="More files, e.g. nodes for pools planned elsewhere.")
    ] = None,
    namespace: Annotated[str, typer.Option(help="Namespace of objects that name none.")] = "default",
    replicas: Annotated[
        list[str] | None, typer.Option(help="What if: [namespace/]pool=number.", metavar="POOL=N")
    ] = None,
    profiles: Annotated[
        list[str] | None,
        typer.Option("--profile", help="Measured profile of a shape (3g.71gb, GPU).", metavar="SHAPE=FILE"),
    ] = None,
    rps: Annotated[
        float | None, typer.Option(callback=finite, help="Requests a second of each contract.", min=0.001)
    ] = None,
    prompt_tokens: Annotated[int, typer.Option(help="Prompt of a typical request.", min=1)] = 512,
    output_tokens: Annotated[int, typer.Option(help="Output of a typical request.", min=1)] = 128,
    memory_mib: Annotated[
        int | None, typer.Option(help="GPU memory for weights and KV cache; smaller shapes are left out.")
    ] = None,
    moves: Annotated[
        bool, typer.Option("--repack", help="Also look for moves that would make room (a few seconds).")
    ] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """See HELP."""
    try:
        world = read_world([*files, *(nodes or ())], namespace)
    except CannotPlan as problem:
        fail(str(problem), code=exit_codes.USAGE)
    now = time.time()
    ahead = look_ahead(world, _replicas(replicas or (), world, namespace), now)
    traffic = Traffic(prompt_tokens, output_tokens, rps)
    found = repack(ahead.snapshot, now) if moves else None
    trade = _trade_offs(ahead, _profiles(profiles or ()), traffic, memory_mib) if profiles else {}
    if output is Output.JSON:
        shapes = {"shapes": {key: offers_json(offered) for key, offered in trade.items()}} if profiles else {}
        repacking = {"repacking": repacking_json(found)} if moves else {}
        emit_json({**plan_json(world, ahead), **repacking, **shapes})
    else:
        print_plan(world, ahead)
        if moves:
            print_repacking(found)
        for key, offered in trade.items():
            print_offers(key, offered)
    refused = any(setup.refusal is not None for setup in ahead.setups.values())
    bad = ahead.plan.unplaced or ahead.plan.flagged or refused
    raise typer.Exit(exit_codes.FAILED if bad else exit_codes.OK)


def _replicas(asked: list[str] | tuple[str, ...], world: World, namespace: str) -> dict[str, int]:
    known = world.pool_keys
    wanted = {}
    for one in asked:
        name, _, number = one.partition("=")
        key = name if "/" in name else f"{namespace}/{name}"
        if not number.isdigit():
            fail(f"--replicas {one}: write POOL=NUMBER", code=exit_codes.USAGE)
        if key not in known:
            told = ", ".join(sorted(known)) or "none"
            fail(f"--replicas {one}: there is no pool {key}", fix=f"Pools: {told}", code=exit_codes.USAGE)
        wanted[key] = int(number)
    return wanted


def _profiles(asked: list[str] | tuple[str, ...]) -> dict[str, Profile]:
    found = {}
    for one in asked:
        shape, _, file = one.partition("=")
        if not file:
            fail(f"--profile {one}: write SHAPE=FILE, e.g. 3g.71gb=profile.json", code=exit_codes.USAGE)
        try:
            found[shape] = Profile.load_json(read_small_text(Path(file)))
        except (OSError, UnicodeDecodeError, ProfileInvalid) as problem:
            fail(f"{file}: {problem}", fix="Make one with `superinfer profile`.", code=exit_codes.USAGE)
    return found


def _trade_offs(
    ahead: Outlook, profiles: dict[str, Profile], traffic: Traffic, memory_mib: int | None
) -> dict[str, tuple[ShapeOffer, ...]]:
    terms = ShapeTerms(ahead.index.nodes_with_room, lambda gpus: memory_mib)
    by_shape = {(name, 1): profile for name, profile in profiles.items()}
    try:
        options = shape_options(_products(ahead.index), by_shape, terms)
    except UnknownShape as problem:
        fail(str(problem), code=exit_codes.USAGE)
    return {
        one.effective.key: offers(one.effective.objectives, traffic, options)
        for _, one in sorted(ahead.contracts.contracts.items())
        if one.effective is not None
    }


def _products(index: PlacementIndex) -> list[GpuProduct]:
    """Known products on the nodes, by name."""
    names = {kind.product for node in index.fleet for kind in node.kind.gpus}
    found = {product.name: product for name in names if (product := product_named(name)) is not None}
    return [found[name] for name in sorted(found)]
