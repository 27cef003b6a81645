"""The pod of one executor: an engine container and its sidecar, pinned to one node and its chiplet.

Promise: `build_executor_pod` depends on its arguments alone, so equal pools make equal pods; `revision_of`
is the hash of everything a pod is made from apart from its seat (slot, incarnation, node), so a pod whose
revision differs from its pool's is out of date. A pod satisfies Pod Security "restricted" unless its template
says otherwise. Nothing here knows the API server. Pure.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from superinfer_core.api.v1alpha1 import labels
from superinfer_core.api.v1alpha1.chipletpool import ChipletPool
from superinfer_core.pods.checkpoint_args import shared_memory_mib
from superinfer_core.pods.engine_container import code_is_injected, engine_container
from superinfer_core.pods.paths import (
    CODE_TARGET,
    POLICY_PATH,
    PROFILE_PATH,
    GivenFiles,
    PodVolume,
    restricted,
)
from superinfer_core.pods.settings import PodSettings
from superinfer_core.pods.sidecar_container import sidecar_container
from superinfer_core.pods.template import merge_template

_REVISION_CHARACTERS: Final = 12
_CLAIM: Final = "chiplet"
"""Name, inside the pod, of the ResourceClaim with its devices."""


@dataclass(frozen=True, slots=True)
class PoolFiles:
    """Files of a pool's references that its pods mount.

    Attributes:
        profile: (ConfigMap, item) of the measured profile; None without one.
        policy: (ConfigMap, item) of the scheduling policy; None without one.
        digest: of the texts of both, because they are read once, at start.
    """

    profile: tuple[str, str] | None = None
    policy: tuple[str, str] | None = None
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Seat:
    """Which executor a pod is, and where.

    Attributes:
        slot, incarnation: make its name, with the pool's.
        node: the only node it may run on.
        resource, count: extended resource of the device plugin; "" where the chiplet needs none.
        claim: name of the ResourceClaim with allocation DRA.
        chiplet: what the annotation says of it.
    """

    slot: int
    incarnation: int
    node: str
    resource: str = ""
    count: int = 0
    claim: str = ""
    chiplet: Mapping[str, Any] = field(default_factory=dict)


_NO_SEAT: Final = Seat(slot=0, incarnation=0, node="")


def executor_labels(pool: str) -> dict[str, str]:
    """What every executor pod of a pool carries, and its Services select by."""
    return {
        labels.APP_NAME_LABEL: labels.APP_NAME,
        labels.APP_COMPONENT_LABEL: labels.COMPONENT_EXECUTOR,
        labels.APP_MANAGED_BY_LABEL: labels.MANAGED_BY_OPERATOR,
        labels.POOL_LABEL: pool,
    }


def owner_reference(pool: ChipletPool) -> dict[str, Any]:
    """The pool as controller of what is made for it."""
    return {
        "apiVersion": pool.api_version,
        "kind": pool.kind,
        "name": pool.metadata.name,
        "uid": pool.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def revision_of(pool: ChipletPool, files: PoolFiles, settings: PodSettings) -> str:
    """Short hash of what pods of this pool are made from now."""
    made = {"pod": _merged(pool, _NO_SEAT, files, settings), "files": files.digest}
    text = json.dumps(made, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_REVISION_CHARACTERS]


def build_executor_pod(
    pool: ChipletPool, seat: Seat, files: PoolFiles, settings: PodSettings, *, revision: str
) -> dict[str, Any]:
    """The whole pod, ready to be applied.

    Args:
        pool: with metadata as the API server has it, and a template without problems.
        seat: from the placement plan.
        files: what its references were resolved to.
        settings: images and defaults of this installation.
        revision: of `revision_of` with the same arguments.
    """
    pod = _merged(pool, seat, files, settings)
    metadata = pod["metadata"]
    name = labels.executor_name(pool.metadata.name or "", seat.slot, seat.incarnation)
    metadata["name"] = name
    metadata["namespace"] = pool.metadata.namespace
    metadata["ownerReferences"] = [owner_reference(pool)]
    metadata["labels"] |= {
        labels.EXECUTOR_LABEL: name,
        labels.SLOT_LABEL: str(seat.slot),
        labels.INCARNATION_LABEL: str(seat.incarnation),
        labels.REVISION_LABEL: revision,
    }
    metadata["annotations"][labels.CHIPLET_ANNOTATION] = json.dumps(dict(seat.chiplet), sort_keys=True)
    return pod


def _merged(pool: ChipletPool, seat: Seat, files: PoolFiles, settings: PodSettings) -> dict[str, Any]:
    pod = _generated(pool, seat, files, settings)
    merged = merge_template(pod, template_document(pool))
    _pin_devices(merged["spec"], seat)
    return merged


def _generated(pool: ChipletPool, seat: Seat, files: PoolFiles, settings: PodSettings) -> dict[str, Any]:
    given = GivenFiles(profile=files.profile is not None, policy=files.policy is not None)
    spec: dict[str, Any] = {
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": pool.spec.drain_seconds,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": settings.uid,
            "runAsGroup": settings.uid,
            "fsGroup": settings.uid,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": _pinned_to(seat.node),
        "tolerations": _tolerations(pool),
        "containers": [
            engine_container(pool, given, settings),
            sidecar_container(pool, given, settings),
        ],
        "volumes": _volumes(pool, files, settings),
    }
    if code_is_injected(pool, settings):
        spec["initContainers"] = [_code_container(settings)]
    if settings.pull_secrets:
        spec["imagePullSecrets"] = [{"name": secret} for secret in settings.pull_secrets]
    if settings.priority_class:
        spec["priorityClassName"] = settings.priority_class
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": executor_labels(pool.metadata.name or ""), "annotations": {}},
        "spec": spec,
    }


def _pinned_to(node: str) -> dict[str, Any]:
    # By name through the scheduler, not by spec.nodeName: so cordons, taints and what the device plugin has
    # left are still checked before the kubelet has to refuse the pod.
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def _tolerations(pool: ChipletPool) -> list[dict[str, Any]]:
    stated = pool.spec.placement.tolerations or []
    return [toleration.model_dump(mode="json", exclude_none=True) for toleration in stated]


def _volumes(pool: ChipletPool, files: PoolFiles, settings: PodSettings) -> list[dict[str, Any]]:
    volumes: list[dict[str, Any]] = [
        {"name": PodVolume.RUN, "emptyDir": {}},
        {"name": PodVolume.TMP_EXECUTOR, "emptyDir": {}},
        {"name": PodVolume.TMP_SIDECAR, "emptyDir": {}},
    ]
    if (shm_mib := shared_memory_mib(pool)) > 0:
        memory = {"medium": "Memory", "sizeLimit": f"{shm_mib}Mi"}
        volumes.append({"name": PodVolume.SHM, "emptyDir": memory})
    if code_is_injected(pool, settings):
        volumes.append({"name": PodVolume.CODE, "emptyDir": {}})
    for volume, source, path in (
        (PodVolume.PROFILE, files.profile, PROFILE_PATH),
        (PodVolume.POLICY, files.policy, POLICY_PATH),
    ):
        if source is not None:
            item = {"key": source[1], "path": path.rpartition("/")[2]}
            volumes.append({"name": volume, "configMap": {"name": source[0], "items": [item]}})
    if settings.tls:
        secret = {
            "secretName": labels.executor_tls_secret_name(pool.metadata.name or ""),
            "defaultMode": 0o440,
        }
        volumes.append({"name": PodVolume.TLS, "secret": secret})
    return volumes


def _code_container(settings: PodSettings) -> dict[str, Any]:
    return {
        "name": "superinfer",
        "image": settings.code_image,
        "imagePullPolicy": settings.pull_policy,
        "args": [CODE_TARGET],
        "securityContext": restricted(),
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
        "volumeMounts": [{"name": PodVolume.CODE, "mountPath": CODE_TARGET}],
    }


def _pin_devices(spec: dict[str, Any], seat: Seat) -> None:
    """The chiplet, whatever the template says: two executors on one chiplet would be the worst mistake."""
    executor = next(c for c in spec["containers"] if c["name"] == labels.EXECUTOR_CONTAINER)
    resources = executor.setdefault("resources", {})
    if seat.resource:
        for kind in ("requests", "limits"):
            resources[kind] = {**resources.get(kind, {}), seat.resource: str(seat.count)}
    if seat.claim:
        spec["resourceClaims"] = [
            *(c for c in spec.get("resourceClaims", []) if c.get("name") != _CLAIM),
            {"name": _CLAIM, "resourceClaimName": seat.claim},
        ]
        resources["claims"] = [
            *(c for c in resources.get("claims", []) if c.get("name") != _CLAIM),
            {"name": _CLAIM},
        ]


def template_document(pool: ChipletPool) -> dict[str, Any]:
    """The pool's podTemplate as a plain document; nulls inside its spec are kept, because they remove."""
    template = pool.spec.pod_template
    if template is None:
        return {}
    metadata = template.metadata.model_dump(mode="json", exclude_none=True) if template.metadata else {}
    return {"metadata": metadata, "spec": template.spec or {}}
