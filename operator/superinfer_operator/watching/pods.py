"""Facts about pods: executors of ours, and what everybody else's pods hold of their nodes. Pure, frozen."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from superinfer_core.api.v1alpha1 import labels
from superinfer_core.placement import ExecutorPhase
from superinfer_core.pods.quantity import pod_requests
from superinfer_core.pools.backoff import Sighting

_ENDED: Final = frozenset({"Failed", "Succeeded"})
_DEVICE_PREFIX: Final = "nvidia.com/"
_BAD_WAITS: Final = frozenset(
    {
        "CrashLoopBackOff",
        "ImagePullBackOff",
        "ErrImagePull",
        "ErrImageNeverPull",
        "InvalidImageName",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)


@dataclass(frozen=True, slots=True)
class ExecutorPod:
    """An executor of ours.

    Attributes:
        namespace, name, uid: identity.
        pool: namespace/name of its pool.
        slot, incarnation, revision: from its labels.
        chiplet: what its annotation says.
        phase: how far it is, as far as the pod itself tells.
        scheduled: a node took it.
        terminating: being deleted.
        reason, message: why it does not serve, where the kubelet or scheduler says.
        device_unhealthy: the kubelet says that a device it was given is unhealthy.
        requests: what it asks of its node.
        created_at: seconds since 1970.
    """

    namespace: str
    name: str
    uid: str
    pool: str
    slot: int
    incarnation: int
    revision: str
    chiplet: Mapping[str, Any]
    phase: ExecutorPhase
    scheduled: bool = False
    terminating: bool = False
    reason: str = ""
    message: str = ""
    device_unhealthy: bool = False
    requests: Mapping[str, int] = field(default_factory=dict)
    created_at: float = 0.0

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def sighting(self) -> Sighting:
        """How it looks to whoever counts failures."""
        return Sighting((self.pool, self.slot), self.uid, self.phase)

    @property
    def node(self) -> str:
        """Where it is pinned."""
        return str(self.chiplet.get("node") or "")


@dataclass(frozen=True, slots=True)
class ForeignPod:
    """Somebody else's pod: only what it holds counts."""

    node: str
    requests: tuple[tuple[str, int], ...]


PodFacts = ExecutorPod | ForeignPod


def pod_facts(document: Mapping[str, Any]) -> PodFacts:
    """What a pod means to the operator.

    Raises:
        KeyError, ValueError: it claims to be an executor and its labels cannot be read.
    """
    found = document["metadata"].get("labels") or {}
    if found.get(labels.APP_MANAGED_BY_LABEL) == labels.MANAGED_BY_OPERATOR and labels.SLOT_LABEL in found:
        return _executor(document, found)
    spec, status = document.get("spec") or {}, document.get("status") or {}
    if status.get("phase") in _ENDED or not spec.get("nodeName"):
        return ForeignPod("", ())
    return ForeignPod(str(spec["nodeName"]), tuple(sorted(pod_requests(spec).items())))


def seconds(text: str | None) -> float:
    """An API timestamp in seconds since 1970; 0 where there is none."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def _executor(document: Mapping[str, Any], found: Mapping[str, str]) -> ExecutorPod:
    metadata, status = document["metadata"], document.get("status") or {}
    spec = document.get("spec") or {}
    requests = pod_requests(spec)
    reason, message = _trouble(status)
    return ExecutorPod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        pool=f"{metadata['namespace']}/{found[labels.POOL_LABEL]}",
        slot=int(found[labels.SLOT_LABEL]),
        incarnation=int(found[labels.INCARNATION_LABEL]),
        revision=found.get(labels.REVISION_LABEL, ""),
        chiplet=_chiplet(metadata.get("annotations") or {}, spec, requests),
        phase=_phase(status),
        scheduled=bool(spec.get("nodeName")),
        terminating=bool(metadata.get("deletionTimestamp")),
        reason=reason,
        message=message,
        device_unhealthy=_device_unhealthy(status),
        requests=requests,
        created_at=seconds(metadata.get("creationTimestamp")),
    )


def _chiplet(
    annotations: Mapping[str, str], spec: Mapping[str, Any], requests: Mapping[str, int]
) -> Mapping[str, Any]:
    """What is written on the pod; where somebody broke that, what the pod itself shows of its hardware."""
    try:
        noted = json.loads(annotations.get(labels.CHIPLET_ANNOTATION) or "{}")
    except ValueError:
        noted = {}
    if isinstance(noted, dict) and noted.get("node"):
        return noted
    shown: dict[str, Any] = {"node": spec.get("nodeName") or ""}
    devices = sorted(name for name in requests if name.startswith(_DEVICE_PREFIX))
    return shown | ({"resource": devices[0], "count": requests[devices[0]]} if devices else {})


def _phase(status: Mapping[str, Any]) -> ExecutorPhase:
    if status.get("phase") in _ENDED:
        return ExecutorPhase.FAILED
    ready = _condition(status, "Ready")
    if ready.get("status") == "True":
        return ExecutorPhase.READY
    return ExecutorPhase.NOT_READY if _was_ready(status, ready) else ExecutorPhase.PENDING


def _was_ready(status: Mapping[str, Any], ready: Mapping[str, Any]) -> bool:
    """Whether a pod that does not serve did before, told by the pod alone.

    One that never served is unready since before its containers ran; one that did became so later.
    """
    starts = [
        seconds(running["startedAt"])
        for container in status.get("containerStatuses") or ()
        if (running := (container.get("state") or {}).get("running")) and running.get("startedAt")
    ]
    since = seconds(ready.get("lastTransitionTime"))
    return bool(starts) and since > min(starts)


def _trouble(status: Mapping[str, Any]) -> tuple[str, str]:
    """Why a pod does not serve; "" where nothing is wrong with it so far."""
    if status.get("phase") in _ENDED:
        return str(status.get("reason") or "Failed"), str(status.get("message") or "the pod ended")
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "False":
        return str(scheduled.get("reason") or "Unschedulable"), str(scheduled.get("message") or "")
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in _BAD_WAITS:
            return str(waiting["reason"]), f"container {container['name']}: {waiting.get('message') or ''}"
    return "", ""


def _device_unhealthy(status: Mapping[str, Any]) -> bool:
    return any(
        resource.get("health") == "Unhealthy"
        for container in status.get("containerStatuses") or ()
        for devices in container.get("allocatedResourcesStatus") or ()
        for resource in devices.get("resources") or ()
    )


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    found: Mapping[str, Any]
    for found in status.get("conditions") or ():
        if found.get("type") == kind:
            return found
    return {}
