"""A real API server takes everything the chart renders, enforces its rights, and takes every sample."""

from typing import Any

import pytest
import yaml
from charts.tests.rendering import EVERYTHING, NAMESPACE, REPOSITORY, Chart, Document

from superinfer_kube.testing.apiserver import ApiServer

pytestmark = pytest.mark.apiserver

RESTRICTED = {
    "pod-security.kubernetes.io/enforce": "restricted",
    "pod-security.kubernetes.io/warn": "restricted",
}
# Kinds of other projects, which a bare API server does not have.
FOREIGN = {"ServiceMonitor", "PodMonitor", "PrometheusRule", "HTTPRoute"}


def apply(server: ApiServer, document: Document) -> tuple[int, dict[str, Any]]:
    return server.apply(path_of(server, document), document)


def path_of(server: ApiServer, document: Document) -> str:
    """Where an object is, as the server's own discovery says."""
    version = document["apiVersion"]
    base = f"/api/{version}" if "/" not in version else f"/apis/{version}"
    _, found = server.request("GET", base)
    (resource,) = [
        entry
        for entry in found["resources"]
        if entry["kind"] == document["kind"] and "/" not in entry["name"]
    ]
    metadata = document["metadata"]
    where = f"/namespaces/{metadata['namespace']}" if resource["namespaced"] else ""
    return f"{base}{where}/{resource['name']}/{metadata['name']}"


@pytest.fixture(scope="module")
def installed(superinfer_api: ApiServer, chart: Chart) -> ApiServer:
    """Everything the chart renders, applied; the namespace takes only restricted pods."""
    code, answer = superinfer_api.apply(
        f"/api/v1/namespaces/{NAMESPACE}",
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": NAMESPACE, "labels": RESTRICTED},
        },
    )
    assert code in (200, 201), answer
    for document in chart.render(*EVERYTHING).documents:
        if document["kind"] not in FOREIGN:
            code, answer = apply(superinfer_api, document)
            assert code in (200, 201), (document["kind"], document["metadata"]["name"], answer)
    return superinfer_api


def test_the_same_again_changes_nothing(installed: ApiServer, chart: Chart) -> None:
    deployment = chart.render(*EVERYTHING).one("Deployment", "superinfer-ingress")
    _, before = installed.request("GET", path_of(installed, deployment))
    _, after = apply(installed, deployment)
    assert before["metadata"]["generation"] == after["metadata"]["generation"]


def test_restricted_admission_takes_the_pods(installed: ApiServer, chart: Chart) -> None:
    taken = {}
    for name, pod in chart.render(*EVERYTHING).pods():
        document = {"apiVersion": "v1", "kind": "Pod", "spec": pod["spec"]}
        document["metadata"] = {"name": f"try-{name.partition('/')[2]}", "labels": pod["metadata"]["labels"]}
        if "restartPolicy" not in pod["spec"]:
            document["spec"] = {**pod["spec"], "restartPolicy": "Always"}
        code, _ = installed.request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All", document)
        taken[name] = code
    assert taken == {
        "Deployment/superinfer-operator": 201,
        "Deployment/superinfer-ingress": 201,
        "Job/superinfer-cleanup": 201,
        "Pod/superinfer-check": 201,
        "DaemonSet/superinfer-node-agent": 403,
    }


INGRESS, OPERATOR, AGENT, CLEANUP = (
    f"superinfer-{name}" for name in ("ingress", "operator", "node-agent", "cleanup")
)
GROUPS = {
    "slocontracts": "superinfer.dev",
    "chipletpools": "superinfer.dev",
    "nodetopologies": "superinfer.dev",
    "endpointslices": "discovery.k8s.io",
    "poddisruptionbudgets": "policy",
    "events": "events.k8s.io",
    "clusterroles": "rbac.authorization.k8s.io",
    "deployments": "apps",
}


@pytest.mark.parametrize(
    ("account", "verb", "what", "namespace", "allowed"),
    [
        (INGRESS, "watch", "slocontracts", "shop", True),
        (INGRESS, "watch", "chipletpools", "shop", True),
        (INGRESS, "watch", "endpointslices", "shop", True),
        (INGRESS, "patch", "slocontracts", "shop", True),
        (INGRESS, "patch", "configmaps", NAMESPACE, True),
        (INGRESS, "watch", "secrets/superinfer-api-keys", NAMESPACE, True),
        (INGRESS, "get", "secrets/superinfer-ca", NAMESPACE, False),
        (INGRESS, "list", "secrets", NAMESPACE, False),
        (INGRESS, "get", "secrets/checkout-keys", "shop", False),
        (INGRESS, "patch", "configmaps", "shop", False),
        (INGRESS, "patch", "chipletpools", "shop", False),
        (INGRESS, "list", "pods", "shop", False),
        (INGRESS, "list", "nodes", "", False),
        (OPERATOR, "create", "pods", "shop", True),
        (OPERATOR, "delete", "pods", "shop", True),
        (OPERATOR, "patch", "chipletpools.status", "shop", True),
        (OPERATOR, "patch", "slocontracts.status", "shop", True),
        (OPERATOR, "create", "secrets", "shop", True),
        (OPERATOR, "create", "events", "shop", True),
        (OPERATOR, "watch", "nodetopologies", "", True),
        (OPERATOR, "patch", "slocontracts", "shop", False),
        (OPERATOR, "delete", "secrets", "shop", False),
        (OPERATOR, "delete", "chipletpools", "shop", False),
        (OPERATOR, "patch", "nodes", "", False),
        (OPERATOR, "create", "deployments", "shop", False),
        (OPERATOR, "create", "clusterroles", "", False),
        (OPERATOR, "create", "pods.exec", "shop", False),
        (AGENT, "patch", "nodetopologies.status", "", True),
        (AGENT, "get", "nodes", "", True),
        (AGENT, "patch", "nodes", "", False),
        (AGENT, "list", "pods", "shop", False),
        (CLEANUP, "delete", "chipletpools", "shop", True),
        (CLEANUP, "delete", "slocontracts", "shop", False),
        (CLEANUP, "delete", "pods", "shop", False),
    ],
)
def test_the_api_server_grants_what_is_needed_and_no_more(
    installed: ApiServer, account: str, verb: str, what: str, namespace: str, allowed: bool
) -> None:
    resource, _, name = what.partition("/")
    resource, _, subresource = resource.partition(".")
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{NAMESPACE}:{account}",
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}"],
            "resourceAttributes": {
                "verb": verb,
                "group": GROUPS.get(resource, ""),
                "resource": resource,
                "subresource": subresource,
                "namespace": namespace,
                "name": name,
            },
        },
    }
    code, answer = installed.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    assert code == 201
    assert answer["status"]["allowed"] is allowed


def samples() -> list[Any]:
    found = []
    for path in sorted((REPOSITORY / "manifests" / "samples").rglob("*.yaml")):
        for number, document in enumerate(yaml.safe_load_all(path.read_text())):
            if document.get("apiVersion", "").startswith("superinfer.dev/"):
                found.append(pytest.param(document, id=f"{path.parent.name}/{path.name} {number}"))
    return found


@pytest.mark.parametrize("document", samples())
def test_every_sample_is_taken(superinfer_api: ApiServer, namespace: str, document: Document) -> None:
    there = {**document, "metadata": {**document["metadata"], "namespace": namespace}}
    path = path_of(superinfer_api, there).rpartition("/")[0]
    code, answer = superinfer_api.request("POST", f"{path}?fieldValidation=Strict", there)
    assert code == 201, answer


def test_plain_kubectl_installs_the_same(superinfer_api: ApiServer, chart: Chart) -> None:
    documents = [d for d in yaml.safe_load_all((REPOSITORY / "manifests" / "install.yaml").read_text()) if d]
    names = {f"{d['kind']}/{d['metadata']['name']}" for d in documents}
    of_helm = chart.render().names
    assert names - of_helm == {f"Namespace/{NAMESPACE}"}
    assert of_helm - names == {
        "Secret/superinfer-cache-salt",
        "Pod/superinfer-check",
        *(
            f"{kind}/superinfer-cleanup"
            for kind in ("Job", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "NetworkPolicy")
        ),
    }
    for document in documents:
        code, answer = apply(superinfer_api, document)
        assert code in (200, 201), (document["kind"], document["metadata"]["name"], answer)
