"""`python -m superinfer_bench.operator`: how the operator does with a large cluster -> operator.json.

A real kube-apiserver and etcd alone, on this machine, with MOCK nodes (objects without kubelets: pods are
planned and created, and never start). Measured: until everything is settled, cold; after one edit; after the
operator was killed; memory; requests to the API server, in all and when nothing happens.
"""

import argparse
import asyncio
import copy
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Final

from superinfer_bench.operator.population import (
    Size,
    contract,
    contract_name,
    documents,
    namespace_of,
    pool_name,
    replicas_of,
)
from superinfer_bench.operator.process import OperatorProcess
from superinfer_bench.operator.watching import Observer
from superinfer_bench.report import ROOT, Aim, document, tell, write
from superinfer_kube.client import KubeClient
from superinfer_kube.errors import Unavailable
from superinfer_kube.informer import Key
from superinfer_kube.resources import CHIPLET_POOLS, SLO_CONTRACTS, Resource
from superinfer_kube.testing.apiserver import apiserver_missing, install_crds, running_apiserver

_AT_ONCE: Final = 24
_EDITS: Final = 5
SETTLE_S: Final = 900.0
EDIT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured; None where it was not reached."""

    settled_s: float | None = None
    edit_s: float | None = None
    scale_s: float | None = None
    restart_s: float | None = None
    rss_mb: float | None = None
    settled_rss_mb: float | None = None
    api_requests: int | None = None
    idle_requests_per_min: float | None = None
    cpu_s: float | None = None
    missing: str = ""


def aims(figures: Figures) -> list[Aim]:
    """Every aim, met or not; one that was not measured is not met."""
    return [
        Aim.at_most("settled, cold", 300, figures.settled_s, " s"),
        Aim.at_most("one edit, the slowest of several", 2, figures.edit_s, " s"),
        Aim.at_most("memory, the most it ever had", 400, figures.rss_mb, " MB"),
        Aim.at_most("requests a minute when idle", 60, figures.idle_requests_per_min),
    ]


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


async def populate(client: KubeClient, size: Size) -> None:
    """Create everything the operator is to find."""
    places = asyncio.Semaphore(_AT_ONCE)

    async def create(resource: Resource, made: dict[str, Any]) -> None:
        async with places:
            for attempt in range(8):
                try:
                    await client.create(resource, made)
                    if "status" in made:
                        change = {"status": made["status"]}
                        await client.patch(
                            resource, made["metadata"]["name"], None, change, subresource="status"
                        )
                    return
                except Unavailable:
                    await asyncio.sleep(0.5 * 2**attempt)
            msg = f"{resource.plural} {made['metadata']['name']}: the API server never answered"
            raise RuntimeError(msg)

    for batch in _batches(documents(size)):
        async with asyncio.TaskGroup() as group:
            for resource, made in batch:
                group.create_task(create(resource, made))


def _batches(found: Any) -> Any:
    """Kinds one after the other: a pool's namespace has to exist first."""
    batch: list[tuple[Resource, dict[str, Any]]] = []
    for resource, made in found:
        if batch and (batch[-1][0] is not resource or len(batch) >= 500):
            yield batch
            batch = []
        batch.append((resource, made))
    if batch:
        yield batch


class Bench:
    """One run against one API server."""

    def __init__(self, client: KubeClient, kubeconfig: Path, size: Size, folder: Path) -> None:
        self._client = client
        self._kubeconfig = kubeconfig
        self._size = size
        self._folder = folder
        self._observer = Observer(client)

    async def run(self, idle_s: float) -> Figures:
        """Everything, one after the other."""
        watching = asyncio.create_task(self._observer.run())
        try:
            return await self._run(idle_s)
        finally:
            watching.cancel()

    async def _run(self, idle_s: float) -> Figures:
        size, executors = self._size, self._size.executors
        begun_s = monotonic()
        operator = await OperatorProcess.start(self._kubeconfig, self._folder / "operator.log")
        try:
            missing = await self._observer.settled(size, executors=executors, timeout_s=SETTLE_S)
            if missing:
                return Figures(rss_mb=round(operator.peak_mb(), 1), missing=missing)
            settled_s = monotonic() - begun_s
            say(f"settled after {settled_s:.1f} s")
            await operator.ready()
            await asyncio.sleep(5)
            requests, cpu_s = await operator.requests(), operator.cpu_s()
            edit_s = max([await self._edit(number) for number in range(_EDITS)])
            scale_s = max([await self._scale(number) for number in range(_EDITS)])
            say(f"an edited contract is current after {edit_s:.2f} s, a scaled pool after {scale_s:.2f} s")
            await asyncio.sleep(5)
            before = await operator.requests()
            await asyncio.sleep(idle_s)
            idle = (await operator.requests() - before) * 60 / idle_s
            peak_mb, rss_mb = operator.peak_mb(), operator.rss_mb()
            say(f"{idle:.1f} requests a minute when idle; {rss_mb:.0f} MB, at most {peak_mb:.0f} MB")
            await operator.kill()
            restart_s, operator = await self._restart()
            say(f"settled {restart_s:.1f} s after it was killed and started again")
            peak_mb = max(peak_mb, operator.peak_mb())
        finally:
            await operator.stop()
        return Figures(
            settled_s=round(settled_s, 1),
            edit_s=round(edit_s, 3),
            scale_s=round(scale_s, 3),
            restart_s=round(restart_s, 1),
            rss_mb=round(peak_mb, 1),
            settled_rss_mb=round(rss_mb, 1),
            api_requests=requests,
            idle_requests_per_min=round(idle, 1),
            cpu_s=round(cpu_s, 1),
        )

    async def _edit(self, number: int) -> float:
        """Change one contract; how long until its status is about the change."""
        name, namespace = contract_name(number), namespace_of(number, self._size)
        changed = contract(number, self._size, target_ms=400 + number)
        begun_s = monotonic()
        after = await self._client.patch(SLO_CONTRACTS, name, namespace, {"spec": changed["spec"]})
        generation = after["metadata"]["generation"]
        async with asyncio.timeout(EDIT_S):
            await self._observer.current(self._observer.contracts, Key(namespace, name), generation)
        return monotonic() - begun_s

    async def _scale(self, number: int) -> float:
        """One more replica for a pool and back; how long until it is planned, made and told."""
        name, namespace = pool_name(number), namespace_of(number, self._size)
        longest_s = 0.0
        for replicas in (replicas_of(number) + 1, replicas_of(number)):
            begun_s = monotonic()
            change = {"spec": {"replicas": replicas}}
            after = await self._client.patch(CHIPLET_POOLS, name, namespace, change)
            generation = after["metadata"]["generation"]
            async with asyncio.timeout(EDIT_S):
                await self._observer.current(self._observer.pools, Key(namespace, name), generation)
            longest_s = max(longest_s, monotonic() - begun_s)
        return longest_s

    async def _restart(self) -> tuple[float, OperatorProcess]:
        """Start it again over a contract and a pool that were edited while it was away."""
        size, edited = self._size, _EDITS + 1
        name, namespace = contract_name(edited), namespace_of(edited, size)
        spec = copy.deepcopy(contract(edited, size, target_ms=333)["spec"])
        await self._client.patch(SLO_CONTRACTS, name, namespace, {"spec": spec})
        pool, pool_namespace = pool_name(edited), namespace_of(edited, size)
        change = {"spec": {"replicas": replicas_of(edited) + 1}}
        await self._client.patch(CHIPLET_POOLS, pool, pool_namespace, change)
        begun_s = monotonic()
        operator = await OperatorProcess.start(self._kubeconfig, self._folder / "operator-2.log")
        executors = size.executors + 1
        missing = await self._observer.settled(size, executors=executors, timeout_s=SETTLE_S)
        if missing:
            msg = f"not settled after a restart: {missing}"
            raise RuntimeError(msg)
        await operator.ready()
        return monotonic() - begun_s, operator


async def measure(size: Size, folder: Path, idle_s: float) -> Figures:
    """Bring up an API server, fill it, and measure."""
    with running_apiserver(folder / "apiserver") as server:
        install_crds(server, ROOT / "crds")
        client = KubeClient.connect(field_manager="superinfer-bench", kubeconfig=server.kubeconfig)
        try:
            begun_s = monotonic()
            await populate(client, size)
            say(f"{size} created in {monotonic() - begun_s:.0f} s; {size.executors} executors are wanted")
            return await Bench(client, server.kubeconfig, size, folder).run(idle_s)
        finally:
            await client.close()


def main(argv: Sequence[str]) -> int:
    """0 where every aim is met, 1 where one is not, 2 where it cannot be run."""
    parser = argparse.ArgumentParser(prog="superinfer_bench.operator", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/bench/operator.json"))
    parser.add_argument("--nodes", type=int, default=Size().nodes)
    parser.add_argument("--pools", type=int, default=Size().pools)
    parser.add_argument("--contracts", type=int, default=Size().contracts)
    parser.add_argument("--namespaces", type=int, default=Size().namespaces)
    parser.add_argument("--idle-s", type=float, default=180, help="how long nothing happens (default 180)")
    parser.add_argument("--keep", type=Path, help="folder for logs and state that is kept")
    args = parser.parse_args(argv)
    if absent := apiserver_missing():
        say(f"{', '.join(absent)} not built: make apiserver")
        return 2
    size = Size(args.nodes, args.pools, args.contracts, args.namespaces)
    with tempfile.TemporaryDirectory(prefix="bench-operator-") as scratch:
        folder = args.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        figures = asyncio.run(measure(size, folder, args.idle_s))
    found = aims(figures)
    rest = {name: getattr(figures, name) for name in Figures.__slots__}
    rest["size"] = {"nodes": size.nodes, "pools": size.pools, "contracts": size.contracts}
    rest["size"] |= {"executors": size.executors, "namespaces": size.namespaces}
    write(args.out, document(found, rest))
    tell(found, say)
    return 0 if all(aim.met for aim in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
