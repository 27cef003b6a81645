"""The engine's container: vLLM through SuperInfer's executor, or the stub. Pure."""

from typing import Any, Final

from superinfer_core.api.v1alpha1.chipletpool import ChipletPool, ChipletShape, EngineType
from superinfer_core.api.v1alpha1.labels import EXECUTOR_CONTAINER
from superinfer_core.pods.checkpoint_args import engine_checkpoint_args, shared_memory_mib
from superinfer_core.pods.paths import (
    CODE_PATH,
    DRAINED_FILE,
    ENGINE_SOCKET,
    RUN_PATH,
    SHM_PATH,
    TMP_PATH,
    GivenFiles,
    PodVolume,
    common_env,
    file_args,
    file_mounts,
    grace_seconds,
    mount,
    restricted,
)
from superinfer_core.pods.settings import PodSettings

_GRACE_RESERVE_S: Final = 10
_WAIT_RESERVE_S: Final = 5


def engine_image(pool: ChipletPool, settings: PodSettings) -> str:
    """The image of a pool's engine; "" where neither the pool nor the installation names one."""
    if pool.spec.engine.image is not None:
        return pool.spec.engine.image
    return settings.stub_image if pool.spec.engine.type is EngineType.STUB else settings.engine_image


def code_is_injected(pool: ChipletPool, settings: PodSettings) -> bool:
    """Whether an init container brings SuperInfer's code: any vLLM image can be used then."""
    return pool.spec.engine.type is EngineType.VLLM and bool(settings.code_image)


def engine_container(pool: ChipletPool, given: GivenFiles, settings: PodSettings) -> dict[str, Any]:
    """The container named `executor`."""
    stub = pool.spec.engine.type is EngineType.STUB
    mounts = [
        mount(PodVolume.RUN, RUN_PATH),
        mount(PodVolume.TMP_EXECUTOR, TMP_PATH),
    ]
    if shared_memory_mib(pool) > 0:
        mounts.append(mount(PodVolume.SHM, SHM_PATH))
    container: dict[str, Any] = {
        "name": EXECUTOR_CONTAINER,
        "image": engine_image(pool, settings),
        "imagePullPolicy": settings.pull_policy,
    }
    if stub:
        container["args"] = _stub_args(pool)
    else:
        container["command"] = ["python3", "-m", "superinfer_executor"]
        container["args"] = _vllm_args(pool, given)
        mounts += file_mounts(given)
    if code_is_injected(pool, settings):
        mounts.append(mount(PodVolume.CODE, CODE_PATH, read_only=True))
    wait_s = grace_seconds(pool.spec.drain_seconds, _WAIT_RESERVE_S)
    wait = ["wait-drained", "--file", DRAINED_FILE, "--timeout-s", wait_s]
    return container | {
        "env": _env(pool, settings),
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}} if stub else {},
        "securityContext": restricted(),
        # The sidecar hands running requests over first; the engine must outlive that.
        "lifecycle": {"preStop": {"exec": {"command": ["python3", "-m", "superinfer_executor", *wait]}}},
        "volumeMounts": mounts,
    }


def _env(pool: ChipletPool, settings: PodSettings) -> list[dict[str, Any]]:
    env = common_env()
    if pool.spec.chiplet.shape is ChipletShape.CPU:
        # An image built for GPUs asks the container runtime for all of them unless it is told otherwise.
        env.append({"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"})
    if code_is_injected(pool, settings):
        env.append({"name": "PYTHONPATH", "value": CODE_PATH})
    stated = {variable.name: variable.value for variable in pool.spec.engine.env or []}
    kept = [variable for variable in env if variable["name"] not in stated]
    return [*kept, *({"name": name, "value": value} for name, value in stated.items())]


def _stub_args(pool: ChipletPool) -> list[str]:
    engine = pool.spec.engine
    args = ["stub", "--socket", ENGINE_SOCKET, "--served-model-name", pool.spec.model.name]
    args += ["--grace-s", grace_seconds(pool.spec.drain_seconds, _GRACE_RESERVE_S)]
    if engine.max_num_seqs is not None:
        args += ["--max-num-seqs", str(engine.max_num_seqs)]
    if engine.max_model_len is not None:
        args += ["--max-model-len", str(engine.max_model_len)]
    return [*args, *(engine.args or [])]


def _vllm_args(pool: ChipletPool, given: GivenFiles) -> list[str]:
    engine, source = pool.spec.engine, pool.spec.model.source
    model = source.path if source is not None else pool.spec.model.name
    args = ["serve", "--socket", ENGINE_SOCKET, "--model", model, "--served-model-name", pool.spec.model.name]
    args += ["--grace-s", grace_seconds(pool.spec.drain_seconds, _GRACE_RESERVE_S)]
    args += [*file_args(given), *engine_checkpoint_args(pool), "--"]
    if engine.max_model_len is not None:
        args += ["--max-model-len", str(engine.max_model_len)]
    if engine.max_num_seqs is not None:
        args += ["--max-num-seqs", str(engine.max_num_seqs)]
    if (pool.spec.chiplet.count or 1) > 1:
        args += ["--tensor-parallel-size", str(pool.spec.chiplet.count)]
    return [*args, *(engine.args or [])]
