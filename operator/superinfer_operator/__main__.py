"""`python -m superinfer_operator`: run the operator, generate CRDs, or clean up before it is uninstalled."""

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence

import uvloop

from superinfer_core.api.v1alpha1.labels import OPERATOR_FIELD_MANAGER
from superinfer_kube.client import KubeClient
from superinfer_kube.errors import KubeConfigError
from superinfer_operator import cleanup
from superinfer_operator.crdgen import command as crds
from superinfer_operator.hosting import command as run


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="superinfer_operator", description="SuperInfer's Kubernetes operator."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, words, module in (
        ("run", "reconcile contracts and pools until SIGTERM", run),
        ("crds", "generate the CustomResourceDefinitions", crds),
        ("cleanup", "remove every pool, so that nothing hangs when the operator is uninstalled", cleanup),
    ):
        sub = commands.add_parser(
            name,
            help=words,
            description=words[0].upper() + words[1:] + ".",
            epilog=getattr(module, "EXAMPLES", ""),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(sub)
    return parser


def main(argv: Sequence[str]) -> int:
    """The exit code: 0 where all went well, 2 for what cannot be used, 1 for what failed."""
    args = _parser().parse_args(argv)
    if args.command == "crds":
        return crds.run(args)
    try:
        return _run(args) if args.command == "run" else cleanup.run(args)
    except (ValueError, KubeConfigError) as error:
        sys.stderr.write(f"superinfer_operator: {error}\n")
        return 2


def _run(args: argparse.Namespace) -> int:
    # kopf takes half a second to import; the other commands do without.
    from superinfer_operator.hosting.operator import Hosting

    command = run.run_command(args)
    logging.basicConfig(
        level=command.log_level, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr
    )
    for loud in ("httpx", "httpx2", "httpcore", "kopf"):
        logging.getLogger(loud).setLevel(logging.WARNING)

    async def host() -> int:
        client = KubeClient.connect(field_manager=OPERATOR_FIELD_MANAGER, kubeconfig=command.kubeconfig)
        return await Hosting(command, client).run()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(host())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
