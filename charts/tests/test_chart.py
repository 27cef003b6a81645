"""What the chart installs, flag by flag, and that the programs it starts understand what it tells them."""

import json
import re
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from charts.tests.rendering import CHART, EVERYTHING, NAMESPACE, REPOSITORY, Chart, Refused, container, helm

from superinfer_core.refusal import RefusalCode
from superinfer_executor.node_agent.command import parse_arguments
from superinfer_ingress.config import Config, load_config
from superinfer_operator import cleanup
from superinfer_operator.hosting.command import RunCommand, add_arguments, run_command

pytestmark = pytest.mark.apiserver


@pytest.mark.parametrize("settings", [(), EVERYTHING], ids=["defaults", "everything"])
def test_helm_finds_nothing_to_complain_about(chart: Chart, settings: tuple[str, ...]) -> None:
    flags = [flag for setting in settings for flag in ("--set", setting)]
    assert "[WARNING]" not in helm("lint", "--strict", str(CHART), *flags)


@pytest.mark.parametrize(
    ("setting", "appears", "disappears"),
    [
        pytest.param("crds.enabled=false", set(), {"CustomResourceDefinition"}, id="no CRDs"),
        pytest.param("networkPolicies.enabled=false", set(), {"NetworkPolicy"}, id="no network policies"),
        pytest.param("cleanup.enabled=false", set(), {"Job"}, id="no hook"),
        pytest.param("nodeAgent.enabled=true", {"DaemonSet"}, set(), id="node agent"),
        pytest.param("monitoring.enabled=true", {"ServiceMonitor", "PodMonitor"}, set(), id="monitors"),
        pytest.param(
            "ingress.autoscaling.enabled=true", {"HorizontalPodAutoscaler"}, set(), id="autoscaling"
        ),
        pytest.param("monitoring.rules.enabled=true", {"PrometheusRule"}, set(), id="alerts"),
        pytest.param(
            "ingress.podDisruptionBudget.enabled=false", set(), {"PodDisruptionBudget"}, id="no budget"
        ),
        pytest.param("ingress.cacheSalt.enabled=false", set(), {"Secret"}, id="a salt for each replica"),
        pytest.param("ingress.cacheSalt.existingSecret=mine", set(), {"Secret"}, id="a salt of one's own"),
    ],
)
def test_flags_bring_and_take_whole_kinds(
    chart: Chart, setting: str, appears: set[str], disappears: set[str]
) -> None:
    plain = {document["kind"] for document in chart.render().documents}
    with_flag = {document["kind"] for document in chart.render(setting).documents}
    assert with_flag - plain == appears
    assert plain - with_flag == disappears


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param("ingress.replica=3", id="a misspelt value"),
        pytest.param("ingress.auth=None", id="a word that is none"),
        pytest.param("ingress.replicas=-1", id="out of bounds"),
        pytest.param("tls.enabled=yes", id="text for a boolean"),
        pytest.param("nope.enabled=true", id="an unknown section"),
    ],
)
def test_values_that_mean_nothing_are_refused(chart: Chart, setting: str) -> None:
    with pytest.raises(Refused, match=r"values don't meet the specifications|additional properties|at '/"):
        chart.render(setting)


def test_the_schema_knows_every_value_and_is_closed() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    def unknown(node: Any, at: dict[str, Any], path: str) -> list[str]:
        if not isinstance(node, dict) or "properties" not in at:
            return []
        assert at["additionalProperties"] is False, path
        lost = [f"{path}.{name}" for name in node if name not in at["properties"]]
        inner = [
            found
            for name, child in node.items()
            if name in at["properties"]
            for found in unknown(child, at["properties"][name], f"{path}.{name}")
        ]
        return lost + inner

    assert unknown(values, schema, "") == []


def operator_command(chart: Chart, *settings: str) -> RunCommand:
    pod = chart.render(*settings).one("Deployment", "superinfer-operator")["spec"]["template"]
    command, *flags = container(pod, "operator")["args"]
    assert command == "run"
    parser = ArgumentParser()
    add_arguments(parser)
    return run_command(parser.parse_args(flags))


def test_the_operator_understands_its_arguments(chart: Chart) -> None:
    settings = operator_command(chart).settings
    assert settings.namespace == NAMESPACE
    assert settings.pods.sidecar_image == "superinfer/sidecar:dev"
    assert settings.pods.stub_image == "superinfer/executor-stub:dev"
    assert settings.pods.code_image == "superinfer/executor-wheel:dev"
    assert (settings.pods.tls, settings.manage_certificates) == (True, True)


def test_what_the_operator_is_told_follows_the_values(chart: Chart) -> None:
    settings = operator_command(
        chart,
        "image.registry=registry.example.com/si",
        "image.tag=1.2",
        "image.pullPolicy=Always",
        "image.pullSecrets={one,two}",
        "tls.enabled=false",
        "executors.injectCode=false",
        "executors.engineImage=vllm/vllm-openai:v9",
        "operator.nodeGraceSeconds=7",
    ).settings
    assert settings.pods.sidecar_image == "registry.example.com/si/sidecar:1.2"
    assert settings.pods.engine_image == "vllm/vllm-openai:v9"
    assert settings.pods.code_image == ""
    assert settings.pods.pull_policy == "Always"
    assert settings.pods.pull_secrets == ("one", "two")
    assert not settings.pods.tls
    assert settings.planner.node_grace_s == 7


@pytest.mark.parametrize("wanted", [False, True], ids=["off", "on"])
def test_the_operator_changes_mig_layouts_only_where_it_is_told(chart: Chart, wanted: bool) -> None:
    settings = operator_command(chart, f"migLabels.enabled={str(wanted).lower()}").settings
    assert settings.follow_mig_advice is wanted


def ingress_config(chart: Chart, tmp_path: Path, *settings: str) -> Config:
    path = tmp_path / "config.yaml"
    path.write_text(chart.render(*settings).one("ConfigMap", "superinfer-ingress")["data"]["config.yaml"])
    return load_config(path)


def test_the_ingress_understands_its_configuration(chart: Chart, tmp_path: Path) -> None:
    config = ingress_config(chart, tmp_path)
    assert config.kubernetes is not None
    assert config.kubernetes.namespace == NAMESPACE
    assert config.kubernetes.service == "superinfer-ingress"
    assert (config.host, config.port, config.auth) == ("0.0.0.0", 8000, "Required")
    assert (config.without_contract, config.infeasible_status) == ("Reject", 425)
    assert config.tls is not None
    assert not config.insecure


def test_what_the_ingress_is_told_follows_the_values(chart: Chart, tmp_path: Path) -> None:
    config = ingress_config(
        chart, tmp_path, "tls.enabled=false", "ingress.auth=Open", "ingress.config.limits.inFlight=9"
    )
    assert (config.tls, config.insecure, config.auth, config.limits.in_flight) == (None, True, "Open", 9)


def test_every_file_the_ingress_reads_is_mounted(chart: Chart, tmp_path: Path) -> None:
    config = ingress_config(chart, tmp_path)
    pod = chart.render().one("Deployment", "superinfer-ingress")["spec"]["template"]
    mounted = {mount["mountPath"] for mount in container(pod, "ingress")["volumeMounts"]}
    assert config.tls is not None
    assert config.cache_salt_key_file is not None
    for path in (config.tls.ca, config.tls.cert, config.tls.key, config.cache_salt_key_file):
        assert str(path.parent) in mounted


def test_another_configuration_rolls_the_ingress(chart: Chart) -> None:
    def annotations(*settings: str) -> dict[str, str]:
        deployment = chart.render(*settings).one("Deployment", "superinfer-ingress")
        return dict(deployment["spec"]["template"]["metadata"]["annotations"])

    assert annotations() != annotations("ingress.infeasibleStatus=429")
    assert annotations() == annotations("operator.logLevel=DEBUG")


def test_the_ingress_outlives_its_own_draining(chart: Chart, tmp_path: Path) -> None:
    settings = ("ingress.shutdownGraceSeconds=100", "ingress.shutdownDelaySeconds=7")
    config = ingress_config(chart, tmp_path, *settings)
    deployment = chart.render(*settings).one("Deployment", "superinfer-ingress")
    granted = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert granted > config.shutdown_grace + config.shutdown_delay


def test_autoscaling_and_a_fixed_number_do_not_fight(chart: Chart) -> None:
    assert chart.render().one("Deployment", "superinfer-ingress")["spec"]["replicas"] == 2
    scaled = chart.render("ingress.autoscaling.enabled=true").one("Deployment", "superinfer-ingress")
    assert "replicas" not in scaled["spec"]


def test_a_new_operator_stands_by_before_the_old_one_goes(chart: Chart) -> None:
    spec = chart.render().one("Deployment", "superinfer-operator")["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_two_operators_are_on_two_nodes_and_drained_one_at_a_time(chart: Chart) -> None:
    rendered = chart.render("operator.replicas=2")
    deployment = rendered.one("Deployment", "superinfer-operator")["spec"]
    assert deployment["replicas"] == 2
    assert deployment["template"]["spec"]["topologySpreadConstraints"][0]["topologyKey"] == (
        "kubernetes.io/hostname"
    )
    budget = rendered.one("PodDisruptionBudget", "superinfer-operator")["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"]["matchLabels"].items() <= deployment["template"]["metadata"]["labels"].items()
    assert "PodDisruptionBudget/superinfer-operator" not in chart.render().names


def test_the_hook_runs_before_uninstallation_and_is_understood(chart: Chart) -> None:
    job = chart.render("cleanup.timeoutSeconds=33").one("Job", "superinfer-cleanup")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"
    command, *flags = container(job["spec"]["template"], "cleanup")["args"]
    parser = ArgumentParser()
    cleanup.add_arguments(parser)
    assert command == "cleanup"
    assert parser.parse_args(flags).timeout_s == 33
    assert job["spec"]["activeDeadlineSeconds"] > 33


def test_the_node_agent_understands_its_arguments(chart: Chart, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_NAME", "node-1")
    pod = chart.render(*EVERYTHING).one("DaemonSet", "superinfer-node-agent")["spec"]["template"]
    agent = container(pod, "node-agent")
    options = parse_arguments(agent["args"])
    assert options.node_name == "node-1"
    assert str(options.pod_resources.parent) in {mount["mountPath"] for mount in agent["volumeMounts"]}


def test_a_mocked_library_is_mounted_where_the_agent_looks(
    chart: Chart, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODE_NAME", "node-1")
    rendered = chart.render("nodeAgent.enabled=true", "nodeAgent.mock=true", "nodeAgent.holdSeconds=5")
    pod = rendered.one("DaemonSet", "superinfer-node-agent")["spec"]["template"]
    agent = container(pod, "node-agent")
    options = parse_arguments(agent["args"])
    assert options.hold_s == 5
    mounts = {mount["mountPath"]: mount["name"] for mount in agent["volumeMounts"]}
    volume = mounts[next(path for path in mounts if options.library.is_relative_to(path) and path != "/")]
    (host,) = [v["hostPath"]["path"] for v in pod["spec"]["volumes"] if v["name"] == volume]
    assert host == "/var/lib/superinfer-gpumock"


@pytest.mark.parametrize("settings", [(), EVERYTHING], ids=["defaults", "everything"])
def test_selectors_select_what_they_should(chart: Chart, settings: tuple[str, ...]) -> None:
    rendered = chart.render(*settings)
    pods = {name: pod["metadata"]["labels"] for name, pod in rendered.pods()}
    for document in rendered.documents:
        spec = document.get("spec", {})
        selector = spec.get("podSelector") or spec.get("selector") or {}
        wanted = selector.get("matchLabels", selector)
        if document["kind"] not in (
            "Service",
            "NetworkPolicy",
            "PodDisruptionBudget",
            "Deployment",
            "DaemonSet",
        ):
            continue
        matching = [name for name, labels in pods.items() if wanted.items() <= labels.items()]
        assert len(matching) == 1, (document["kind"], document["metadata"]["name"], matching)


def test_the_crds_are_those_of_the_repository(chart: Chart) -> None:
    for path in sorted((REPOSITORY / "crds").glob("*.yaml")):
        document = yaml.safe_load(path.read_text())
        rendered = chart.render().one("CustomResourceDefinition", document["metadata"]["name"])
        assert rendered["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
        assert rendered == document
    assert "annotations" not in chart.render("crds.keep=false").all("CustomResourceDefinition")[0]["metadata"]


def test_what_is_exposed_needs_a_host_or_a_gateway(chart: Chart) -> None:
    for setting in ("ingress.kubernetesIngress.enabled=true", "ingress.httpRoute.enabled=true"):
        with pytest.raises(Refused, match="is needed"):
            chart.render(setting)
    rendered = chart.render(*EVERYTHING)
    (rule,) = rendered.one("Ingress", "superinfer")["spec"]["rules"]
    assert rule["host"] == "llm.example.com"
    # Only the API: neither metrics nor probes are anybody's outside.
    assert [path["path"] for path in rule["http"]["paths"]] == ["/v1"]
    (route,) = rendered.one("HTTPRoute", "superinfer")["spec"]["rules"]
    assert route["matches"] == [{"path": {"type": "PathPrefix", "value": "/v1"}}]


def expressions(chart: Chart) -> list[str]:
    """Everything dashboards and alerts ask Prometheus."""
    rendered = chart.render(*EVERYTHING)
    boards = [
        json.loads(text) for text in rendered.one("ConfigMap", "superinfer-dashboards")["data"].values()
    ]
    assert len(boards) == 2
    shown = [target["expr"] for board in boards for panel in board["panels"] for target in panel["targets"]]
    groups = rendered.one("PrometheusRule", "superinfer")["spec"]["groups"]
    return shown + [rule["expr"] for group in groups for rule in group["rules"]]


def test_dashboards_and_alerts_ask_only_for_metrics_that_exist(chart: Chart) -> None:
    sources = "\n".join(
        path.read_text()
        for member in ("ingress", "sidecar", "operator")
        for path in sorted((REPOSITORY / member / f"superinfer_{member}").rglob("*.py"))
    )
    for name in {name for text in expressions(chart) for name in re.findall(r"superinfer_\w+", text)}:
        base = re.sub(r"_(total|bucket|sum|count)$", "", name)
        short = base.removeprefix("superinfer_operator_")
        assert f'"{base}"' in sources or f'"{short}"' in sources or f"}}_{short}" in sources, name


def test_alerts_ask_only_for_refusals_that_exist(chart: Chart) -> None:
    known = {code.value for code in RefusalCode}
    asked = {
        word
        for text in expressions(chart)
        for words in re.findall(r'reason=~"([^"]+)"', text)
        for word in words.split("|")
    }
    assert asked
    assert asked <= known


@pytest.mark.parametrize("script", ["gen_chart_readme.py", "gen_install.py"])
def test_what_is_generated_from_the_chart_is_up_to_date(chart: Chart, script: str) -> None:
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "scripts" / script), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_node_that_is_short_of_cpu_ends_nothing_that_serves(chart: Chart) -> None:
    """A late answer is no death: a container that is ended takes its streams with it."""
    for name in ("superinfer-ingress", "superinfer-operator"):
        deployment = chart.render().one("Deployment", name)
        (only,) = deployment["spec"]["template"]["spec"]["containers"]
        probe = only["livenessProbe"]
        assert probe["timeoutSeconds"] >= 10, name
        assert probe["periodSeconds"] * probe["failureThreshold"] >= 60, name
