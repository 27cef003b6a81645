"""Two operators of one Lease over a real API server: one works, and the other when that is gone."""

import os
import re
import signal
import sys
from asyncio import create_subprocess_exec

import pytest

from superinfer_kube.resources import CHIPLET_POOLS, LEASES

pytestmark = pytest.mark.apiserver


@pytest.fixture
async def operators(stage, tmp_path):
    """Starts one by its name."""
    running = {}

    async def start(name):
        environment = {"PATH": os.environ["PATH"], "POD_NAME": name, "POD_UID": name}
        command = ["-m", "superinfer_operator", "run", "--host=127.0.0.1", "--port=0"]
        flags = [f"--kubeconfig={stage.server.kubeconfig}", f"--namespace={stage.namespace}"]
        log = tmp_path / name
        with log.open("wb") as out:
            running[name] = await create_subprocess_exec(
                sys.executable, *command, *flags, stdout=out, stderr=out, env=environment
            )
        return running[name], log

    yield start
    for process in running.values():
        if process.returncode is None:
            process.kill()
        await process.wait()


async def leader(stage):
    lease = await stage.get(LEASES, "superinfer-operator") or {}
    return (lease.get("spec") or {}).get("holderIdentity")


def led(name):
    return f"{name}_{name}"


async def standing_by(log):
    return "standing by" in log.read_text()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "told to end"])
async def test_the_other_one_goes_on_where_the_first_was_cut_off(stage, operators, how):
    first, _ = await operators("a")

    async def leads(name):
        return await leader(stage) == led(name)

    await stage.until(lambda: leads("a"), "nobody was elected")
    _, log = await operators("b")
    await stage.pool(replicas=2)
    await stage.until_names("p-0-1", "p-1-1")
    await stage.until(lambda: standing_by(log), "the second never stood by")
    first.send_signal(how)
    await stage.pool(replicas=4)
    await stage.until_names("p-0-1", "p-1-1", "p-2-1", "p-3-1")
    assert await leader(stage) == led("b")
    await stage.until_condition(CHIPLET_POOLS, "p", "Accepted", ("True", "Accepted"))
    await first.wait()
    if how is signal.SIGTERM:
        assert first.returncode == 0
    lease = await stage.get(LEASES, "superinfer-operator")
    assert lease["spec"]["leaseTransitions"] == 1
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}\.\d{6}Z", lease["spec"]["renewTime"])
