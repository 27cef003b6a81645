"""What a pod tells the operator."""

import pytest

from superinfer_core.placement import ExecutorPhase
from superinfer_operator.watching.pods import ExecutorPod, ForeignPod, pod_facts

LABELS = {
    "app.kubernetes.io/managed-by": "superinfer-operator",
    "superinfer.dev/pool": "p",
    "superinfer.dev/slot": "2",
    "superinfer.dev/incarnation": "5",
    "superinfer.dev/revision": "r",
}


SPEC = {"containers": [{"name": "executor", "resources": {"requests": {"cpu": "50m"}}}]}


def executor(status=None, spec=SPEC, **metadata):
    return pod_facts(
        {
            "metadata": {
                "name": "p-2-5",
                "namespace": "shop",
                "uid": "u",
                "labels": LABELS,
                "annotations": {"superinfer.dev/chiplet": '{"node": "n1", "count": 1}'},
                "creationTimestamp": "2026-01-01T00:00:00Z",
                **metadata,
            },
            "spec": spec,
            "status": status or {},
        }
    )


def ready(status):
    since = "2025-12-31T23:59:59Z"
    return {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": status, "lastTransitionTime": since}],
    }


def test_an_executor_is_known_by_its_labels():
    pod = executor()
    assert isinstance(pod, ExecutorPod)
    assert (pod.key, pod.pool, pod.slot, pod.incarnation, pod.revision) == ("shop/p-2-5", "shop/p", 2, 5, "r")
    assert (pod.node, pod.requests, pod.created_at) == ("n1", {"cpu": 50}, 1767225600.0)


@pytest.mark.parametrize(
    ("status", "want"),
    [
        pytest.param({}, ExecutorPhase.PENDING, id="just made"),
        pytest.param(ready("False"), ExecutorPhase.PENDING, id="running, not serving"),
        pytest.param(ready("True"), ExecutorPhase.READY, id="serving"),
        pytest.param(
            {
                **ready("False"),
                "containerStatuses": [
                    {"name": "s", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
                ],
            },
            ExecutorPhase.PENDING,
            id="its containers run and it has yet to serve",
        ),
        pytest.param(
            {
                "phase": "Running",
                "conditions": [
                    {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:09:00Z"}
                ],
                "containerStatuses": [
                    {"name": "s", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
                ],
            },
            ExecutorPhase.NOT_READY,
            id="served before",
        ),
        pytest.param({"phase": "Failed", "reason": "Evicted"}, ExecutorPhase.FAILED, id="evicted"),
        pytest.param(
            {"phase": "Succeeded"}, ExecutorPhase.FAILED, id="ended, which an executor never should"
        ),
    ],
)
def test_how_far_it_is(status, want):
    assert executor(status).phase is want


@pytest.mark.parametrize(
    ("status", "want_reason", "want_words"),
    [
        pytest.param(ready("True"), "", "", id="nothing is wrong"),
        pytest.param(
            {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no devices"},
            "UnexpectedAdmissionError",
            "no devices",
            id="refused by the kubelet",
        ),
        pytest.param(
            {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3"}
                ]
            },
            "Unschedulable",
            "0/3",
            id="not taken by any node",
        ),
        pytest.param(
            {
                "phase": "Running",
                "containerStatuses": [
                    {
                        "name": "executor",
                        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                    }
                ],
            },
            "CrashLoopBackOff",
            "container executor: back-off",
            id="crashing again and again",
        ),
        pytest.param(
            {
                "initContainerStatuses": [
                    {"name": "superinfer", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
                ]
            },
            "ImagePullBackOff",
            "container superinfer: ",
            id="an image that cannot be had",
        ),
        pytest.param(
            {
                "containerStatuses": [
                    {"name": "executor", "state": {"waiting": {"reason": "ContainerCreating"}}}
                ]
            },
            "",
            "",
            id="starting is no trouble",
        ),
    ],
)
def test_why_it_does_not_serve(status, want_reason, want_words):
    pod = executor(status)
    assert (pod.reason, pod.message) == (want_reason, want_words)


def test_the_kubelet_tells_of_an_unhealthy_device():
    resources = [{"resourceID": "GPU-1", "health": "Unhealthy"}]
    status = {
        "containerStatuses": [
            {
                "name": "executor",
                "allocatedResourcesStatus": [{"name": "nvidia.com/gpu", "resources": resources}],
            }
        ]
    }
    assert executor(status).device_unhealthy
    assert not executor(ready("True")).device_unhealthy


@pytest.mark.parametrize("annotation", ["", "{", "[]", "{}"])
def test_where_somebody_broke_the_annotation_the_pod_itself_shows_its_hardware(annotation):
    spec = {"nodeName": "n9", "containers": [{"name": "e", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]}
    pod = executor(annotations={"superinfer.dev/chiplet": annotation}, spec=spec)
    assert (pod.node, pod.chiplet["resource"], pod.chiplet["count"]) == ("n9", "nvidia.com/gpu", 2)


@pytest.mark.parametrize(
    ("spec", "status", "want"),
    [
        pytest.param(
            {
                "nodeName": "n1",
                "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
            },
            {"phase": "Running"},
            ForeignPod("n1", (("nvidia.com/gpu", 1),)),
            id="holds a GPU",
        ),
        pytest.param({"containers": []}, {"phase": "Pending"}, ForeignPod("", ()), id="not on a node yet"),
        pytest.param(
            {"nodeName": "n1", "containers": []}, {"phase": "Succeeded"}, ForeignPod("", ()), id="has ended"
        ),
    ],
)
def test_other_pods_are_only_what_they_hold(spec, status, want):
    document = {"metadata": {"name": "x", "namespace": "y", "labels": {}}, "spec": spec, "status": status}
    assert pod_facts(document) == want
