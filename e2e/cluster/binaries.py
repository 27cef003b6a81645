"""Kubernetes, etcd, CoreDNS, kind and helm as static binaries built from their Go modules.

The Go proxy is reachable where image registries and release downloads are not. A binary that exists is built
again only when it would be made of something else (version, linker flags), and each appears under its name
only once it is whole, so an interrupted build is taken up again.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from e2e.cluster import layout
from e2e.cluster.shell import ClusterError, progress, run, succeeds


class _Module(NamedTuple):
    path: str
    version: str
    package: str


_KUBERNETES: Final = (
    "kube-apiserver",
    "kubectl",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubelet",
    "kubeadm",
)
_ETCD_MODULE: Final = "go.etcd.io/etcd/server/v3"
_MODULES: Final = {
    "etcd": _Module(_ETCD_MODULE, layout.ETCD, _ETCD_MODULE),
    "crictl": _Module("sigs.k8s.io/cri-tools", layout.CRICTL, "sigs.k8s.io/cri-tools/cmd/crictl"),
    "kind": _Module("sigs.k8s.io/kind", layout.KIND, "sigs.k8s.io/kind"),
    "helm": _Module("helm.sh/helm/v3", layout.HELM, "helm.sh/helm/v3/cmd/helm"),
}
# Our own main packages, beside this file; the second is built with the standard library alone.
_OWN: Final = {
    "coredns": _Module("github.com/coredns/coredns", layout.COREDNS, "."),
    "pause": _Module("", "", "."),
}
# Where node_image.py puts them: a cache that was lost is filled again without a compiler.
_IN_IMAGES: Final = {
    "kubectl": (layout.BUILT_NODE_IMAGE, "/usr/bin/kubectl"),
    "kube-apiserver": (
        f"registry.k8s.io/kube-apiserver:{layout.KUBERNETES}",
        "/usr/local/bin/kube-apiserver",
    ),
    "etcd": (f"registry.k8s.io/etcd:{layout.ETCD_IMAGE_TAG}", "/usr/local/bin/etcd"),
}
# Helm knows the Kubernetes it is for from its linker; without that it lints and renders for 1.20.
_HELM_PACKAGES: Final = ("helm.sh/helm/v3/pkg/chartutil", "helm.sh/helm/v3/pkg/lint/rules")
_STRIPPED: Final = "-s -w"
API_SERVER: Final = ("kube-apiserver", "etcd", "kubectl")
CLIENT: Final = ("kind", "kubectl", "helm")
NODE: Final = (*_KUBERNETES, "etcd", "crictl", "coredns", "pause")


def ensure_binaries(names: tuple[str, ...]) -> None:
    """Build what is missing of the named binaries into the cache.

    Raises:
        ClusterError: Go is missing, or a build failed.
    """
    missing = [name for name in names if not is_current(name) and not _taken_from_image(name)]
    if not missing:
        return
    if shutil.which("go") is None:
        raise ClusterError(f"Go 1.25 or newer is needed to build {' '.join(missing)}; install it from go.dev")
    layout.BINARIES.mkdir(parents=True, exist_ok=True)
    kubernetes = [name for name in missing if name in _KUBERNETES]
    if kubernetes:
        _build_kubernetes(kubernetes)
    for name in missing:
        if name not in kubernetes:
            _build_module(name)


def is_current(name: str) -> bool:
    """Tell whether the cache has the binary, made of what it would be made of now."""
    if not (layout.BINARIES / name).exists():
        return False
    stamp = _stamp(name)
    # Caches of before there were stamps are of these versions, and only helm has been made of more since.
    return stamp.read_text() == made_of(name) if stamp.exists() else name != "helm"


def made_of(name: str) -> str:
    """What the cached binary is compared by: version, and what its recipe adds to it."""
    if name in _KUBERNETES:
        return f"k8s.io/kubernetes {layout.KUBERNETES} {_version_flags()}"
    module = _MODULES.get(name) or _OWN[name]
    added = " ".join(_HELM_PACKAGES) if name == "helm" else ""
    if name in _OWN:
        added = hashlib.sha256((_own_source(name) / "main.go").read_bytes()).hexdigest()
    return f"{module.path} {module.version} {_STRIPPED} {added}".strip()


def helm_linker_flags(go_mod: str) -> str:
    """The linker flags helm's own releases have, by the client library its go.mod asks for.

    Raises:
        ClusterError: The text names no release of the client library.
    """
    found = re.search(r"^\s*k8s\.io/client-go v0\.(\d+)\.\d+$", go_mod, re.MULTILINE)
    if found is None:
        raise ClusterError("helm's go.mod names no k8s.io/client-go v0.MINOR.PATCH; look at its Makefile")
    return _linked(_HELM_PACKAGES, {"k8sVersionMajor": "1", "k8sVersionMinor": found.group(1)})


def _own_source(name: str) -> Path:
    return Path(__file__).parent / name


def _stamp(name: str) -> Path:
    return layout.BINARIES / f".{name}.made-of"


def _keep(unfinished: Path, name: str) -> None:
    # Whoever is interrupted between the two has a binary whose stamp matches nothing, and builds it again.
    stamp = _stamp(name)
    stamp.write_text("unfinished")
    unfinished.replace(layout.BINARIES / name)
    stamp.write_text(made_of(name))


def _taken_from_image(name: str) -> bool:
    """Copy a binary out of the image it was built into, if Docker still has that; tell whether it did."""
    if name not in _IN_IMAGES or shutil.which("docker") is None:
        return False
    image, path = _IN_IMAGES[name]
    if not succeeds(["docker", "image", "inspect", image]):
        return False
    layout.BINARIES.mkdir(parents=True, exist_ok=True)
    unfinished = layout.BINARIES / f".{name}.{os.getpid()}"
    container = run(["docker", "create", image]).strip()
    try:
        run(["docker", "cp", f"{container}:{path}", unfinished])
    finally:
        run(["docker", "rm", container])
    _keep(unfinished, name)
    progress(f"took {name} from {image}")
    return True


def module_directory(module: str, version: str) -> Path:
    """Return where Go keeps a module's source, downloading it if need be."""
    run(["go", "mod", "download", f"{module}@{version}"], env=_environment(), cwd=Path("/"))
    return Path(run(["go", "env", "GOMODCACHE"], env=_environment()).strip()) / f"{module}@{version}"


def _build_kubernetes(names: list[str]) -> None:
    progress(f"building {' '.join(names)} {layout.KUBERNETES} from Go modules (about 10 minutes, once)")
    source = module_directory("k8s.io/kubernetes", layout.KUBERNETES)
    staging = sorted(
        set(re.findall(r"(k8s\.io/[a-z0-9./-]+) v0\.0\.0$", (source / "go.mod").read_text(), re.MULTILINE))
    )
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        replaced = "".join(f"replace {name} => {name} {layout.KUBERNETES_STAGING}\n" for name in staging)
        (work / "go.mod").write_text(
            "module superinfer.dev/e2e/kubernetes\n\ngo 1.25\n\n"
            f"require k8s.io/kubernetes {layout.KUBERNETES}\n\n{replaced}"
        )
        imports = "".join(f'\t_ "k8s.io/kubernetes/cmd/{name}"\n' for name in names)
        (work / "tools.go").write_text(f"//go:build tools\n\npackage tools\n\nimport (\n{imports})\n")
        run(["go", "mod", "tidy", "-e"], cwd=work, env=_environment())
        for name in names:
            package = f"k8s.io/kubernetes/cmd/{name}"
            _go_build(name, package, work, linker=f"{_STRIPPED} {_version_flags()}")
            progress(f"built {name}")


def _build_module(name: str) -> None:
    module = _MODULES.get(name) or _OWN[name]
    progress(f"building {name} {module.version or '(own)'} from its Go module")
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        if name in _OWN:
            shutil.copytree(_own_source(name), work, dirs_exist_ok=True)
        run(["go", "mod", "init", f"superinfer.dev/e2e/{name}"], cwd=work, env=_environment())
        if module.path:
            run(["go", "get", f"{module.path}@{module.version}"], cwd=work, env=_environment())
        linker = _STRIPPED
        if name == "helm":
            source = module_directory(module.path, module.version)
            linker += " " + helm_linker_flags((source / "go.mod").read_text())
        _go_build(name, module.package, work, linker=linker)


def _go_build(name: str, package: str, work: Path, *, linker: str) -> None:
    unfinished = layout.BINARIES / f".{name}.{os.getpid()}"
    run(
        ["go", "build", "-trimpath", "-ldflags", linker, "-o", unfinished, package],
        cwd=work,
        env=_environment(),
    )
    _keep(unfinished, name)


def _version_flags() -> str:
    major, minor = layout.KUBERNETES.removeprefix("v").split(".")[:2]
    values = {
        "gitVersion": layout.KUBERNETES,
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "gitCommit": "unknown",
        "buildDate": "2026-01-01T00:00:00Z",
    }
    return _linked(("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"), values)


def _linked(packages: tuple[str, ...], values: dict[str, str]) -> str:
    return " ".join(f"-X {package}.{key}={value}" for package in packages for key, value in values.items())


def _environment() -> dict[str, str]:
    return {**os.environ, "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
