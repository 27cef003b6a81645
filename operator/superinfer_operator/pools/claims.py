"""ResourceClaims of executors with allocation DRA: for each pod exactly the devices the plan chose for it.

A claim has its pod's name and belongs to it, so the cluster removes both together and a device is free again
when the pod is really gone. The pod is made first and waits for its claim; so a claim without a pod never
exists, wherever the operator is cut off. Concurrency: one keeper, used by one task per pool at a time.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from superinfer_core.api.v1alpha1 import labels
from superinfer_core.api.v1alpha1.chipletpool import ChipletShape
from superinfer_core.placement import ExecutorPhase
from superinfer_core.placement.claims import claim_spec
from superinfer_core.pods.executor_pod import executor_labels
from superinfer_kube.errors import KubeError
from superinfer_kube.resources import RESOURCE_CLAIMS
from superinfer_operator.pools.refusals import Refusals
from superinfer_operator.reconciling.clock import Now
from superinfer_operator.reconciling.writing import Writer
from superinfer_operator.watching.pods import ExecutorPod
from superinfer_operator.watching.pools import PoolRecord

_log = logging.getLogger("superinfer.operator")

LOOK_AGAIN_S: Final = 30.0
"""Claims are not watched: a pod that still waits after so long may have lost its own."""


def needs_claim(pod: ExecutorPod) -> bool:
    """Whether a pod waits for devices by name; one that has a node has had its claim."""
    waits = pod.phase is ExecutorPhase.PENDING and not pod.scheduled and not pod.terminating
    return waits and bool(pod.chiplet.get("devices")) and not pod.chiplet.get("resource")


def resource_claim(pod: ExecutorPod) -> dict[str, Any]:
    """The claim of a pod.

    Raises:
        ValueError: its devices cannot be claimed by name.
    """
    shape = ChipletShape(str(pod.chiplet.get("shape") or ""))
    devices = [str(device) for device in pod.chiplet.get("devices") or ()]
    return {
        "metadata": {
            "name": pod.name,
            "namespace": pod.namespace,
            "labels": executor_labels(pod.pool.rpartition("/")[2]) | {labels.EXECUTOR_LABEL: pod.name},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}],
        },
        "spec": claim_spec(devices, shape),
    }


class ClaimKeeper:
    """Makes claims that are missing."""

    def __init__(self, writer: Writer, refusals: Refusals) -> None:
        self._writer = writer
        self._refusals = refusals
        self._made: dict[str, Mapping[str, float]] = {}
        """When each waiting pod of a pool got its claim, by UID."""

    async def keep(self, record: PoolRecord, pods: Iterable[ExecutorPod], now: Now) -> None:
        """Give every pod of a pool that waits its claim."""
        before, after = self._made.pop(record.key, {}), {}
        waiting = [pod for pod in pods if needs_claim(pod)]
        if not waiting:
            self._refusals.settle(record, RESOURCE_CLAIMS.plural)
        for pod in waiting:
            at = before.get(pod.uid)
            if at is not None and now.seconds - at < LOOK_AGAIN_S:
                after[pod.uid] = at
            elif await self._make(pod, record, now):
                after[pod.uid] = now.seconds
        if after:
            self._made[record.key] = after

    async def _make(self, pod: ExecutorPod, record: PoolRecord, now: Now) -> bool:
        plural = RESOURCE_CLAIMS.plural
        if self._refusals.holds(record, plural, now.seconds):
            return False
        try:
            document = resource_claim(pod)
        except ValueError as error:
            _log.error("executor %s can have no claim: %s", pod.key, error)
            return True

        def refused(error: KubeError) -> None:
            self._refusals.note(record, plural, error, now.seconds)

        if await self._writer.create(RESOURCE_CLAIMS, document, refused) is None:
            return False
        self._refusals.settle(record, plural)
        return True
