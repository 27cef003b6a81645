"""What is written for a pool: the claim on its object, and its pods from a plan. Pure builders."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from superinfer_core.api.v1alpha1 import labels
from superinfer_core.api.v1alpha1.chipletpool import Allocation
from superinfer_core.placement import Assignment
from superinfer_core.pods.executor_pod import Seat, build_executor_pod
from superinfer_core.pods.settings import PodSettings
from superinfer_operator.placing.setup import PoolSetup
from superinfer_operator.watching.pods import ExecutorPod
from superinfer_operator.watching.pools import PoolRecord


def highest_incarnations(record: PoolRecord, pods: Iterable[ExecutorPod]) -> dict[int, int]:
    """The highest incarnation every slot ever had: as written down, or as a pod shows."""
    highest = dict(record.incarnations)
    for pod in pods:
        highest[pod.slot] = max(pod.incarnation, highest.get(pod.slot, 0))
    return highest


def with_new(highest: Mapping[int, int], created: Iterable[Assignment]) -> dict[int, int]:
    """The same after these were created."""
    after = dict(highest)
    for assignment in created:
        after[assignment.slot] = after.get(assignment.slot, 0) + 1
    return after


def claim_on_pool(record: PoolRecord, incarnations: Mapping[int, int]) -> dict[str, Any]:
    """What the operator owns of a pool's metadata: its finalizer and the incarnations that are taken."""
    written = json.dumps({str(slot): n for slot, n in sorted(incarnations.items())}, separators=(",", ":"))
    return {
        "metadata": {
            "name": record.name,
            "namespace": record.namespace,
            # A pool that was deleted and made anew meanwhile must not get the old one's finalizer.
            "uid": record.uid,
            "finalizers": [labels.DRAIN_FINALIZER],
            "annotations": {labels.INCARNATIONS_ANNOTATION: written},
        }
    }


def release_of_pool(record: PoolRecord) -> dict[str, Any]:
    """The same given up: the pool may go."""
    return {"metadata": {"name": record.name, "namespace": record.namespace, "uid": record.uid}}


def pod_of(
    setup: PoolSetup, assignment: Assignment, incarnation: int, settings: PodSettings
) -> dict[str, Any]:
    """The pod of an assignment."""
    assert setup.record.pool is not None
    pool, chiplet = setup.record.pool, assignment.chiplet
    by_claim = pool.spec.placement.allocation is Allocation.DRA and bool(chiplet.devices)
    seat = Seat(
        slot=assignment.slot,
        incarnation=incarnation,
        node=assignment.node,
        resource=chiplet.resource or "",
        count=chiplet.count,
        # The claim has the pod's own name.
        claim=labels.executor_name(pool.metadata.name or "", assignment.slot, incarnation)
        if by_claim
        else "",
        chiplet=chiplet_note(assignment),
    )
    return build_executor_pod(pool, seat, setup.files, settings, revision=setup.revision)


def chiplet_note(assignment: Assignment) -> dict[str, Any]:
    """What is written on a pod about its hardware; what is unknown is left out."""
    chiplet = assignment.chiplet
    note: dict[str, Any] = {
        "node": assignment.node,
        "shape": chiplet.shape.value,
        "resource": chiplet.resource,
        "count": chiplet.count,
        "devices": list(chiplet.devices),
        "profile": chiplet.profile,
        "gpu": chiplet.gpu,
        "start": chiplet.start,
        "exact": chiplet.exact,
        "faultDomain": list(assignment.fault_domain),
        "peer": assignment.peer,
        "recreations": assignment.recreations,
    }
    return {name: value for name, value in note.items() if value not in (None, "", [])}
