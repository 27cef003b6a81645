"""`python -m superinfer_executor node-agent`: watch this node's GPUs and publish them, or just look once."""

import argparse
import asyncio
import contextlib
import ctypes
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from superinfer_core.api.v1alpha1.labels import NODE_AGENT_FIELD_MANAGER
from superinfer_core.api.v1alpha1.nodetopology import NodeTopologyStatus
from superinfer_core.placement.health_book import Damping
from superinfer_executor.node_agent.agent import NodeAgent, Pace
from superinfer_executor.node_agent.driver import Driver
from superinfer_executor.node_agent.geometry_check import check
from superinfer_executor.node_agent.pod_resources import DEFAULT_SOCKET, PodResources
from superinfer_executor.node_agent.publication import dated, no_driver, status_of
from superinfer_executor.node_agent.publisher import NodeTopologyPublisher
from superinfer_executor.node_agent.reading import DriverMissing
from superinfer_executor.node_agent.report import report
from superinfer_kube.client import KubeClient
from superinfer_kube.errors import KubeError

_LOG = logging.getLogger(__name__)
_DRIVER_RETRY_S: Final = 5.0


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="superinfer_executor node-agent", description=__doc__)
    option = parser.add_argument
    option("mode", nargs="?", choices=["run", "check"], default="run", help="check: MIG geometry, read only")
    option("--node-name", default=os.environ.get("NODE_NAME", ""), help="default: $NODE_NAME")
    option("--once", action="store_true", help="look once, print what is seen and publish nothing")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--print", action="store_true", help="with --once: as text (the default)")
    shown.add_argument("--json", action="store_true", help="with --once: as JSON")
    option("--out", type=Path, help="check: also write the findings into this file")
    option("--library", type=Path, help="a libnvidia-ml.so.1 that the system does not find by itself")
    option("--pod-resources", type=Path, default=DEFAULT_SOCKET, help="kubelet socket (%(default)s)")
    option("--kubeconfig", type=Path, help="instead of the pod's service account")
    option("--look-s", type=float, default=2.0, help="seconds between looks (%(default)s)")
    option("--hold-s", type=float, default=30.0, help="seconds a device is held back after a fault")
    options = parser.parse_args(argv)
    if options.look_s <= 0 or options.hold_s < 0:
        parser.error("--look-s must be above 0 and --hold-s not below 0")
    if options.mode == "run" and not options.once and not options.node_name:
        parser.error("--node-name is missing and NODE_NAME is not set")
    return options


def open_driver(library: Path | None) -> Driver:
    """NVML; raises DriverMissing."""
    if library is not None:
        try:
            ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)  # found by its name from now on
        except OSError as error:
            raise DriverMissing(f"--library {library}: {error}") from error
    return Driver()


async def _run(options: argparse.Namespace) -> None:
    client = KubeClient.connect(field_manager=NODE_AGENT_FIELD_MANAGER, kubeconfig=options.kubeconfig)
    publisher = NodeTopologyPublisher(client, options.node_name)
    pod_resources = PodResources(options.pod_resources)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(client.close)
        stack.push_async_callback(pod_resources.close)
        driver = await _driver(options, publisher)
        stack.callback(driver.close)
        pace = Pace(options.look_s, Damping(hold_s=options.hold_s))
        await NodeAgent(driver, pod_resources.allocations, publisher, pace).run()


async def _driver(options: argparse.Namespace, publisher: NodeTopologyPublisher) -> Driver:
    """Wait for a driver; says in the NodeTopology that there is none."""
    told = False
    while True:
        try:
            return open_driver(options.library)
        except DriverMissing as error:
            if not told:
                _LOG.warning("%s; waiting for it", error)
                told = await _tell(publisher, no_driver(str(error)))
        await asyncio.sleep(_DRIVER_RETRY_S)


async def _tell(publisher: NodeTopologyPublisher, status: NodeTopologyStatus) -> bool:
    try:
        await publisher.publish(dated(status, None, time.time()))
    except KubeError as error:
        _LOG.warning("not published, will try again: %s", error)
        return False
    return True


async def _look_once(options: argparse.Namespace) -> NodeTopologyStatus:
    pod_resources = PodResources(options.pod_resources)
    driver = open_driver(options.library)
    try:
        agent = NodeAgent(driver, pod_resources.allocations, _Nowhere(), Pace())
        return status_of(await agent.observe())
    finally:
        driver.close()
        await pod_resources.close()


class _Nowhere:
    """A report is not published."""

    async def published(self) -> NodeTopologyStatus | None:
        """Nothing."""
        return None

    async def publish(self, status: NodeTopologyStatus) -> None:
        """Not done."""
        raise NotImplementedError


def _check(options: argparse.Namespace) -> int:
    driver = open_driver(options.library)
    try:
        findings = check(driver.read())
    finally:
        driver.close()
    text = json.dumps(findings, indent=2) + "\n"
    if options.out is not None:
        options.out.write_text(text)
    sys.stdout.write(text)
    return 0


async def _until_signal(options: argparse.Namespace) -> None:
    task = asyncio.create_task(_run(options))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def main(argv: Sequence[str]) -> int:
    """Run the agent until SIGTERM, or look once; 2 where there is no driver to look at."""
    options = parse_arguments(argv)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr
    )
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    try:
        if options.mode == "check":
            return _check(options)
        if options.once:
            status = asyncio.run(_look_once(options))
            text = json.dumps(status.model_dump(mode="json", exclude_none=True), indent=2) + "\n"
            sys.stdout.write(text if options.json else report(status))
            return 0
        asyncio.run(_until_signal(options))
    except DriverMissing as error:
        sys.stderr.write(f"superinfer node-agent: {error}\n")
        return 2
    return 0
