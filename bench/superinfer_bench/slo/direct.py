"""A stock `vllm serve` with vLLM's own scheduler and nothing of ours: how the baselines do without us."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx

from superinfer.serving.ports import free_port
from superinfer_bench.children import Child
from superinfer_bench.priority import apply_nice
from superinfer_bench.slo.settings import MODEL_NAME, SloSettings
from superinfer_bench.stack import START_S, bench_environment

# One process fewer, as our executor runs it: on two cores the difference would be measured as scheduling.
_ENVIRONMENT = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}


@contextlib.asynccontextmanager
async def stock_vllm(settings: SloSettings, run_dir: Path) -> AsyncIterator[str]:
    """Its URL, once it has answered a health check."""
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "vllm.entrypoints.launchers.api_server.entry",
        "--model",
        str(settings.model),
    ]
    command += ["--served-model-name", MODEL_NAME, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--dtype", "float32", "--distributed-executor-backend", "uni", "--disable-uvicorn-access-log"]
    command += ["--enforce-eager", *settings.vllm_arguments]
    environment = {**bench_environment(), **_ENVIRONMENT}
    with Child("vllm serve", command, environment, run_dir / "vllm.log") as child:
        url = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient(timeout=5) as client, asyncio.timeout(START_S):
            while True:
                child.check()
                with contextlib.suppress(httpx.HTTPError):
                    if (await client.get(f"{url}/health")).status_code == httpx.codes.OK:
                        break
                await asyncio.sleep(0.5)
        apply_nice(child.pid)  # and what it has started
        yield url
