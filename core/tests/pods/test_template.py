"""podTemplate over the generated pod: what merges how, and what is refused."""

import copy

import pytest

from superinfer_core.pods.template import merge_template, template_problems

GENERATED = {
    "metadata": {"labels": {"superinfer.dev/pool": "p"}},
    "spec": {
        "containers": [
            {
                "name": "executor",
                "image": "vllm",
                "args": ["serve"],
                "env": [{"name": "HOME", "value": "/tmp"}, {"name": "A", "value": "1"}],
                "resources": {"requests": {"cpu": "50m"}},
                "volumeMounts": [{"name": "run", "mountPath": "/run/superinfer"}],
            },
            {"name": "sidecar", "image": "sidecar"},
        ],
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "volumes": [{"name": "run", "emptyDir": {}}],
        "securityContext": {"runAsUser": 1000, "fsGroup": 1000},
    },
}


def merged(spec, metadata=None):
    template = {"spec": spec} | ({"metadata": metadata} if metadata is not None else {})
    return merge_template(GENERATED, template)


def executor_of(pod):
    return next(c for c in pod["spec"]["containers"] if c["name"] == "executor")


def test_a_container_is_found_by_its_name_and_keeps_what_is_not_mentioned():
    pod = merged({"containers": [{"name": "executor", "resources": {"limits": {"memory": "4Gi"}}}]})
    assert [c["name"] for c in pod["spec"]["containers"]] == ["executor", "sidecar"]
    assert executor_of(pod)["image"] == "vllm"
    assert executor_of(pod)["resources"] == {"requests": {"cpu": "50m"}, "limits": {"memory": "4Gi"}}


def test_a_new_container_is_added():
    pod = merged({"containers": [{"name": "logs", "image": "fluent"}]})
    assert [c["name"] for c in pod["spec"]["containers"]] == ["executor", "sidecar", "logs"]


@pytest.mark.parametrize(
    ("change", "field", "want"),
    [
        pytest.param(
            {"env": [{"name": "A", "value": "2"}]},
            "env",
            [{"name": "HOME", "value": "/tmp"}, {"name": "A", "value": "2"}],
            id="a variable of that name is replaced in its place",
        ),
        pytest.param(
            {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
            "env",
            [
                {"name": "HOME", "value": "/tmp"},
                {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            ],
            id="valueFrom replaces value, because both together are invalid",
        ),
        pytest.param(
            {"volumeMounts": [{"name": "models", "mountPath": "/models"}]},
            "volumeMounts",
            [{"name": "run", "mountPath": "/run/superinfer"}, {"name": "models", "mountPath": "/models"}],
            id="mounts merge by their path",
        ),
        pytest.param({"args": ["other"]}, "args", ["other"], id="a list without names is replaced"),
    ],
)
def test_lists_inside_a_container(change, field, want):
    assert executor_of(merged({"containers": [{"name": "executor", **change}]}))[field] == want


def test_tolerations_add_up():
    extra = {"key": "team", "operator": "Equal", "value": "shop"}
    pod = merged({"tolerations": [extra, {"key": "gpu", "operator": "Exists"}]})
    assert pod["spec"]["tolerations"] == [{"key": "gpu", "operator": "Exists"}, extra]


def test_null_removes():
    pod = merged({"securityContext": {"runAsUser": None}})
    assert pod["spec"]["securityContext"] == {"fsGroup": 1000}


def test_labels_and_annotations_are_added():
    pod = merged({}, {"labels": {"team": "shop"}, "annotations": {"note": "x"}})
    assert pod["metadata"] == {
        "labels": {"superinfer.dev/pool": "p", "team": "shop"},
        "annotations": {"note": "x"},
    }


def test_merging_changes_neither_input():
    before, template = copy.deepcopy(GENERATED), {"spec": {"containers": [{"name": "executor", "env": []}]}}
    pod = merge_template(GENERATED, template)
    executor_of(pod)["env"].append("later")
    assert before == GENERATED
    assert template == {"spec": {"containers": [{"name": "executor", "env": []}]}}


@pytest.mark.parametrize(
    ("template", "want_field"),
    [
        pytest.param({"spec": {"nodeName": "n1"}}, "spec.podTemplate.spec.nodeName", id="the node"),
        pytest.param(
            {"spec": {"affinity": {"nodeAffinity": {}}}},
            "spec.podTemplate.spec.affinity.nodeAffinity",
            id="what pins it",
        ),
        pytest.param(
            {"spec": {"terminationGracePeriodSeconds": 5}},
            "spec.podTemplate.spec.terminationGracePeriodSeconds",
            id="the grace",
        ),
        pytest.param(
            {"metadata": {"labels": {"superinfer.dev/slot": "7"}}},
            "spec.podTemplate.metadata.labels[superinfer.dev/slot]",
            id="a label of ours",
        ),
        pytest.param(
            {"metadata": {"labels": {"app.kubernetes.io/component": "x"}}},
            "spec.podTemplate.metadata.labels[app.kubernetes.io/component]",
            id="a label Services select by",
        ),
        pytest.param({"metadata": {"name": "x"}}, "spec.podTemplate.metadata.name", id="the name of the pod"),
        pytest.param(
            {"spec": {"containers": [{"image": "x"}]}},
            "spec.podTemplate.spec.containers[0]",
            id="a container without a name",
        ),
        pytest.param(
            {"spec": {"containers": {"name": "executor"}}},
            "spec.podTemplate.spec.containers",
            id="a mapping where a list belongs",
        ),
        pytest.param(
            {"spec": {"containers": [{"name": "executor", "lifecycle": {}}]}},
            "spec.podTemplate.spec.containers[executor].lifecycle",
            id="what drains it",
        ),
        pytest.param(
            {
                "spec": {
                    "containers": [{"name": "logs", "volumeMounts": [{"mountPath": "/etc/superinfer/tls"}]}]
                }
            },
            "spec.podTemplate.spec.containers[logs].volumeMounts",
            id="the place of its keys",
        ),
        pytest.param({"status": {}}, "spec.podTemplate.status", id="something that is no template"),
        pytest.param({"spec": "x"}, "spec.podTemplate.spec", id="text for a spec"),
    ],
)
def test_what_a_template_may_not_touch_is_named_with_its_field_and_a_fix(template, want_field):
    problems = template_problems(template)
    assert [problem.field for problem in problems] == [want_field]
    assert problems[0].fix


@pytest.mark.parametrize(
    "template",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"spec": {"affinity": {"podAntiAffinity": {}}}}, id="affinity to pods"),
        pytest.param(
            {"spec": {"containers": [{"name": "executor", "ports": [{"containerPort": 1}]}]}},
            id="a port without a name",
        ),
        pytest.param(
            {"spec": {"volumes": [{"name": "models", "hostPath": {"path": "/models"}}]}}, id="a volume"
        ),
        pytest.param({"metadata": {"labels": {"team": "shop"}}}, id="a label"),
    ],
)
def test_what_a_template_is_for_is_no_problem(template):
    assert template_problems(template) == ()
