"""Where things are inside an executor pod: what the containers of one pod agree on. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

RUN_PATH: Final = "/run/superinfer"
ENGINE_SOCKET: Final = f"{RUN_PATH}/engine.sock"
DRAINED_FILE: Final = f"{RUN_PATH}/drained"
SHM_PATH: Final = "/dev/shm"  # noqa: S108 - shared memory of the pod, not a temporary file
TMP_PATH: Final = "/tmp"  # noqa: S108 - an emptyDir of the container's own
PROFILE_PATH: Final = "/etc/superinfer/profile/profile.json"
POLICY_PATH: Final = "/etc/superinfer/policy/policy.yaml"
TLS_PATH: Final = "/etc/superinfer/tls"
CHECKPOINT_PATH: Final = f"{SHM_PATH}/superinfer"
CODE_PATH: Final = "/opt/superinfer"
CODE_TARGET: Final = "/superinfer-code"
"""Where the init container sees the volume: its own /opt/superinfer is what it copies from."""


class PodVolume(StrEnum):
    """Names of generated volumes; a podTemplate may replace one by its name."""

    RUN = "run"
    SHM = "shm"
    TMP_EXECUTOR = "tmp-executor"
    TMP_SIDECAR = "tmp-sidecar"
    CODE = "superinfer-code"
    PROFILE = "profile"
    POLICY = "policy"
    TLS = "tls"


@dataclass(frozen=True, slots=True)
class GivenFiles:
    """Which of the optional files a pod mounts."""

    profile: bool = False
    policy: bool = False


_RESTRICTED: Final[Mapping[str, Any]] = MappingProxyType(
    {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True}
)


def mount(volume: PodVolume, path: str, *, read_only: bool = False) -> dict[str, Any]:
    """A volumeMount."""
    made: dict[str, Any] = {"name": volume.value, "mountPath": path}
    return {**made, "readOnly": True} if read_only else made


def file_mounts(given: GivenFiles) -> list[dict[str, Any]]:
    """Mounts of the optional files; both containers read them."""
    mounts = []
    if given.profile:
        mounts.append(mount(PodVolume.PROFILE, PROFILE_PATH.rpartition("/")[0], read_only=True))
    if given.policy:
        mounts.append(mount(PodVolume.POLICY, POLICY_PATH.rpartition("/")[0], read_only=True))
    return mounts


def file_args(given: GivenFiles) -> list[str]:
    """The arguments that name them."""
    profile = ["--profile", PROFILE_PATH] if given.profile else []
    return [*profile, *(["--policy", POLICY_PATH] if given.policy else [])]


def common_env() -> list[dict[str, Any]]:
    """The environment of both containers."""
    return [
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "HOME", "value": TMP_PATH},
        {"name": "TMPDIR", "value": TMP_PATH},
        {"name": "PYTHONUNBUFFERED", "value": "1"},
    ]


def restricted() -> dict[str, Any]:
    """The security context of a container under Pod Security restricted."""
    return {**_RESTRICTED, "capabilities": {"drop": ["ALL"]}}


def grace_seconds(drain_seconds: int, reserve_s: int) -> str:
    """A share of the pod's grace, so that what waits for it still ends by itself."""
    return str(max(1, drain_seconds - reserve_s))
