"""An operator that dies again and again, and an API server that goes away: the same end, nothing twice."""

import asyncio
import random
from pathlib import Path

import pytest

from apiserver.stage import Stage
from superinfer_kube.client import KubeClient
from superinfer_kube.resources import CHIPLET_POOLS, SERVICES, SLO_CONTRACTS
from superinfer_kube.testing.apiserver import apiserver_missing, install_crds, running_apiserver
from superinfer_kube.testing.fixtures import CRDS

pytestmark = pytest.mark.apiserver


async def test_twenty_deaths_in_the_middle_of_everything(stage):
    await stage.pool(replicas=4)
    for number in range(4):
        await stage.contract(f"c{number}", poolRef={"name": "p"})
    chance = random.Random(1)
    for number in range(20):
        stage.start()
        await asyncio.sleep(chance.uniform(0.0, 0.25))
        await stage.kill()
        await stage.pool(replicas=3 + number % 3)
    await stage.pool(replicas=4)
    stage.start()

    async def one_per_slot():
        slots = [
            pod["metadata"]["labels"]["superinfer.dev/slot"]
            for pod in await stage.pods()
            if not pod["metadata"].get("deletionTimestamp")
        ]
        return len(slots) == 4 and len(set(slots)) == 4

    await stage.until(one_per_slot, "executors are missing, or twice")
    await stage.run_pods()
    await stage.until_condition(CHIPLET_POOLS, "p", "Ready", ("True", "Ready"))
    for number in range(4):
        await stage.until_condition(SLO_CONTRACTS, f"c{number}", "Ready", ("True", "Ready"))
    services = (await stage.client.list(SERVICES, stage.namespace)).items
    assert [service["metadata"]["name"] for service in services] == ["p-executors"]
    assert len(await stage.pods()) == 4, "orphans are left"


async def test_the_api_server_is_away_for_a_while(tmp_path: Path):
    if absent := apiserver_missing():
        pytest.skip(f"{', '.join(absent)} not built: make apiserver")
    with running_apiserver(tmp_path) as server:
        install_crds(server, CRDS)
        client = KubeClient.connect(field_manager="test", kubeconfig=server.kubeconfig)
        stage = Stage(server, client, "default")
        await stage.set_up()
        stage.start()
        await stage.pool(replicas=1)
        await stage.until_names("p-0-1")
        server.stop_server()
        await stage.until(lambda: _is_deaf(stage), "it never noticed")
        assert stage.runtime.unhealthy() == "", "an API server that is away is no reason to be killed"
        server.start_server()
        await stage.until(lambda: _scaled(stage))
        await stage.until_names("p-0-1", "p-1-1")
        await stage.kill()
        await client.close()


async def _is_deaf(stage):
    return any(informer.trouble is not None for informer in stage.runtime.cluster.informers)


async def _scaled(stage):
    return await stage.pool(replicas=2)
