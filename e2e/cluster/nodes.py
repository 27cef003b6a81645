"""The kind cluster itself: one control plane, three workers with the project's packages and models mounted.

A cluster that is up and mounts what it should is kept; anything else is deleted and made anew, so a second
`up` after whatever happened ends with the same cluster.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from e2e.cluster import layout
from e2e.cluster.shell import ClusterError, progress, run, succeeds

_CNI_FILE: Final = "/etc/cni/net.d/10-superinfer.conflist"


def kind_environment() -> dict[str, str]:
    """Return the environment that tools about this cluster run in: our binaries first, our own kubeconfig."""
    path = f"{layout.BINARIES}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**os.environ, "PATH": path, "KUBECONFIG": str(layout.KUBECONFIG)}


def kind(*words: str, stdin: str | None = None, timeout_s: float | None = None) -> str:
    """Run kind."""
    command: list[str | Path] = [layout.BINARIES / "kind", *words]
    return run(command, stdin=stdin, env=kind_environment(), timeout_s=timeout_s)


def kubectl(*words: str, stdin: str | None = None, timeout_s: float | None = 60) -> str:
    """Run kubectl against this cluster, whatever the user's own kubeconfig says."""
    command: list[str | Path] = [layout.BINARIES / "kubectl", f"--context=kind-{layout.CLUSTER}", *words]
    return run(command, stdin=stdin, env=kind_environment(), timeout_s=timeout_s)


def worker_names() -> list[str]:
    """Return the names of the worker nodes, which are also those of their containers."""
    suffixes = ["worker", *(f"worker{number}" for number in range(2, layout.WORKERS + 1))]
    return [f"{layout.CLUSTER}-{suffix}" for suffix in suffixes]


def node_names() -> list[str]:
    """Return the names of all nodes."""
    return [f"{layout.CLUSTER}-control-plane", *worker_names()]


def cluster_exists() -> bool:
    """Tell whether kind knows the cluster, in whatever state."""
    return layout.CLUSTER in kind("get", "clusters").split()


def cluster_is_whole() -> bool:
    """Tell whether the cluster answers, all its nodes are ready and mount what is there now."""
    layout.BUILD.mkdir(parents=True, exist_ok=True)
    try:
        kind("export", "kubeconfig", "--name", layout.CLUSTER, "--kubeconfig", str(layout.KUBECONFIG))
        kubectl("wait", "--for=condition=Ready", "nodes", "--all", "--timeout=20s")
        nodes = kubectl("get", "nodes", "--output=name").split()
    except ClusterError:
        return False
    return len(nodes) == len(node_names()) and all(_mounts_are_current(name) for name in worker_names())


def create_cluster(image: str, *, own_network: bool) -> None:
    """Create the cluster and wait until all its nodes are ready.

    Raises:
        ClusterError: kind failed, or the nodes did not become ready.
    """
    _check_mounts()
    layout.BUILD.mkdir(parents=True, exist_ok=True)
    progress(f"creating the cluster {layout.CLUSTER}: 1 control plane, {layout.WORKERS} workers")
    config = json.dumps(_configuration(own_network=own_network))  # JSON is YAML
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(config)
        file.flush()
        kind("create", "cluster", "--name", layout.CLUSTER, "--image", image, "--config", file.name,
             "--kubeconfig", str(layout.KUBECONFIG), timeout_s=600)  # fmt: skip
    if own_network:
        connect_nodes()
    progress("waiting for the nodes")
    kubectl("wait", "--for=condition=Ready", "nodes", "--all", "--timeout=180s", timeout_s=200)


def delete_cluster() -> None:
    """Delete the cluster if there is one."""
    if cluster_exists():
        kind("delete", "cluster", "--name", layout.CLUSTER, "--kubeconfig", str(layout.KUBECONFIG))


def connect_nodes() -> None:
    """Give every node a network plugin and the routes to the others' pods; again after a node was restarted.

    kind's own network plugin is not in its Go module; with one point-to-point link per pod and one route per
    other node, nothing more is needed on one machine.
    """
    nodes = _running_nodes()
    with ThreadPoolExecutor(len(nodes)) as pool:
        list(pool.map(lambda name: _connect_node(name, nodes), nodes))


def has_own_network(node: str) -> bool:
    """Tell whether a node's network is the one made here: `connect_nodes` has to follow its restart then."""
    return succeeds(["docker", "exec", node, "test", "-f", _CNI_FILE])


def _connect_node(name: str, nodes: dict[str, tuple[str, str]]) -> None:
    subnet, _ = nodes[name]
    link = {
        "type": "ptp",
        "ipMasq": False,
        "mtu": 1500,
        "ipam": {
            "type": "host-local",
            "dataDir": "/run/cni-ipam-state",
            "routes": [{"dst": "0.0.0.0/0"}],
            "ranges": [[{"subnet": subnet}]],
        },
    }
    plugins = [link, {"type": "portmap", "capabilities": {"portMappings": True}}]
    lines = [f"cat > {_CNI_FILE}.new && mv {_CNI_FILE}.new {_CNI_FILE}"]
    lines += [
        f"ip route replace {cidr} via {address}" for other, (cidr, address) in nodes.items() if other != name
    ]
    outside = f"POSTROUTING -s {subnet} ! -d {layout.POD_NETWORK} -j MASQUERADE"
    lines.append(f"iptables -t nat -C {outside} 2>/dev/null || iptables -t nat -A {outside}")
    text = json.dumps({"cniVersion": "0.4.0", "name": "superinfer", "plugins": plugins})
    run(["docker", "exec", "--interactive", name, "sh", "-euc", "\n".join(lines)], stdin=text)


def _running_nodes() -> dict[str, tuple[str, str]]:
    found = {}
    deadline = time.monotonic() + 60
    while True:
        for item in json.loads(kubectl("get", "nodes", "--output=json"))["items"]:
            addresses = {entry["type"]: entry["address"] for entry in item["status"].get("addresses", ())}
            if item["spec"].get("podCIDR") and "InternalIP" in addresses:
                found[item["metadata"]["name"]] = (item["spec"]["podCIDR"], addresses["InternalIP"])
        if len(found) == len(node_names()):
            break
        if time.monotonic() > deadline:
            raise ClusterError(f"only {sorted(found)} got a pod network; expected {node_names()}")
        time.sleep(0.5)
    running = set(run(["docker", "ps", "--format", "{{.Names}}"]).split())
    return {name: value for name, value in found.items() if name in running}


def _configuration(*, own_network: bool) -> dict[str, object]:
    # The kubelet refuses to start on cgroup v1 unless told that this is meant.
    kubelet = "kind: KubeletConfiguration\nfailCgroupV1: false\n"
    mounts = [
        {"hostPath": str(source), "containerPath": target, "readOnly": True}
        for source, target in _mounted_paths()
    ]
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "networking": {"disableDefaultCNI": own_network, "podSubnet": layout.POD_NETWORK},
        "kubeadmConfigPatches": [kubelet],
        "nodes": [{"role": "control-plane"}] + [{"role": "worker", "extraMounts": mounts}] * layout.WORKERS,
    }


def _mounted_paths() -> list[tuple[Path, str]]:
    return [(layout.SITE_PACKAGES, layout.NODE_SITE_PACKAGES), (layout.MODELS, layout.NODE_MODELS)]


def _check_mounts() -> None:
    for source, _ in _mounted_paths():
        if not source.is_dir():
            raise ClusterError(
                f"{source} is missing; run `make setup` first, with Python {layout.PYTHON} as in the images"
                " (PYTHON=/path/to/python3)"
            )


def _mounts_are_current(node: str) -> bool:
    """Tell whether a node sees this machine's directories (a new one under the old path is another)."""
    for source, target in _mounted_paths():
        if not source.is_dir():
            return False
        try:
            seen = run(["docker", "exec", node, "stat", "--format", "%d:%i", target], timeout_s=20).strip()
        except ClusterError:
            return False
        here = source.stat()
        if seen != f"{here.st_dev}:{here.st_ino}":
            return False
    return True


def describe() -> str:
    """Return the nodes and pods of the cluster as kubectl prints them."""
    if not cluster_exists():
        return f"no cluster {layout.CLUSTER}"
    if not succeeds([layout.BINARIES / "kubectl", "--kubeconfig", layout.KUBECONFIG, "version"]):
        return f"cluster {layout.CLUSTER} exists but does not answer"
    return kubectl("get", "nodes", "--output=wide") + "\n" + kubectl("get", "pods", "--all-namespaces")
