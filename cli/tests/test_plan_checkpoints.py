"""Checkpoints of `superinfer serve`: on both sides of every executor, and only where they are of use."""

import fcntl
from pathlib import Path

import pytest

from superinfer.serving import shared_memory
from superinfer.serving.options import CannotServe, Checkpoint, Policy, ServeOptions
from superinfer.serving.plan import plan
from superinfer.serving.ports import free_port
from superinfer.serving.process import ProcessSpec, Role
from superinfer_executor.serving.command import parse_settings as executor_settings
from superinfer_sidecar.settings import parse_settings as sidecar_settings


def processes(tmp_path: Path, role: Role, **options: object) -> list[ProcessSpec]:
    chosen = ServeOptions(served_name="m", **{"model": tmp_path, **options})  # type: ignore[arg-type]
    made = plan(chosen, run_dir=tmp_path, environment={}, contracts=tmp_path)
    return [process for process in made.processes if process.role is role]


def test_an_engine_and_its_sidecar_share_a_directory_of_their_own(tmp_path: Path) -> None:
    options = {"executors": 2, "checkpoint": Checkpoint.ON, "checkpoint_mib": 100}
    engines = [executor_settings(p.command[4:]) for p in processes(tmp_path, Role.EXECUTOR, **options)]
    sidecars = [sidecar_settings(p.command[3:]) for p in processes(tmp_path, Role.SIDECAR, **options)]
    directories = []
    for engine, sidecar in zip(engines, sidecars, strict=True):
        assert engine.engine.checkpoint is not None
        assert sidecar.checkpoint is not None
        assert engine.engine.checkpoint.directory == str(sidecar.checkpoint.directory)
        assert engine.engine.checkpoint.memory_mib == 50
        assert sidecar.checkpoint.memory_bytes == 50 << 20
        directories.append(sidecar.checkpoint.directory)
    assert len(set(directories)) == 2


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"checkpoint": Checkpoint.OFF}, id="off"),
        pytest.param({"model": None}, id="a stub"),
        pytest.param({"scheduler": Policy.FCFS}, id="a scheduler that cannot resume"),
    ],
)
def test_no_checkpoints_where_nothing_could_use_them(tmp_path: Path, options: dict[str, object]) -> None:
    for role in (Role.EXECUTOR, Role.SIDECAR):
        for process in processes(tmp_path, role, **{"checkpoint": Checkpoint.ON, **options}):
            assert "--checkpoint-dir" not in process.command


def test_too_little_shared_memory_is_said_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    options = ServeOptions(
        served_name="m", model=tmp_path, port=free_port(), checkpoint=Checkpoint.ON, checkpoint_mib=1 << 40
    )
    with pytest.raises(CannotServe, match="MiB of shared memory"):
        options.check()


def test_what_a_killed_serve_left_is_removed_and_what_is_in_use_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_memory, "SHARED_MEMORY", tmp_path)
    for name in ("superinfer-gone", "superinfer-used", "other"):
        (tmp_path / name / "executor-0").mkdir(parents=True)
        (tmp_path / name / "executor-0" / "engine.slab").write_bytes(b"x")
    with (tmp_path / "superinfer-used/executor-0/engine.slab").open("rb") as used:
        fcntl.flock(used, fcntl.LOCK_EX)
        shared_memory.remove_left_behind()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "superinfer-used"]
