"""The release under test: images in the nodes, MOCK hardware, and the chart installed with Helm.

`fresh_release` removes what an earlier run left, so a run never builds on another's objects.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from e2e.cluster import layout
from e2e.cluster.nodes import kind, kind_environment, worker_names
from e2e.cluster.shell import ClusterError, progress, run
from e2e.harness import samples
from e2e.harness.objects import Object, apply, find, get, kubectl, listed, until
from e2e.harness.traffic import Door
from images.contents import COMPONENTS

RELEASE: Final = "superinfer"
NAMESPACE: Final = "superinfer-system"
CHART: Final = layout.ROOT / "charts" / "superinfer"
GPUMOCK_NAMESPACE: Final = "superinfer-gpumock"
IMAGES: Final = tuple(f"superinfer/{component.name}:dev" for component in COMPONENTS)
NODE_PORT: Final = 30080
_NO_FINALIZERS: Final = '--patch={"metadata":{"finalizers":null}}'
VALUES: Final = layout.ROOT / "e2e" / "values.yaml"


def load_images() -> None:
    """Bring the images into the workers; what is there already is skipped."""
    progress("loading images into the workers")
    kind(
        "load",
        "docker-image",
        "--name",
        layout.CLUSTER,
        "--nodes",
        ",".join(worker_names()),
        *IMAGES,
        timeout_s=600,
    )


def install_mock_hardware() -> None:
    """Give every worker its MOCK devices and wait until the kubelets offer them."""
    manifest = (layout.ROOT / "manifests" / "gpumock" / "gpumock.yaml").read_text()
    kubectl("apply", "--filename=-", stdin=manifest)
    # Images are in the workers only; a control plane has no devices anyway.
    absent = {
        "matchExpressions": [{"key": "node-role.kubernetes.io/control-plane", "operator": "DoesNotExist"}]
    }
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [absent]}}
    }
    patch = json.dumps({"spec": {"template": {"spec": {"affinity": affinity}}}})
    kubectl("--namespace", GPUMOCK_NAMESPACE, "patch", "daemonset", "superinfer-gpumock", "--patch", patch)
    describe_mock_nodes(samples.mock_nodes())
    until(
        lambda: [offered(node, samples.MIG_RESOURCE) for node in worker_names()],
        lambda seen: seen == [samples.MIG_PER_NODE] * len(seen),
        within_s=60,
        what="every worker offers its MIG instances",
    )


def describe_mock_nodes(items: dict[str, str]) -> None:
    """Give the workers these descriptions, by ConfigMap item; returns once the mock runs with them."""
    metadata = {"name": "gpumock-nodes", "namespace": GPUMOCK_NAMESPACE}
    apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": items})
    restart("superinfer-gpumock", GPUMOCK_NAMESPACE)


def restart(daemonset: str, namespace: str) -> None:
    """Replace the pods of a DaemonSet and wait until the new ones are available."""
    rollout = ("--namespace", namespace, "rollout")
    kubectl(*rollout, "restart", "daemonset", daemonset)
    kubectl(*rollout, "status", "daemonset", daemonset, "--timeout=120s", timeout_s=150)


def offered(node: str, resource: str) -> int:
    """Return how many devices of a resource a node can give out."""
    return int(get("node", node)["status"]["allocatable"].get(resource, "0"))


def helm(*words: str, timeout_s: float = 300) -> str:
    """Run Helm against the cluster under test."""
    context = ["--kube-context", f"kind-{layout.CLUSTER}"]
    return run([layout.BINARIES / "helm", *words, *context], env=kind_environment(), timeout_s=timeout_s)


def install(*settings: str) -> None:
    """`helm install` with this suite's values; returns once everything is available."""
    helm("install", RELEASE, str(CHART), "--create-namespace", *_options(settings))


def upgrade(*settings: str) -> None:
    """`helm upgrade` with this suite's values."""
    helm("upgrade", RELEASE, str(CHART), *_options(settings))


def _options(settings: tuple[str, ...]) -> list[str]:
    # All on one worker, so that the loss of another is the loss of executors alone.
    pinned = [
        f"{part}.nodeSelector.kubernetes\\.io/hostname={door_node()}" for part in ("ingress", "operator")
    ]
    extra = [word for setting in (*pinned, *settings) for word in ("--set", setting)]
    return ["--namespace", NAMESPACE, "--values", str(VALUES), "--wait", "--timeout", "180s", *extra]


def uninstall() -> None:
    """`helm uninstall`, its hooks included."""
    helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--ignore-not-found", "--wait", "--timeout", "180s")


def is_installed() -> bool:
    """Tell whether Helm knows the release."""
    names = [
        entry["name"]
        for entry in json.loads(helm("list", "--namespace", NAMESPACE, "--all", "--output", "json"))
    ]
    return RELEASE in names


def fresh_release() -> None:
    """Install the chart where nothing of it is left."""
    clear()
    progress("helm install")
    install()


def clear() -> None:
    """Remove the release and every object of its kinds, whatever state they are in."""
    if is_installed():
        with suppress(ClusterError):
            uninstall()
    for kind_name in ("slocontracts", "chipletpools"):
        if find("crd", f"{kind_name}.superinfer.dev") is not None:
            _remove_all(f"{kind_name}.superinfer.dev")
    for namespace in listed("namespace", selector="superinfer.dev/e2e=true"):
        name = namespace["metadata"]["name"]
        _free(listed("pods", name))
        kubectl("delete", "namespace", name, "--timeout=120s", timeout_s=150)
    kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=120s", timeout_s=150)
    found = [item["metadata"]["name"] for item in listed("crd") if item["spec"]["group"] == "superinfer.dev"]
    if found:
        kubectl("delete", "crd", *found, "--timeout=60s", timeout_s=90)


def door() -> Door:
    """The ingress as clients reach it: its Service, by the port it has on a worker."""
    return Door(url=f"http://{_address(door_node())}:{NODE_PORT}", key=samples.KEY)


def door_node() -> str:
    """The worker whose port the door is."""
    return worker_names()[0]


def pods(component: str) -> list[Object]:
    """Return the release's pods of one component."""
    return listed("pods", NAMESPACE, selector=f"app.kubernetes.io/component={component}")


def ingress_counter(name: str) -> float:
    """Return a counter of the ingress, over all replicas and labels."""
    return sum(counter(pod, 8000, name) for pod in pods("ingress"))


def counter(pod: Object, port: int, name: str, *, label: str = "") -> float:
    """Return a counter of a pod, over all labels or those with `label` among them."""
    where = pod["metadata"]
    path = f"/api/v1/namespaces/{where['namespace']}/pods/{where['name']}:{port}/proxy/metrics"
    return sum(
        float(line.rpartition(" ")[2])
        for line in kubectl("get", "--raw", path).splitlines()
        if line.startswith((f"{name}{{", f"{name} ")) and label in line
    )


def request_log(since_s: float) -> list[Object]:
    """Return what the ingress logged of requests that ended in the last seconds, over all replicas."""
    selector = "--selector=app.kubernetes.io/component=ingress"
    text = kubectl("--namespace", NAMESPACE, "logs", selector, "--tail=-1", f"--since={since_s:.0f}s")
    lines = (line for line in text.splitlines() if line.startswith('{"time":'))
    return [json.loads(line) for line in lines]


def logs(component: str, lines: int = 60) -> str:
    """Return the end of what a component logged."""
    selector = f"--selector=app.kubernetes.io/component={component}"
    try:
        return kubectl("--namespace", NAMESPACE, "logs", selector, f"--tail={lines}", "--prefix")
    except ClusterError as error:
        return str(error)


def _address(node: str) -> str:
    addresses: list[dict[str, Any]] = get("node", node)["status"]["addresses"]
    return next(str(entry["address"]) for entry in addresses if entry["type"] == "InternalIP")


def _remove_all(kind_name: str) -> None:
    _free(listed(kind_name))
    with suppress(ClusterError):
        kubectl("delete", kind_name, "--all", "--all-namespaces", "--timeout=60s", timeout_s=90)


def _free(items: Iterable[Object]) -> None:
    """Take finalizers off what an interrupted run left behind with nobody to do it."""
    for item in items:
        if item["metadata"].get("finalizers"):
            name, namespace = item["metadata"]["name"], item["metadata"]["namespace"]
            with suppress(ClusterError):
                kubectl("--namespace", namespace, "patch", item["kind"], name, "--type=merge", _NO_FINALIZERS)
