import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from superinfer_gpumock import serve
from superinfer_gpumock.description import DescriptionInvalid, parse
from superinfer_gpumock.examples import example
from superinfer_gpumock.node import resolve
from superinfer_gpumock.relayout import CONFIG_LABEL, STATE_LABEL, relayout
from superinfer_kube.client import KubeClient
from superinfer_kube.informer import Informer
from superinfer_kube.resources import NODES
from superinfer_kube.testing.apiserver import ApiServer


@pytest.mark.parametrize(
    ("config", "laid"),
    [
        ("all-disabled", []),
        ("all-1g.10gb", [("1g.10gb", start) for start in range(7)]),
        ("all-3g.40gb", [("3g.40gb", 0), ("3g.40gb", 4)]),
        ("all-7g.80gb", [("7g.80gb", 0)]),
        ("all-balanced", [("3g.40gb", 4), ("2g.20gb", 0), ("1g.10gb", 2), ("1g.10gb", 3)]),
    ],
)
def test_every_gpu_gets_the_named_layout(config: str, laid: list[tuple[str, int]]) -> None:
    node = resolve(relayout(parse(example("h100-mixed-mig")), config), "n")
    for gpu in node.gpus:
        assert gpu.mig_enabled == bool(laid)
        assert [(instance.profile.name, instance.start) for instance in gpu.instances] == laid


def test_a_configuration_the_product_does_not_have_is_refused() -> None:
    with pytest.raises(DescriptionInvalid, match=r"all-3g\.71gb: NVIDIA H100 80GB HBM3 has all-1g"):
        relayout(parse(example("h100-mixed-mig")), "all-3g.71gb")


@pytest.fixture
def quiet_node(apiserver: ApiServer) -> Iterator[str]:
    name = "mig-worker"
    yield name
    apiserver.kubectl("delete", "node", name, "--ignore-not-found")


async def until(client: KubeClient, name: str, **labels: str) -> None:
    informer = Informer(client, NODES, dict, fields=f"metadata.name={name}")
    async with asyncio.timeout(20):
        async for change in informer.changes():
            found: dict[str, Any] = (change.object or {}).get("metadata", {}).get("labels", {})
            if labels.items() <= found.items():
                return


@pytest.mark.apiserver
async def test_the_label_of_the_mig_manager_changes_the_layout(
    apiserver: ApiServer, quiet_node: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root: Path = tmp_path_factory.mktemp("m")
    (root / "k").mkdir()
    (root / "source.json").write_text(example("h100-mixed-mig"))
    client = KubeClient.connect(field_manager="test", kubeconfig=apiserver.kubeconfig)
    await client.apply(NODES, {"metadata": {"name": quiet_node}})
    options = serve.parse_arguments(
        [
            f"--node-name={quiet_node}", f"--description={root / 'source.json'}", f"--dir={root / 'live'}",
            f"--kubelet-dir={root / 'k'}", "--library=/nonexistent", f"--kubeconfig={apiserver.kubeconfig}",
        ]
    )  # fmt: skip
    stop = asyncio.Event()
    task = asyncio.create_task(serve.run(options, stop))
    try:
        await until(client, quiet_node, **{"nvidia.com/mig-1g.10gb.count": "9"})
        label = {"metadata": {"labels": {CONFIG_LABEL: "all-3g.40gb"}}}
        await client.patch(NODES, quiet_node, None, label)
        laid = {STATE_LABEL: "success", "nvidia.com/mig-3g.40gb.count": "8"}
        await until(client, quiet_node, **laid)
        await client.patch(NODES, quiet_node, None, {"metadata": {"labels": {CONFIG_LABEL: "all-9g"}}})
        await until(client, quiet_node, **(laid | {STATE_LABEL: "failed"}))
    finally:
        stop.set()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await client.close()
