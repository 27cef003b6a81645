"""Removes every pool while the operator still runs, so that its finalizers drop: the chart's pre-delete hook.

Promise: it ends within its time. Pools that are still there then lose the operator's finalizer by force, and
are named. Contracts have no finalizer and are left alone: they go with their CRD, or stay.
"""

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Final

from superinfer_core.api.v1alpha1.labels import DRAIN_FINALIZER, OPERATOR_FIELD_MANAGER
from superinfer_kube.client import KubeClient
from superinfer_kube.errors import Conflict, KubeError, NotFound
from superinfer_kube.resources import CHIPLET_POOLS

_log = logging.getLogger("superinfer.operator.cleanup")

EXAMPLES: Final = """examples:
  python -m superinfer_operator cleanup --timeout-s 240
  python -m superinfer_operator cleanup --timeout-s 0      # force at once: no operator runs any more
"""
_LOOK_S: Final = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `cleanup`."""
    parser.add_argument(
        "--timeout-s", type=float, default=240.0, help="how long pools may take to drain (default 240)"
    )
    parser.add_argument("--kubeconfig", type=Path, help="file to use instead of the pod's service account")


def run(args: argparse.Namespace) -> int:
    """Clean up; 0 where nothing of ours is left that could hang."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    return asyncio.run(_run(args.kubeconfig, args.timeout_s))


async def _run(kubeconfig: Path | None, timeout_s: float) -> int:
    client = KubeClient.connect(field_manager=OPERATOR_FIELD_MANAGER, kubeconfig=kubeconfig)
    try:
        return await clean_up(client, timeout_s=timeout_s)
    finally:
        await client.close()


async def clean_up(client: KubeClient, *, timeout_s: float) -> int:
    """Delete every pool and wait; then force what is left."""
    deadline_s = monotonic() + timeout_s
    try:
        pools = await _pools(client)
        _log.info("%d pools to remove", len(pools))
        for pool in pools:
            await _delete(client, pool)
        while pools and monotonic() < deadline_s:
            await asyncio.sleep(min(_LOOK_S, max(0.0, deadline_s - monotonic())))
            pools = await _pools(client)
        for pool in pools:
            await _force(client, pool)
    except KubeError as error:
        sys.stderr.write(f"cleanup: {error}\n")
        return 1
    return 0


async def _pools(client: KubeClient) -> Sequence[dict[str, Any]]:
    try:
        return (await client.list(CHIPLET_POOLS)).items
    except NotFound:
        # The CRD itself is gone: so are its objects.
        return ()


async def _delete(client: KubeClient, pool: dict[str, Any]) -> None:
    metadata = pool["metadata"]
    try:
        await client.delete(CHIPLET_POOLS, metadata["name"], metadata["namespace"], uid=metadata["uid"])
    except (NotFound, Conflict):
        return


async def _force(client: KubeClient, pool: dict[str, Any]) -> None:
    metadata = pool["metadata"]
    kept = [name for name in metadata.get("finalizers") or () if name != DRAIN_FINALIZER]
    _log.warning("pool %s/%s is not drained yet; letting it go", metadata["namespace"], metadata["name"])
    change = {"metadata": {"finalizers": kept, "resourceVersion": metadata["resourceVersion"]}}
    try:
        await client.patch(CHIPLET_POOLS, metadata["name"], metadata["namespace"], change)
    except NotFound:
        return
