import json
from pathlib import Path
from typing import Any

import pytest

from superinfer_core.placement.node import RecoveryAction
from superinfer_gpumock import control
from superinfer_gpumock.description import DescriptionInvalid, parse, render
from superinfer_gpumock.deviceplugin.offer import offered, preferred
from superinfer_gpumock.examples import NAMES, example
from superinfer_gpumock.faults import Failure, fail, recover
from superinfer_gpumock.labels import node_labels
from superinfer_gpumock.live import LiveNode
from superinfer_gpumock.node import MockNode, resolve
from superinfer_gpumock.source import Source


def document(**changes: Any) -> str:
    return json.dumps(
        {"format": "superinfer-gpumock/v1", "product": "NVIDIA H100 80GB HBM3", "gpus": [{}, {}]} | changes
    )


def mig(*instances: tuple[str, int], **more: Any) -> dict[str, Any]:
    laid = [{"profile": profile, "start": start} for profile, start in instances]
    return {"mig": {"enabled": True, "instances": laid} | more}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        (document(format="v2"), "format"),
        (document(gpu=[]), "gpu: Extra inputs are not permitted"),
        (document(gpus=[]), "gpus"),
        (document(gpus=[{"uuid": "GPU-1"}]), "gpus.0.uuid"),
        (document(product="NVIDIA T1000"), "product: unknown 'NVIDIA T1000'; known are NVIDIA A100"),
        (
            document(gpus=[mig(("3g.71gb", 0))]),
            "gpus.0.mig.instances.0.profile: NVIDIA H100 80GB HBM3 has no",
        ),
        (
            document(gpus=[mig(("3g.40gb", 2))]),
            "gpus.0.mig.instances.0.start: 3g.40gb starts at 0, 4, not at 2",
        ),
        (document(gpus=[mig(("3g.40gb", 0), ("1g.10gb", 3))]), "overlaps 3g.40gb at 0 on memory slice 3"),
        (
            document(gpus=[mig(("4g.40gb", 0), ("1g.20gb", 4), ("1g.10gb", 6), ("2g.20gb", 2))]),
            "overlaps 4g.40gb at 0",
        ),
        (document(gpus=[mig(("1g.10gb+me", 0), ("1g.10gb+me", 1))]), "at most 1 fit a GPU"),
        (document(gpus=[mig(("1g.10gb", 0), enabled=False)]), "enabled is false"),
        (document(nvlink={"type": "Direct", "pairs": [{"gpus": [0, 2], "links": 12}]}), "GPUs 0 to 1"),
        (document(nvlink={"type": "Direct", "pairs": [{"gpus": [0, 0], "links": 12}]}), "to itself"),
        (document(nvlink={"type": "Mesh"}), "nvlink"),
        (document(faults=[{"gpu": 7, "xid": 79}]), "faults[0].gpu is 7"),
        (document(events=[{"sequence": 2, "gpu": 0, "type": "Xid"}] * 2), "strictly growing"),
        (document(gpus=[{"pciBusId": "00000000:17:00.0"}] * 2), "is given 2 times"),
    ],
)
def test_what_cannot_be_a_node_is_refused_with_its_field(text: str, said: str) -> None:
    with pytest.raises(DescriptionInvalid) as refused:
        resolve(parse(text), "n")
    assert said in str(refused.value)


def node(**changes: Any) -> MockNode:
    return resolve(parse(document(**changes)), "n")


def test_left_out_identities_are_stable_and_differ_between_nodes() -> None:
    described = parse(example("h100-mixed-mig"))
    first, again, other = (resolve(described, name) for name in ("a", "a", "b"))
    assert first == again
    ids = {gpu.uuid for gpu in first.gpus} | {item.uuid for gpu in first.gpus for item in gpu.instances}
    assert ids.isdisjoint(
        {gpu.uuid for gpu in other.gpus} | {i.uuid for g in other.gpus for i in g.instances}
    )
    assert all(len(name) <= 63 for name in ids)


@pytest.mark.parametrize("name", NAMES)
def test_a_rendered_description_reads_the_same(name: str) -> None:
    described = fail(parse(example(name)), Failure(gpu=0, xid=48))
    assert parse(render(described)) == described


@pytest.mark.parametrize(
    ("xid", "instance", "healthy"),
    [
        (31, None, {0, 1, 2, 3}),
        (94, 1, {0, 2, 3}),
        (94, None, {2, 3}),
        (48, None, {2, 3}),
        (79, 1, {2, 3}),
        (999, 1, {0, 2, 3}),
        (999, None, {2, 3}),
    ],
)
def test_an_xid_hits_the_instances_it_should(xid: int, instance: int | None, healthy: set[int]) -> None:
    laid = [mig(("3g.40gb", 0), ("3g.40gb", 4)), mig(("3g.40gb", 0), ("3g.40gb", 4))]
    described = parse(document(gpus=laid))
    ids = [item.gi_id for item in resolve(described, "n").gpus[0].instances]
    failure = Failure(gpu=0, gi_id=None if instance is None else ids[instance], xid=xid)
    failed = fail(described, failure)
    devices = offered(resolve(failed, "n"))["nvidia.com/mig-3g.40gb"]
    assert {at for at, device in enumerate(devices) if device.healthy} == healthy
    assert all(
        device.healthy for device in offered(resolve(recover(failed, 0), "n"))["nvidia.com/mig-3g.40gb"]
    )


def test_recovering_one_instance_leaves_faults_of_others() -> None:
    described = parse(document(gpus=[mig(("3g.40gb", 0), ("3g.40gb", 4))]))
    for gi_id in (1, 2):
        described = fail(described, Failure(gpu=0, gi_id=gi_id, xid=94))
    devices = offered(resolve(recover(described, 0, 1), "n"))["nvidia.com/mig-3g.40gb"]
    assert [device.healthy for device in devices] == [True, False]


def test_a_needed_reboot_makes_the_gpu_unhealthy_and_draining_does_not() -> None:
    described = parse(document())
    reboot = fail(described, Failure(gpu=0, action=RecoveryAction.NODE_REBOOT))
    drain = fail(described, Failure(gpu=0, action=RecoveryAction.DRAIN_AND_RESET))
    assert [device.healthy for device in offered(resolve(reboot, "n"))["nvidia.com/gpu"]] == [False, True]
    assert [device.healthy for device in offered(resolve(drain, "n"))["nvidia.com/gpu"]] == [True, True]


def test_strategies_name_resources_as_the_real_plugin_does() -> None:
    laid = [mig(("1g.10gb+me", 0), ("3g.40gb", 4)), {}]
    assert {name: len(found) for name, found in offered(node(gpus=laid)).items()} == {
        "nvidia.com/gpu": 1,
        "nvidia.com/mig-1g.10gb.me": 1,
        "nvidia.com/mig-3g.40gb": 1,
    }
    assert {name: len(found) for name, found in offered(node(gpus=laid, migStrategy="none")).items()} == {
        "nvidia.com/gpu": 2
    }
    same = [mig(("3g.40gb", 0)), mig(("3g.40gb", 4))]
    assert set(offered(node(gpus=same, migStrategy="single"))) == {"nvidia.com/gpu"}
    media = node(gpus=[mig(("1g.10gb+me", 0))], migStrategy="single")
    assert node_labels(media)["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb.me"
    with pytest.raises(DescriptionInvalid, match="use mixed"):
        offered(node(gpus=laid, migStrategy="single"))


def test_preferred_gpus_do_not_break_a_pair_for_a_single_gpu() -> None:
    bridged = resolve(parse(example("a100-pcie-bridged")), "n")
    uuids = [gpu.uuid for gpu in bridged.gpus]
    assert preferred(bridged, available=uuids[:3], must_include=[], size=1) == [uuids[1]]
    assert preferred(bridged, available=[uuids[0], uuids[1], uuids[2]], must_include=[], size=2) == [
        uuids[0],
        uuids[2],
    ]


def test_preferred_instances_come_from_the_gpu_with_the_fewest_left() -> None:
    laid = node(gpus=[mig(("3g.40gb", 0), ("3g.40gb", 4)), mig(("3g.40gb", 0))])
    free = [item.uuid for gpu in laid.gpus for item in gpu.instances]
    assert preferred(laid, available=free, must_include=[], size=1) == [laid.gpus[1].instances[0].uuid]


def test_labels_say_mock_and_are_valid() -> None:
    labels = node_labels(resolve(parse(example("h100-mixed-mig")), "n"))
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3"
    assert labels["nvidia.com/mig-1g.10gb.count"] == "9"
    assert "MOCK" in labels["nvidia.com/cuda.driver-version.full"]
    assert all(len(value) <= 63 and " " not in value and "+" not in value for value in labels.values())


def test_faults_outlive_a_restart_and_a_new_source_replaces_them(tmp_path: Path) -> None:
    live = LiveNode(tmp_path)
    source = example("h200-nvswitch")
    assert live.install(source, "n")
    live.edit(lambda described: fail(described, Failure(gpu=0, xid=48)))
    assert not live.install(source, "n")
    assert not live.read()[1].gpus[0].healthy
    assert live.install(example("h100-mixed-mig"), "n")
    assert live.read()[1].gpus[0].healthy


def test_a_node_takes_its_own_file_before_its_label(tmp_path: Path) -> None:
    (tmp_path / "n.json").write_text("own")
    (tmp_path / "shared.json").write_text("shared")
    assert Source("n", directory=tmp_path, label="shared").find() == "own"
    assert Source("m", directory=tmp_path, label="shared").find() == "shared"
    assert Source("m", directory=tmp_path, label="b200-fabric").find() == example("b200-fabric")
    assert Source("m", directory=tmp_path).find() is None
    with pytest.raises(DescriptionInvalid, match="names no description"):
        Source("m", directory=tmp_path, label="typo").find()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fail", "--gpu", "9", "--xid", "79"], "0 to 3"),
        (["fail", "--gpu", "0", "--instance", "9", "--xid", "94"], "GPU 0 has no instance 9; it has 1 (MIG-"),
        (["fail", "--gpu", "0"], "nothing to fail"),
    ],
)
def test_a_failure_that_cannot_be_is_refused(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    LiveNode(tmp_path).install(example("h100-mixed-mig"), "n")
    assert control.main([*arguments, "--dir", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err
