"""What is measured: each proxy with its URL and the processes whose CPU is its own.

Ours counts ingress and sidecar; the engine stub behind them stands where the peers' OpenAI stub stands and
is not counted, on either side.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import yaml

from superinfer.serving.ports import free_port
from superinfer_bench.children import Child
from superinfer_bench.ingress.peers import MODEL, install_peer, peer
from superinfer_bench.ingress.usage import Usage, usage
from superinfer_bench.stack import EngineCommand, StackOptions, bench_environment, serving

CONTRACT = "bench"
PEER_START_S = 120.0


@dataclass(frozen=True, slots=True)
class Proxy:
    """One contender. `direct` is the peers' stub itself and has no processes of its own."""

    name: str
    url: str
    parts: dict[str, int] = field(default_factory=dict)
    version: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    def usage(self) -> Usage:
        """CPU and memory of all its processes."""
        return usage(self.parts.values())


@contextlib.asynccontextmanager
async def peer_proxies(
    names: Sequence[str], run_dir: Path, say: Callable[[str], None]
) -> AsyncIterator[list[Proxy]]:
    """The stub as "direct", then the peers in front of it."""
    bins = {name: await asyncio.to_thread(install_peer, name, say) for name in names}
    stub_port = free_port()
    upstream = f"http://127.0.0.1:{stub_port}"
    command = [sys.executable, "-m", "superinfer_bench.ingress.openai_stub", "--port", str(stub_port)]
    with contextlib.ExitStack() as running:
        stub = running.enter_context(Child("stub", command, bench_environment(), run_dir / "stub.log"))
        await _until_up(stub, f"{upstream}/health")
        found = [Proxy("direct", upstream)]
        for name, bin_dir in bins.items():
            port = free_port()
            its = peer(name, bin_dir, upstream=upstream, port=port, run_dir=run_dir)
            say(f"starting {name} {its.version}")
            child = running.enter_context(Child(name, its.command, its.environment, run_dir / f"{name}.log"))
            await _until_up(child, f"http://127.0.0.1:{port}{its.health}")
            found.append(Proxy(name, f"http://127.0.0.1:{port}", {name: child.pid}, its.version))
        yield found


@contextlib.asynccontextmanager
async def our_proxy(run_dir: Path, *, step_ms: float) -> AsyncIterator[Proxy]:
    """Ingress and sidecar before an engine stub of this pace, with admission on and one contract."""
    arguments = ["--served-model-name", MODEL, "--step-ms", str(step_ms), "--max-num-seqs", "1024"]
    arguments += ["--max-num-batched-tokens", "65536", "--eos-after", "0", "--kv-total-tokens", str(1 << 24)]
    contracts = run_dir / "contracts"
    _write_contract(contracts / "bench.yaml")
    options = StackOptions(EngineCommand("stub", tuple(arguments)), (), {"contracts": str(contracts)})
    async with serving(options, run_dir) as stack:
        parts = {name: stack.pid(name) for name in ("ingress", "sidecar")}
        yield Proxy("superinfer", stack.url, parts, headers={"x-slo-contract-id": f"bench/{CONTRACT}"})
        stack.check()


def _write_contract(path: Path) -> None:
    """Loose enough that the machine's own pauses refuse nobody; every request is still predicted."""
    objectives = [
        {"metric": "TTFT", "percentile": 99, "targetMs": 60_000},
        {"metric": "ITL", "percentile": 99, "targetMs": 10_000},
    ]
    document = {
        "apiVersion": "superinfer.dev/v1alpha1",
        "kind": "SLOContract",
        "metadata": {"name": CONTRACT, "namespace": "bench"},
        "spec": {"serviceID": CONTRACT, "tier": "Gold", "objectives": objectives, "window": "1h"},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")


async def _until_up(child: Child, url: str) -> None:
    async with httpx.AsyncClient(timeout=5) as client, asyncio.timeout(PEER_START_S):
        while True:
            child.check()
            with contextlib.suppress(httpx.HTTPError):
                if (await client.get(url)).status_code == httpx.codes.OK:
                    return
            await asyncio.sleep(0.2)
