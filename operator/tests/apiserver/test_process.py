"""The operator as a process: it comes up, serves its page, and goes when it is told to."""

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import httpx
import pytest

from superinfer_kube.resources import CHIPLET_POOLS

pytestmark = pytest.mark.apiserver


async def started(server, namespace, log: Path):
    # As in a container: no name for the user, nothing of this machine's environment.
    environment = {"PATH": os.environ["PATH"], "POD_NAME": "operator-0", "POD_NAMESPACE": namespace}
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "superinfer_operator",
            "run",
            "--host=127.0.0.1",
            "--port=0",
            f"--kubeconfig={server.kubeconfig}",
            stdout=out,
            stderr=out,
            env=environment,
        )
    async with asyncio.timeout(120):
        while (found := re.search(r"probes and metrics on port (\d+)", log.read_text())) is None:
            assert process.returncode is None, log.read_text()
            await asyncio.sleep(0.1)
    return process, f"http://127.0.0.1:{found[1]}"


async def test_it_comes_up_works_and_goes(stage, tmp_path):
    log = tmp_path / "log"
    process, url = await started(stage.server, stage.namespace, log)
    await stage.pool(replicas=1)
    await stage.until_names("p-0-1")
    await stage.until_condition(CHIPLET_POOLS, "p", "Accepted", ("True", "Accepted"))
    async with httpx.AsyncClient(trust_env=False) as client:
        assert (await client.get(f"{url}/readyz")).status_code == 200
        assert (await client.get(f"{url}/livez")).status_code == 200
        metrics = (await client.get(f"{url}/metrics")).text
    assert f'superinfer_operator_executors{{phase="Pending",pool="{stage.namespace}/p"}} 1.0' in metrics
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(60):
        assert await process.wait() == 0, log.read_text()
    assert "Traceback" not in log.read_text()
    assert "Task was destroyed" not in log.read_text()
