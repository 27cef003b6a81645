"""A real API server with our kinds, MOCK nodes, and operators that can be started and killed."""

import asyncio
import contextlib

import pytest

from apiserver.stage import Stage
from superinfer_kube.client import KubeClient
from superinfer_kube.testing.fixtures import apiserver, namespace, superinfer_api

__all__ = ["apiserver", "namespace", "superinfer_api"]


@pytest.fixture
async def stage(superinfer_api, namespace):
    client = KubeClient.connect(field_manager="test", kubeconfig=superinfer_api.kubeconfig)
    made = Stage(superinfer_api, client, namespace)
    await made.set_up()
    yield made
    await made.kill()
    await made.clear()
    await client.close()


@pytest.fixture
async def operator(stage):
    stage.start()
    yield stage
    with contextlib.suppress(asyncio.CancelledError):
        await stage.kill()
