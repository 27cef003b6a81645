"""The sidecar's container: what ingresses and peers talk to. Pure."""

from typing import Any, Final

from superinfer_core.api.v1alpha1 import labels
from superinfer_core.api.v1alpha1.chipletpool import ChipletPool
from superinfer_core.pods.checkpoint_args import is_checkpointed, sidecar_checkpoint_args
from superinfer_core.pods.paths import (
    DRAINED_FILE,
    ENGINE_SOCKET,
    RUN_PATH,
    SHM_PATH,
    TLS_PATH,
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
_ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - of the pod; network policy says who reaches it


def sidecar_container(pool: ChipletPool, given: GivenFiles, settings: PodSettings) -> dict[str, Any]:
    """The container named `sidecar`."""
    mounts = [
        mount(PodVolume.RUN, RUN_PATH),
        mount(PodVolume.TMP_SIDECAR, TMP_PATH),
        *file_mounts(given),
    ]
    if is_checkpointed(pool):
        mounts.append(mount(PodVolume.SHM, SHM_PATH))
    if settings.tls:
        mounts.append(mount(PodVolume.TLS, TLS_PATH, read_only=True))
    return {
        "name": labels.SIDECAR_CONTAINER,
        "image": settings.sidecar_image,
        "imagePullPolicy": settings.pull_policy,
        "args": [*_args(pool), *file_args(given), *sidecar_checkpoint_args(pool), *_tls_args(pool, settings)],
        "env": [*common_env(), {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}],
        "ports": [
            _port(labels.SIDECAR_GRPC_PORT_NAME, labels.SIDECAR_GRPC_PORT),
            _port(labels.METRICS_PORT_NAME, labels.METRICS_PORT),
        ],
        "readinessProbe": _probe("/readyz", period_s=2, failures=2, timeout_s=2),
        # A node that is short of CPU answers late; ending what runs would only make it worse.
        "livenessProbe": _probe("/livez", period_s=10, failures=6, timeout_s=10),
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        "securityContext": restricted(),
        "volumeMounts": mounts,
    }


def _args(pool: ChipletPool) -> list[str]:
    return [
        "--listen",
        f"{_ANY_ADDRESS}:{labels.SIDECAR_GRPC_PORT}",
        "--engine-socket",
        ENGINE_SOCKET,
        "--executor-name",
        "$(POD_NAME)",
        "--metrics-host",
        _ANY_ADDRESS,
        "--metrics-port",
        str(labels.METRICS_PORT),
        "--grace-s",
        grace_seconds(pool.spec.drain_seconds, _GRACE_RESERVE_S),
        "--drained-file",
        DRAINED_FILE,
    ]


def _tls_args(pool: ChipletPool, settings: PodSettings) -> list[str]:
    if not settings.tls:
        return ["--insecure"]
    return [
        "--tls-cert",
        f"{TLS_PATH}/tls.crt",
        "--tls-key",
        f"{TLS_PATH}/tls.key",
        "--tls-ca",
        f"{TLS_PATH}/ca.crt",
        "--tls-pool-name",
        labels.executor_tls_name(pool.metadata.name or "", pool.metadata.namespace or ""),
    ]


def _port(name: str, number: int) -> dict[str, Any]:
    return {"name": name, "containerPort": number, "protocol": "TCP"}


def _probe(path: str, *, period_s: int, failures: int, timeout_s: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": labels.METRICS_PORT_NAME},
        "periodSeconds": period_s,
        "timeoutSeconds": timeout_s,
        "failureThreshold": failures,
    }
