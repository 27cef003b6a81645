"""`python -m superinfer_gpumock plugin`: the MOCK device plugin and DRA driver of a node, until SIGTERM."""

import argparse
import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from superinfer_gpumock.cluster import ClusterSide
from superinfer_gpumock.deviceplugin.daemon import PluginDaemon
from superinfer_gpumock.deviceplugin.registrar import DEFAULT_DIRECTORY as KUBELET_DIRECTORY
from superinfer_gpumock.dra.plugin import Places
from superinfer_gpumock.live import DEFAULT_DIRECTORY, LiveNode
from superinfer_gpumock.publishing import FIELD_MANAGER
from superinfer_gpumock.source import Source
from superinfer_kube.client import KubeClient

_LOG = logging.getLogger(__name__)
LIBRARY_NAME: Final = "libnvidia-ml.so.1"
IMAGE_LIBRARY: Final = Path("/opt/superinfer/gpumock") / LIBRARY_NAME


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="superinfer_gpumock plugin", description=__doc__)
    option = parser.add_argument
    option("--node-name", default=os.environ.get("NODE_NAME", ""), help="default: $NODE_NAME")
    option("--descriptions", type=Path, help="directory of <node name or label value>.json")
    option("--description", type=Path, help="one file, whatever the node is called")
    option("--dir", type=Path, default=DEFAULT_DIRECTORY, help="live description (%(default)s)")
    option("--kubelet-dir", type=Path, default=KUBELET_DIRECTORY, help="device plugin sockets (%(default)s)")
    option("--library", type=Path, default=IMAGE_LIBRARY, help="mock libnvidia-ml to put into --dir")
    option("--registry-dir", type=Path, default=Places().registry, help="DRA registration (%(default)s)")
    option("--plugins-dir", type=Path, default=Places().plugins, help="DRA socket (%(default)s)")
    option("--cdi-dir", type=Path, default=Places().cdi, help="CDI files of claims (%(default)s)")
    option("--kubeconfig", type=Path, help="instead of the pod's service account")
    option("--no-kube", action="store_true", help="no labels, no DRA: only the device plugin")
    options = parser.parse_args(argv)
    if not options.node_name:
        parser.error("--node-name is missing and NODE_NAME is not set")
    return options


async def run(options: argparse.Namespace, stop: asyncio.Event) -> None:
    """Run until `stop`."""
    source = Source(options.node_name, directory=options.descriptions, file=options.description)
    live = LiveNode(options.dir)
    install_library(options.library, options.dir)

    def refresh() -> None:
        found = source.find()
        if found is not None:
            live.install(found, options.node_name)
        elif source.label is not None and live.version() is not None:
            live.remove()

    async with contextlib.AsyncExitStack() as stack:
        cluster = None
        if options.no_kube:
            source.label = ""
        else:
            client = KubeClient.connect(field_manager=FIELD_MANAGER, kubeconfig=options.kubeconfig)
            stack.push_async_callback(client.close)
            places = Places(options.registry_dir, options.plugins_dir, options.cdi_dir)
            cluster = ClusterSide(client, source, live, places)
        on_node = None if cluster is None else cluster.take
        options.dir.mkdir(parents=True, exist_ok=True)
        daemon = PluginDaemon(live, options.kubelet_dir, on_node=on_node, refresh=refresh)
        tasks = [asyncio.create_task(daemon.run()), asyncio.create_task(stop.wait())]
        if cluster is not None:
            tasks.append(asyncio.create_task(cluster.run()))
        done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        for task in done:
            task.result()


def install_library(library: Path, directory: Path) -> None:
    """Put the mock library where the node agent looks; nothing where the image has none."""
    if not library.exists():
        _LOG.warning("MOCK libnvidia-ml not installed: %s does not exist", library)
        return
    (directory / "lib").mkdir(parents=True, exist_ok=True)
    aside = directory / "lib" / f".{LIBRARY_NAME}.new"
    shutil.copyfile(library, aside)
    aside.chmod(0o755)
    aside.replace(directory / "lib" / LIBRARY_NAME)


def main(argv: Sequence[str]) -> int:
    """Run the plugin; 0 after SIGTERM."""
    options = parse_arguments(argv)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr
    )
    logging.getLogger("httpx2").setLevel(logging.WARNING)

    async def until_signal() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await run(options, stop)

    asyncio.run(until_signal())
    return 0
