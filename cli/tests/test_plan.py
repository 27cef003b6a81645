"""What `superinfer serve` starts for what a user asked."""

from pathlib import Path

from superinfer.serving.options import Auth, Policy, ServeOptions, omp_threads
from superinfer.serving.plan import ServePlan, plan
from superinfer.serving.process import Role
from superinfer_ingress.config import Config


def planned(tmp_path: Path, environment: dict[str, str] | None = None, **options: object) -> ServePlan:
    chosen = ServeOptions(served_name="m", **{"model": tmp_path, **options})  # type: ignore[arg-type]
    return plan(chosen, run_dir=tmp_path, environment=environment or {}, contracts=tmp_path / "contracts")


def test_every_executor_has_a_sidecar_and_the_ingress_knows_all(tmp_path: Path) -> None:
    the_plan = planned(tmp_path, executors=3)
    roles = [process.role for process in the_plan.processes]
    assert [roles.count(role) for role in (Role.EXECUTOR, Role.SIDECAR, Role.INGRESS)] == [3, 3, 1]
    assert len(the_plan.ingress_config["executors"]) == 3


def test_the_ingress_accepts_the_configuration(tmp_path: Path) -> None:
    keys = tmp_path / "keys.yaml"
    for options in ({}, {"auth": Auth.REQUIRED, "keys": keys}, {"scheduler": Policy.FCFS}):
        Config.model_validate(dict(planned(tmp_path, **options).ingress_config))


def test_bytecode_is_written_whatever_the_environment_says(tmp_path: Path) -> None:
    surroundings = {"PYTHONDONTWRITEBYTECODE": "1", "VLLM_PORT": "tcp://10.0.0.1:80", "HOME": "/root"}
    for process in planned(tmp_path, surroundings).processes:
        assert "PYTHONDONTWRITEBYTECODE" not in process.env
        assert "VLLM_PORT" not in process.env
        assert process.env["HOME"] == "/root"


def test_a_users_engine_arguments_win_over_ours(tmp_path: Path) -> None:
    executor = planned(tmp_path, engine_args=("--max-num-seqs=3",)).processes[0]
    command = " ".join(executor.command)
    assert "--max-num-seqs=3" in command
    assert "--max-num-seqs 8" not in command


def test_a_baseline_neither_orders_nor_admits(tmp_path: Path) -> None:
    the_plan = planned(tmp_path, scheduler=Policy.FCFS)
    sidecar = next(p for p in the_plan.processes if p.role is Role.SIDECAR)
    assert sidecar.command[-4:-2] == ("--order", "fcfs")
    assert the_plan.ingress_config["admission"] == "Skip"


def test_cores_are_divided_over_engines_and_never_none() -> None:
    assert omp_threads(10_000) == 1
    assert omp_threads(1) >= 1
