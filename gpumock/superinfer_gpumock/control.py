"""`python -m superinfer_gpumock fail|recover|show|check|examples|example`: look at and change a MOCK node.

fail and recover edit the live description; the device plugin, the mock library and the node agent follow it.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from superinfer_core.placement.node import RecoveryAction
from superinfer_gpumock.description import Description, DescriptionInvalid, Offer, parse, render
from superinfer_gpumock.deviceplugin.offer import offered
from superinfer_gpumock.dra.slices import DRIVER, device_name, devices
from superinfer_gpumock.examples import NAMES, example
from superinfer_gpumock.faults import Failure, fail, recover
from superinfer_gpumock.live import DEFAULT_DIRECTORY, LiveNode
from superinfer_gpumock.node import MockNode, resolve


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="superinfer_gpumock", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, what in (
        ("fail", "make a GPU or one of its MIG instances fail"),
        ("recover", "end its faults"),
    ):
        command = commands.add_parser(name, help=what)
        command.add_argument("--gpu", type=int, required=True, help="index of the GPU")
        command.add_argument("--instance", help="GPU instance id, or UUID of the MIG device")
        command.add_argument("--dir", type=Path, default=DEFAULT_DIRECTORY)
    failing = commands.choices["fail"]
    failing.add_argument("--xid", type=int, help="e.g. 94 contained ECC, 79 off the bus, 31 application")
    failing.add_argument("--recovery-action", choices=[action.value for action in RecoveryAction])
    failing.add_argument("--lost", action="store_true", help="the GPU answers no call any more")
    show = commands.add_parser("show", help="print the live description and what it offers")
    show.add_argument("--dir", type=Path, default=DEFAULT_DIRECTORY)
    check = commands.add_parser("check", help="say whether a description can be a node")
    check.add_argument("file", type=Path)
    commands.add_parser("examples", help="names of the bundled descriptions")
    shown = commands.add_parser("example", help="print a bundled description")
    shown.add_argument("name", choices=NAMES)
    return parser.parse_args(argv)


def instance_id(node: MockNode, gpu: int, wanted: str | None) -> int | None:
    """The GPU instance id behind an id or UUID; raises DescriptionInvalid for one the GPU has not."""
    if wanted is None:
        return None
    if not 0 <= gpu < len(node.gpus):
        raise DescriptionInvalid(f"--gpu: {gpu} is not one of 0 to {len(node.gpus) - 1}")
    for instance in node.gpus[gpu].instances:
        if wanted in (instance.uuid, str(instance.gi_id)):
            return instance.gi_id
    known = ", ".join(f"{item.gi_id} ({item.uuid})" for item in node.gpus[gpu].instances) or "none"
    raise DescriptionInvalid(f"--instance: GPU {gpu} has no instance {wanted}; it has {known}")


def main(argv: Sequence[str]) -> int:
    """Run a command; 2 for what cannot be done."""
    options = parse_arguments(argv)
    try:
        sys.stdout.write(_run(options))
    except (DescriptionInvalid, OSError) as error:
        sys.stderr.write(f"superinfer_gpumock: {error}\n")
        return 2
    return 0


def _run(options: argparse.Namespace) -> str:
    match options.command:
        case "examples":
            return "\n".join(NAMES) + "\n"
        case "example":
            return example(options.name)
        case "check":
            return _summary(resolve(parse(options.file.read_text()), "check"))
        case "show":
            description, node = LiveNode(options.dir).read()
            return render(description) + _summary(node)
        case _:
            return _changed(options)


def _changed(options: argparse.Namespace) -> str:
    live = LiveNode(options.dir)
    gi_id = instance_id(live.read()[1], options.gpu, options.instance)

    def change(description: Description) -> Description:
        if options.command == "recover":
            return recover(description, options.gpu, gi_id)
        action = RecoveryAction(options.recovery_action) if options.recovery_action else None
        return fail(
            description,
            Failure(gpu=options.gpu, gi_id=gi_id, xid=options.xid, action=action, lost=options.lost),
        )

    return _summary(live.edit(change))


def _summary(node: MockNode) -> str:
    lines = [f"MOCK node {node.name}: {len(node.gpus)} x {node.product.name}"]
    for resource, found in offered(node).items():
        ids = ", ".join(device.id for device in found if not device.healthy)
        lines.append(f"{resource}: {len(found)} devices, unhealthy: {ids or 'none'}")
    if node.offer is Offer.DRA:
        whole = (device_name(gpu) for gpu in node.gpus if not gpu.mig_enabled)
        made = (device_name(gpu, item) for gpu in node.gpus if gpu.mig_enabled for item in gpu.instances)
        everything, healthy = {*whole, *made}, {device["name"] for device in devices(node)}
        sick = ", ".join(sorted(everything - healthy)) or "none"
        lines.append(f"{DRIVER} (DRA): {len(everything)} devices, unhealthy: {sick}")
    return "\n".join(lines) + "\n"
