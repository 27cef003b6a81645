"""The MOCK DRA driver: a kubelet's calls over real sockets, a real API server behind it."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from superinfer_core.api.v1alpha1.chipletpool import ChipletShape
from superinfer_core.placement.claims import claim_spec
from superinfer_gpumock import control, serve
from superinfer_gpumock.description import parse
from superinfer_gpumock.deviceplugin.offer import offered
from superinfer_gpumock.dra.claims import cdi_spec, prepare
from superinfer_gpumock.dra.slices import DRIVER, devices, uuids
from superinfer_gpumock.examples import example
from superinfer_gpumock.live import LiveNode
from superinfer_gpumock.node import resolve
from superinfer_gpumock.wire import dra_pb2 as wire
from superinfer_gpumock.wire import dra_pb2_grpc as rpc
from superinfer_gpumock.wire import registration_pb2 as registration
from superinfer_gpumock.wire import registration_pb2_grpc as registration_rpc
from superinfer_kube.client import KubeClient
from superinfer_kube.errors import NotFound
from superinfer_kube.informer import Informer
from superinfer_kube.resources import DEVICE_CLASSES, NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from superinfer_kube.testing.apiserver import ApiServer

NODE = "dra-worker"
CLASSES = Path(__file__).parents[2] / "manifests" / "gpumock" / "deviceclasses.yaml"


def source(name: str, **changes: Any) -> str:
    return json.dumps(json.loads(example(name)) | {"offer": "DRA"} | changes)


def test_devices_carry_the_names_of_nvidias_driver() -> None:
    node = resolve(parse(source("h100-mixed-mig")), NODE)
    found = {device["name"]: device for device in devices(node)}
    assert set(found) == set(uuids(node)) - {"gpu-0", "gpu-1", "gpu-2"}, "a GPU in MIG mode is no device"
    mig = found["gpu-0-mig-3g40gb-9-4"]
    assert mig["attributes"]["parentUUID"]["string"] == node.gpus[0].uuid
    assert mig["attributes"]["profile"]["string"] == "3g.40gb"
    assert {name for name in mig["capacity"] if name.startswith("memorySlice")} == {
        f"memorySlice{number}" for number in (4, 5, 6, 7)
    }
    whole = found["gpu-3"]["attributes"]
    assert whole["driverVersion"]["version"] == "580.95.5"
    assert whole["resource.kubernetes.io/pcieRoot"]["string"] == "pci0000:31"


def test_all_devices_of_a_claim_are_visible_at_once() -> None:
    results = [
        {"request": f"device-{at}", "driver": DRIVER, "pool": NODE, "device": f"gpu-{at}"} for at in (0, 1)
    ]
    claim = {
        "metadata": {"namespace": "n", "name": "c", "uid": "u"},
        "status": {"allocation": {"devices": {"results": results}}},
    }
    prepared = prepare(claim, "u", NODE, {"gpu-0": "GPU-a", "gpu-1": "GPU-b"})
    spec = cdi_spec(prepared, "u")
    assert {item.cdi_id for item in prepared} == {f"{spec['kind']}={spec['devices'][0]['name']}"}
    assert "NVIDIA_VISIBLE_DEVICES=GPU-a,GPU-b" in spec["devices"][0]["containerEdits"]["env"]


def test_devices_are_offered_once_only() -> None:
    by_dra = resolve(parse(source("h200-nvswitch")), NODE)
    assert offered(by_dra) == {}
    by_plugin = resolve(parse(example("h200-nvswitch")), NODE)
    assert devices(by_plugin) == []


class Rig:
    def __init__(self, root: Path, client: KubeClient) -> None:
        self.root = root
        self.client = client
        self.live = LiveNode(root / "live")

    async def until(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The node's slice once the condition holds; the empty document while there is none."""
        informer = Informer(self.client, RESOURCE_SLICES, dict, fields=f"spec.nodeName={NODE}")
        async with asyncio.timeout(20):
            async for change in informer.changes():
                gone = change.kind in ("Deleted", "Synced") and not informer.objects
                document: dict[str, Any] = {} if gone else dict(change.object or {})
                if (gone or document) and condition(document):
                    return document
        raise AssertionError

    async def allocated(self, namespace: str, name: str, *device_names: str, pool: str = NODE) -> wire.Claim:
        """A claim as the scheduler leaves it."""
        names = uuids(self.live.read()[1])
        shape = ChipletShape.MIG if "mig" in device_names[0] else ChipletShape.GPU
        spec = claim_spec([names[device] for device in device_names], shape)
        metadata = {"name": name, "namespace": namespace}
        made = await self.client.create(RESOURCE_CLAIMS, {"metadata": metadata, "spec": spec})
        results = [
            {"request": f"device-{at}", "driver": DRIVER, "pool": pool, "device": device}
            for at, device in enumerate(device_names)
        ]
        status = {"allocation": {"devices": {"results": results}}}
        await self.client.patch(RESOURCE_CLAIMS, name, namespace, {"status": status}, subresource="status")
        return wire.Claim(namespace=namespace, name=name, uid=made["metadata"]["uid"])

    @contextlib.asynccontextmanager
    async def kubelet(self) -> AsyncIterator[rpc.DRAPluginStub]:
        """As the kubelet: ask the registration socket what it is, then connect to what it names."""
        socket = self.root / "registry" / f"{DRIVER}-reg.sock"
        async with asyncio.timeout(10):
            while not socket.exists():
                await asyncio.sleep(0.02)
        async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
            stub = registration_rpc.RegistrationStub(channel)
            info = await stub.GetInfo(registration.InfoRequest(), wait_for_ready=True, timeout=10)
            assert (info.type, info.name, list(info.supported_versions)) == (
                "DRAPlugin",
                DRIVER,
                ["v1.DRAPlugin"],
            )
            await stub.NotifyRegistrationStatus(registration.RegistrationStatus(plugin_registered=True))
        async with grpc.aio.insecure_channel(f"unix:{info.endpoint}") as channel:
            yield rpc.DRAPluginStub(channel)

    def cdi(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in (self.root / "cdi").glob("*.json")]


@pytest.fixture
async def rig(apiserver: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    root = tmp_path_factory.mktemp("d")
    (root / "k").mkdir()
    (root / "source.json").write_text(source("h100-mixed-mig"))
    client = KubeClient.connect(field_manager="test", kubeconfig=apiserver.kubeconfig)
    await client.apply(NODES, {"metadata": {"name": NODE}})
    apiserver.kubectl("apply", "--server-side", "-f", str(CLASSES))
    options = serve.parse_arguments(
        [
            f"--node-name={NODE}", f"--description={root / 'source.json'}", f"--dir={root / 'live'}",
            f"--kubelet-dir={root / 'k'}", f"--registry-dir={root / 'registry'}", "--library=/nonexistent",
            f"--plugins-dir={root / 'p'}", f"--cdi-dir={root / 'cdi'}",
            f"--kubeconfig={apiserver.kubeconfig}",
        ]
    )  # fmt: skip
    stop = asyncio.Event()
    task = asyncio.create_task(serve.run(options, stop))
    try:
        yield Rig(root, client)
    finally:
        stop.set()
        await task
        with contextlib.suppress(NotFound):
            await client.delete(RESOURCE_SLICES, f"{NODE}-{DRIVER}")
        await client.close()


@pytest.mark.apiserver
async def test_the_slice_follows_health_and_comes_back_when_deleted(rig: Rig) -> None:
    first = await rig.until(lambda found: len(found.get("spec", {}).get("devices", [])) == 14)
    assert first["spec"]["pool"] == {"name": NODE, "generation": 1, "resourceSliceCount": 1}
    directory = str(rig.live.directory)
    assert control.main(["fail", "--gpu", "0", "--instance", "1", "--xid", "94", "--dir", directory]) == 0
    second = await rig.until(lambda found: len(found.get("spec", {}).get("devices", [])) == 13)
    assert second["spec"]["pool"]["generation"] == 2
    assert "gpu-0-mig-3g40gb-9-0" not in {device["name"] for device in second["spec"]["devices"]}
    control.main(["recover", "--gpu", "0", "--instance", "1", "--dir", directory])
    await rig.until(lambda found: found.get("spec", {}).get("pool", {}).get("generation") == 3)
    await rig.client.delete(RESOURCE_SLICES, f"{NODE}-{DRIVER}")
    await rig.until(lambda found: len(found.get("spec", {}).get("devices", [])) == 14)
    (rig.root / "source.json").write_text(example("h100-mixed-mig"))
    await rig.until(lambda found: found == {})


@pytest.mark.apiserver
async def test_the_classes_are_accepted_and_labels_are_set(rig: Rig) -> None:
    await rig.until(lambda found: "spec" in found)
    names = {item["metadata"]["name"] for item in (await rig.client.list(DEVICE_CLASSES)).items}
    assert names >= {"gpu.nvidia.com", "mig.nvidia.com"}
    node = await rig.client.get(NODES, NODE)
    assert node["metadata"]["labels"]["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3"


@pytest.mark.apiserver
async def test_a_claim_is_prepared_as_it_was_allocated(rig: Rig, namespace: str) -> None:
    await rig.until(lambda found: "spec" in found)
    names = uuids(rig.live.read()[1])
    mig = await rig.allocated(namespace, "mig", "gpu-0-mig-3g40gb-9-4")
    elsewhere = await rig.allocated(namespace, "elsewhere", "gpu-3", pool="other-node")
    stale = wire.Claim(namespace=namespace, name="mig", uid="an-older-uid")
    async with rig.kubelet() as stub:
        request = wire.NodePrepareResourcesRequest(claims=[mig, elsewhere, stale])
        answer = await stub.NodePrepareResources(request)
        again = await stub.NodePrepareResources(wire.NodePrepareResourcesRequest(claims=[mig]))
        prepared = answer.claims[mig.uid].devices[0]
        assert (prepared.device_name, prepared.pool_name) == ("gpu-0-mig-3g40gb-9-4", NODE)
        assert list(prepared.request_names) == ["device-0"]
        assert again.claims[mig.uid] == answer.claims[mig.uid]
        assert "other-node" in answer.claims[elsewhere.uid].error
        assert "made anew" in answer.claims["an-older-uid"].error
        (spec,) = rig.cdi()
        assert list(prepared.cdi_device_ids) == [f"{spec['kind']}={spec['devices'][0]['name']}"]
        visible = f"NVIDIA_VISIBLE_DEVICES={names['gpu-0-mig-3g40gb-9-4']}"
        assert visible in spec["devices"][0]["containerEdits"]["env"]
        done = await stub.NodeUnprepareResources(wire.NodeUnprepareResourcesRequest(claims=[mig, stale]))
        assert {claim.error for claim in done.claims.values()} == {""}
        assert rig.cdi() == []
