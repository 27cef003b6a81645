"""What the command line says of checkpoints, on its way through vLLM's; and what tells weights apart."""

import json
from pathlib import Path

import pytest

from superinfer_executor.checkpoint.settings import (
    CheckpointSettings,
    CheckpointSettingsInvalid,
    ranks_of,
)
from superinfer_executor.checkpoint.store_index import StoreIndex
from superinfer_executor.checkpoint.weights import weights_fingerprint
from superinfer_executor.engine.settings import EngineSettings, engine_args
from superinfer_executor.serving.command import parse_settings
from superinfer_proto.slab import Slab, SlabShape

COMMAND = ("--socket", "/tmp/e.sock", "--model", "/m", "--served-model-name", "m")


def test_settings_survive_the_way_through_vllm() -> None:
    settings = CheckpointSettings("/dev/shm/x", memory_mib=7, ranks=(0, 1), retain_s=2.5)
    document = json.loads(settings.kv_transfer_config())
    assert CheckpointSettings.from_extra_config(document["kv_connector_extra_config"]) == settings
    engine = EngineSettings(model="/m", served_model_name="m", scheduler="fcfs", checkpoint=settings)
    arguments = engine_args(engine, cpu=False, cpu_flags=frozenset(), scheduler_cls=None)
    assert json.loads(arguments[arguments.index("--kv-transfer-config") + 1]) == document


def test_without_a_directory_there_are_none() -> None:
    settings = parse_settings([*COMMAND, "--checkpoint-memory-mib", "64"])
    assert settings.engine.checkpoint is None
    arguments = engine_args(settings.engine, cpu=False, cpu_flags=frozenset(), scheduler_cls="x.Y")
    assert "--kv-transfer-config" not in arguments


@pytest.mark.parametrize(
    ("options", "says"),
    [
        pytest.param(["--checkpoint-dir", "relative"], "absolute path", id="directory"),
        pytest.param(["--checkpoint-dir", "/x", "--checkpoint-memory-mib", "0"], "memory_mib=0", id="memory"),
        pytest.param(["--checkpoint-dir", "/x", "--checkpoint-tiers", "gold,lead"], "lead", id="tier"),
        pytest.param(["--checkpoint-dir", "/x", "--checkpoint-retain-s", "-1"], "retain_s=-1", id="time"),
    ],
)
def test_what_nobody_can_use_ends_the_start_with_its_name(
    options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_settings([*COMMAND, *options])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("tiers", "ranks"),
    [("all", None), ("gold", (0,)), ("Silver, gold", (0, 1)), ("besteffort,bronze", (2, 9))],
)
def test_tiers_are_ranks(tiers: str, ranks: tuple[int, ...] | None) -> None:
    assert ranks_of(tiers) == ranks
    settings = CheckpointSettings("/x", ranks=ranks)
    assert settings.covers(0) is (ranks is None or 0 in ranks)


def test_no_tiers_are_not_all_tiers() -> None:
    with pytest.raises(CheckpointSettingsInvalid, match="write all"):
        ranks_of("")


def test_other_weights_under_the_same_name_are_other_weights(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(bytes(range(256)) * 4096)
    before = weights_fingerprint(str(tmp_path), None)
    assert weights_fingerprint(str(tmp_path), None) == before
    changed = bytearray(file.read_bytes())
    changed[len(changed) // 2 : len(changed) // 2 + 40_000] = bytes(40_000)
    file.write_bytes(changed)
    assert weights_fingerprint(str(tmp_path), None) != before
    assert weights_fingerprint("hub/name", "r1") != weights_fingerprint("hub/name", "r2")


def test_the_store_of_another_layout_is_not_read_and_a_new_one_is(tmp_path: Path) -> None:
    path = tmp_path / "store.slab"
    index = StoreIndex(path, "ours")
    index.follow()
    index.refresh()
    assert index.find(b"x") is None
    for layout, found in (("theirs", False), ("ours", True)):
        slab = Slab.create(path, SlabShape(layout, 100, 4), generation=1)
        slab.publish(2, b"x", 1, 7, 0)
        index.follow()
        index.refresh()
        assert (index.find(b"x") is not None) is found
    slab.erase(2)
    assert index.find(b"x") is None
    slab.publish(1, b"y", 1, 7, 0)
    index.refresh()
    assert index.find(b"y") == (1, slab.head)
