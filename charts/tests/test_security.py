"""Rights and pod security of what the chart installs."""

from typing import Any

import pytest
from charts.tests.rendering import EVERYTHING, NAMESPACE, Chart, Document, Rendered

pytestmark = pytest.mark.apiserver

READ = ["get", "list", "watch"]


def rules(rendered: Rendered, kind: str, name: str) -> dict[str, list[str]]:
    """Verbs by group/resource[names]."""
    found: dict[str, list[str]] = {}
    for rule in rendered.one(kind, name)["rules"]:
        assert set(rule) <= {"apiGroups", "resources", "verbs", "resourceNames"}
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                names = ",".join(rule.get("resourceNames", []))
                found[f"{group or 'core'}/{resource}" + (f"[{names}]" if names else "")] = rule["verbs"]
    return found


def test_nobody_has_a_wildcard_or_may_give_away_rights(chart: Chart) -> None:
    rendered = chart.render(*EVERYTHING)
    for role in [*rendered.all("ClusterRole"), *rendered.all("Role")]:
        for rule in role["rules"]:
            words = [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            assert not any("*" in word for word in words), role["metadata"]["name"]
            assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"]), role["metadata"]["name"]


def test_the_operator_s_rights(chart: Chart) -> None:
    assert rules(chart.render(), "ClusterRole", "superinfer-operator") == {
        "superinfer.dev/chipletpools": [*READ, "patch"],
        "superinfer.dev/slocontracts": READ,
        "superinfer.dev/nodetopologies": READ,
        "superinfer.dev/chipletpools/status": ["patch"],
        "superinfer.dev/slocontracts/status": ["patch"],
        "superinfer.dev/chipletpools/finalizers": ["update"],
        "core/nodes": READ,
        "core/pods": [*READ, "create", "delete"],
        "core/services": [*READ, "create", "patch"],
        "core/configmaps": [*READ, "patch"],
        "core/secrets": [*READ, "create", "patch"],
        "resource.k8s.io/resourceclaims": ["create"],
        "policy/poddisruptionbudgets": [*READ, "create", "patch"],
        "events.k8s.io/events": ["create"],
    }


def test_the_operator_may_stand_for_election_and_touch_no_other_lease(chart: Chart) -> None:
    assert rules(chart.render(), "Role", "superinfer-operator") == {
        "coordination.k8s.io/leases": ["create"],
        "coordination.k8s.io/leases[superinfer-operator]": ["get", "patch"],
    }


def test_where_namespaces_are_named_secrets_are_the_operator_s_only_there(chart: Chart) -> None:
    rendered = chart.render("secrets.namespaces={shop,bank}")
    assert "core/secrets" not in rules(rendered, "ClusterRole", "superinfer-operator")
    roles = {
        role["metadata"]["namespace"]: role["rules"]
        for role in rendered.all("Role")
        if role["metadata"]["name"] == "superinfer-operator"
    }
    secrets = {"apiGroups": [""], "resources": ["secrets"], "verbs": [*READ, "create", "patch"]}
    assert roles["bank"] == roles["shop"] == [secrets]
    assert roles[NAMESPACE][0] == secrets
    assert set(roles) == {"bank", "shop", NAMESPACE}
    bound = [b for b in rendered.all("RoleBinding") if b["roleRef"]["name"] == "superinfer-operator"]
    assert {binding["metadata"]["namespace"] for binding in bound} == set(roles)


def test_nodes_can_be_labelled_only_where_that_is_asked_for(chart: Chart) -> None:
    nodes = rules(chart.render("migLabels.enabled=true"), "ClusterRole", "superinfer-operator")["core/nodes"]
    assert nodes == [*READ, "patch"]


def test_the_ingress_s_rights(chart: Chart) -> None:
    rendered = chart.render()
    assert rules(rendered, "ClusterRole", "superinfer-ingress") == {
        "superinfer.dev/chipletpools": READ,
        "superinfer.dev/slocontracts": [*READ, "create", "patch", "delete"],
        "discovery.k8s.io/endpointslices": READ,
    }
    assert rules(rendered, "Role", "superinfer-ingress") == {
        "core/secrets[superinfer-api-keys]": READ,
        "core/configmaps": ["get", "create", "patch"],
    }


def test_an_ingress_that_may_not_write_contracts_cannot(chart: Chart) -> None:
    rendered = chart.render("ingress.writeContracts=false")
    assert rules(rendered, "ClusterRole", "superinfer-ingress")["superinfer.dev/slocontracts"] == READ


def test_the_rights_of_the_others(chart: Chart) -> None:
    rendered = chart.render(*EVERYTHING)
    assert rules(rendered, "ClusterRole", "superinfer-node-agent") == {
        "superinfer.dev/nodetopologies": ["get", "create", "patch"],
        "superinfer.dev/nodetopologies/status": ["patch"],
        "core/nodes": ["get"],
    }
    assert rules(rendered, "ClusterRole", "superinfer-cleanup") == {
        "superinfer.dev/chipletpools": ["list", "delete", "patch"]
    }


def test_every_role_belongs_to_exactly_its_account(chart: Chart) -> None:
    rendered = chart.render(*EVERYTHING)
    for binding in [*rendered.all("ClusterRoleBinding"), *rendered.all("RoleBinding")]:
        (subject,) = binding["subjects"]
        assert subject["name"] == binding["roleRef"]["name"] == binding["metadata"]["name"]
        assert subject["namespace"] == NAMESPACE
    used = {pod["spec"]["serviceAccountName"] for name, pod in rendered.pods() if not name.startswith("Pod/")}
    assert used == {account["metadata"]["name"] for account in rendered.all("ServiceAccount")}


def containers(pod: Document) -> list[Document]:
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


def is_restricted(pod: Document) -> list[str]:
    """What keeps a pod out of the pod security level `restricted`."""
    spec, problems = pod["spec"], []
    security: dict[str, Any] = spec.get("securityContext", {})
    if security.get("runAsNonRoot") is not True:
        problems.append("runAsNonRoot")
    if security.get("seccompProfile") != {"type": "RuntimeDefault"}:
        problems.append("seccompProfile")
    if any("hostPath" in volume for volume in spec.get("volumes", [])):
        problems.append("hostPath")
    problems += [key for key in ("hostNetwork", "hostPID", "hostIPC") if spec.get(key)]
    for each in containers(pod):
        own = each["securityContext"]
        if own.get("allowPrivilegeEscalation") is not False:
            problems.append("allowPrivilegeEscalation")
        if own.get("capabilities") != {"drop": ["ALL"]}:
            problems.append("capabilities")
        if own.get("privileged"):
            problems.append("privileged")
        if own.get("runAsUser") == 0:
            problems.append("root")
    return problems


def test_all_but_the_node_agent_are_restricted(chart: Chart) -> None:
    found = {name: is_restricted(pod) for name, pod in chart.render(*EVERYTHING).pods()}
    assert found == {
        "Deployment/superinfer-operator": [],
        "Deployment/superinfer-ingress": [],
        "Job/superinfer-cleanup": [],
        "Pod/superinfer-check": [],
        "DaemonSet/superinfer-node-agent": ["runAsNonRoot", "hostPath", "root"],
    }


def test_no_container_can_write_its_image_or_take_all_memory(chart: Chart) -> None:
    for name, pod in chart.render(*EVERYTHING).pods():
        for each in containers(pod):
            assert each["securityContext"]["readOnlyRootFilesystem"] is True, name
            assert {"cpu", "memory"} <= set(each["resources"]["requests"]), name
            assert "memory" in each["resources"]["limits"], name
            assert each["image"].startswith("superinfer/"), name


def test_every_pod_that_stays_is_behind_a_network_policy(chart: Chart) -> None:
    rendered = chart.render(*EVERYTHING)
    ports = {
        policy["metadata"]["name"]: [
            port["port"] for rule in policy["spec"].get("ingress", []) for port in rule["ports"]
        ]
        for policy in rendered.all("NetworkPolicy")
    }
    assert ports == {
        "superinfer-ingress": ["http"],
        "superinfer-operator": ["metrics"],
        "superinfer-cleanup": [],
        "superinfer-node-agent": [],
    }
