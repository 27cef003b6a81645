"""Pools nobody would write by mistake, at a real API server: they harm themselves alone."""

import pytest

from superinfer_kube.resources import CHIPLET_POOLS

pytestmark = pytest.mark.apiserver


def nested(levels):
    """kubectl would not send it; anybody's own client does."""
    return '{"a":' * levels + "1" + "}" * levels


async def create_nested_pool(stage, levels):
    text = (
        '{"apiVersion": "superinfer.dev/v1alpha1", "kind": "ChipletPool", '
        '"metadata": {"name": "deep"}, "spec": {"model": {"name": "m"}, "engine": {"type": "Stub"}, '
        '"chiplet": {"shape": "CPU"}, "replicas": 1, "podTemplate": {"spec": {"x": ' + nested(levels) + "}}}}"
    )
    answer = await stage.client._http.post(
        CHIPLET_POOLS.path(stage.namespace), content=text, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 201, answer.text[:500]


@pytest.mark.parametrize("levels", [70, 600, 5_000])
async def test_a_pool_nested_without_end_is_named_and_stops_nobody(stage, levels):
    await create_nested_pool(stage, levels)
    stage.start()
    await stage.until_condition(CHIPLET_POOLS, "deep", "Accepted", ("False", "InvalidSpec"))
    await stage.pool("p", replicas=1)
    await stage.until_names("p-0-1")
    await create_nested_pool_again(stage, levels)
    await stage.pool("p", replicas=2)
    await stage.until_names("p-0-1", "p-1-1")
    assert stage.runtime is not None
    assert not stage._task.done(), "the operator goes on"


async def create_nested_pool_again(stage, levels):
    """The same, told by a watch rather than by a listing."""
    await stage.client.delete(CHIPLET_POOLS, "deep", stage.namespace)

    async def gone():
        return await stage.get(CHIPLET_POOLS, "deep") is None

    await stage.until(gone, "the pool never went")
    await create_nested_pool(stage, levels)
    await stage.until_condition(CHIPLET_POOLS, "deep", "Accepted", ("False", "InvalidSpec"))
