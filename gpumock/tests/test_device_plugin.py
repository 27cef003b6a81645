import asyncio
import contextlib
import importlib.util
import logging
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from superinfer_gpumock import control, serve
from superinfer_gpumock.examples import example
from superinfer_gpumock.live import LiveNode
from superinfer_gpumock.wire import deviceplugin_pb2 as wire

_spec = importlib.util.spec_from_file_location("fake_kubelet", Path(__file__).with_name("fake_kubelet.py"))
assert _spec is not None
assert _spec.loader is not None
fake_kubelet = importlib.util.module_from_spec(_spec)
sys.modules["fake_kubelet"] = fake_kubelet
_spec.loader.exec_module(fake_kubelet)

THREE = "nvidia.com/mig-3g.40gb"
ONE = "nvidia.com/mig-1g.10gb"
WHOLE = "nvidia.com/gpu"


@dataclass
class Rig:
    kubelet: "fake_kubelet.FakeKubelet"
    live: LiveNode
    source: Path
    directory: Path

    def command(self, *arguments: str) -> int:
        return control.main([*arguments, "--dir", str(self.live.directory)])

    def healthy(self) -> tuple[int, int]:
        return len(self.kubelet.healthy(THREE)), len(self.kubelet.healthy(ONE))

    def instance(self, gpu: int, at: int) -> tuple[str, int]:
        found = self.live.read()[1].gpus[gpu].instances[at]
        return found.uuid, found.gi_id


@contextlib.asynccontextmanager
async def running(name: str) -> AsyncIterator[Rig]:
    with tempfile.TemporaryDirectory(prefix="gm") as made:  # a short path: sockets allow 107 characters
        root = Path(made)
        (root / "k").mkdir()
        (root / "d").mkdir()
        source = root / "d" / "worker.json"
        source.write_text(example(name))
        kubelet = fake_kubelet.FakeKubelet(root / "k")
        await kubelet.start()
        options = serve.parse_arguments(
            [
                "--node-name=worker", f"--descriptions={root / 'd'}", f"--dir={root / 'live'}",
                f"--kubelet-dir={root / 'k'}", "--no-kube", "--library=/nonexistent",
            ]
        )  # fmt: skip
        stop = asyncio.Event()
        task = asyncio.create_task(serve.run(options, stop))
        try:
            yield Rig(kubelet, LiveNode(root / "live"), source, root / "k")
        finally:
            stop.set()
            await task
            await kubelet.stop()


async def test_every_resource_of_a_mixed_node_is_registered_with_its_devices() -> None:
    async with running("h100-mixed-mig") as rig:
        await rig.kubelet.until(lambda: len(rig.kubelet.devices) == 4)
        assert {name: len(devices) for name, devices in rig.kubelet.devices.items()} == {
            WHOLE: 1,
            ONE: 9,
            "nvidia.com/mig-2g.20gb": 1,
            THREE: 3,
        }
        assert all(name.startswith("MIG-") for name in rig.kubelet.devices[ONE])


async def test_a_failed_instance_is_unhealthy_alone_and_comes_back() -> None:
    async with running("h100-mixed-mig") as rig:
        await rig.kubelet.until(
            lambda: len(rig.kubelet.healthy(THREE)) == 3 and len(rig.kubelet.healthy(ONE)) == 9
        )
        uuid, gi_id = rig.instance(0, 1)
        assert rig.command("fail", "--gpu", "0", "--instance", uuid, "--xid", "94") == 0
        await rig.kubelet.until(lambda: rig.kubelet.devices[THREE].get(uuid) == "Unhealthy")
        assert len(rig.kubelet.healthy(THREE)) == 2
        assert len(rig.kubelet.devices[THREE]) == 3, "a full list each time"
        assert len(rig.kubelet.healthy(ONE)) == 9
        assert rig.command("recover", "--gpu", "0", "--instance", str(gi_id)) == 0
        await rig.kubelet.until(lambda: len(rig.kubelet.healthy(THREE)) == 3)


async def test_a_gpu_that_needs_a_reset_takes_all_of_its_instances_and_no_other() -> None:
    async with running("h100-mixed-mig") as rig:
        await rig.kubelet.until(lambda: len(rig.kubelet.devices) == 4)
        assert rig.command("fail", "--gpu", "1", "--xid", "48") == 0
        await rig.kubelet.until(
            lambda: len(rig.kubelet.healthy(ONE)) == 7 and len(rig.kubelet.healthy(THREE)) == 2
        )
        assert rig.kubelet.healthy("nvidia.com/mig-2g.20gb") == set()
        assert len(rig.kubelet.healthy(WHOLE)) == 1
        assert rig.command("recover", "--gpu", "1") == 0
        await rig.kubelet.until(lambda: len(rig.kubelet.healthy(ONE)) == 9)


async def test_an_application_xid_leaves_devices_healthy() -> None:
    async with running("h100-mixed-mig") as rig:
        await rig.kubelet.until(lambda: len(rig.kubelet.healthy(ONE)) == 9)
        rig.command("fail", "--gpu", "1", "--xid", "31")
        rig.command("fail", "--gpu", "0", "--xid", "79")  # its effect shows that the first was taken in, too
        await rig.kubelet.until(lambda: len(rig.kubelet.healthy(THREE)) == 1)
        assert len(rig.kubelet.healthy(ONE)) == 9


async def test_registers_again_after_the_kubelet_restarted() -> None:
    async with running("h200-nvswitch") as rig:
        await rig.kubelet.until(lambda: len(rig.kubelet.healthy(WHOLE)) == 8)
        await rig.kubelet.stop()
        await rig.kubelet.start()
        await rig.kubelet.until(lambda: len(rig.kubelet.healthy(WHOLE)) == 8)
        assert rig.kubelet.registrations == [WHOLE, WHOLE]


class _Heard(logging.Handler):
    """Says when some words were logged."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self.words = words
        self.seen = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if self.words in record.getMessage():
            self.seen.set()


@contextlib.contextmanager
def heard(words: str) -> Iterator[asyncio.Event]:
    handler = _Heard(words)
    log = logging.getLogger("superinfer_gpumock.deviceplugin")
    log.addHandler(handler)
    yield handler.seen
    log.removeHandler(handler)


async def test_waits_for_a_kubelet_that_is_not_there_yet() -> None:
    async with running("h200-nvswitch") as rig:
        await rig.kubelet.until(lambda: len(rig.kubelet.healthy(WHOLE)) == 8)
        await rig.kubelet.stop()
        (rig.directory / "kubelet.sock").unlink(missing_ok=True)
        with heard("not registered") as missed:
            async with asyncio.timeout(10):
                await missed.wait()
        await rig.kubelet.start()
        await rig.kubelet.until(lambda: len(rig.kubelet.healthy(WHOLE)) == 8)


async def test_a_changed_description_changes_the_offer_and_a_bad_one_does_not() -> None:
    async with running("h200-nvswitch") as rig:
        await rig.kubelet.until(lambda: len(rig.kubelet.healthy(WHOLE)) == 8)
        with heard("not usable, keeping the last: product: unknown 'NVIDIA Q9'") as refused:
            rig.source.write_text('{"format": "superinfer-gpumock/v1", "product": "NVIDIA Q9", "gpus": [{}]}')
            async with asyncio.timeout(10):
                await refused.wait()
        assert len(rig.kubelet.healthy(WHOLE)) == 8
        rig.source.write_text(example("h100-mixed-mig"))
        await rig.kubelet.until(
            lambda: len(rig.kubelet.healthy(ONE)) == 9 and len(rig.kubelet.healthy(WHOLE)) == 1
        )


async def test_a_node_that_is_not_described_any_more_offers_nothing() -> None:
    async with running("h200-nvswitch") as rig:
        await rig.kubelet.until(lambda: len(rig.kubelet.healthy(WHOLE)) == 8)
        text = rig.source.read_text()
        rig.source.unlink()
        await rig.kubelet.until(lambda: rig.kubelet.devices[WHOLE] == {})
        assert not rig.live.flat_file.exists()
        rig.source.write_text(text)
        await rig.kubelet.until(lambda: len(rig.kubelet.healthy(WHOLE)) == 8)


async def test_allocate_makes_exactly_the_asked_devices_visible() -> None:
    async with running("h100-mixed-mig") as rig:
        await rig.kubelet.until(lambda: THREE in rig.kubelet.devices)
        first, second = sorted(rig.kubelet.devices[THREE])[:2]
        answer = await rig.kubelet.plugin(THREE).Allocate(
            wire.AllocateRequest(
                container_requests=[
                    wire.ContainerAllocateRequest(devices_ids=[first, second]),
                    wire.ContainerAllocateRequest(devices_ids=[second]),
                ]
            )
        )
        assert [part.envs["NVIDIA_VISIBLE_DEVICES"] for part in answer.container_responses] == [
            f"{first},{second}",
            second,
        ]


async def test_allocate_refuses_a_device_of_another_resource() -> None:
    async with running("h100-mixed-mig") as rig:
        await rig.kubelet.until(lambda: THREE in rig.kubelet.devices and ONE in rig.kubelet.devices)
        strange = min(rig.kubelet.devices[ONE])
        asked = wire.AllocateRequest(
            container_requests=[wire.ContainerAllocateRequest(devices_ids=[strange])]
        )
        with pytest.raises(grpc.aio.AioRpcError, match=strange):
            await rig.kubelet.plugin(THREE).Allocate(asked)


async def test_two_gpus_of_a_bridged_node_are_a_bridged_pair() -> None:
    async with running("a100-pcie-bridged") as rig:
        await rig.kubelet.until(lambda: WHOLE in rig.kubelet.devices)
        uuids = [gpu.uuid for gpu in rig.live.read()[1].gpus]
        asked = wire.ContainerPreferredAllocationRequest(
            available_deviceIDs=uuids[1:6], must_include_deviceIDs=[uuids[1]], allocation_size=2
        )
        answer = await rig.kubelet.plugin(WHOLE).GetPreferredAllocation(
            wire.PreferredAllocationRequest(container_requests=[asked])
        )
        assert set(answer.container_responses[0].deviceIDs) == {uuids[1], uuids[3]}
