"""The image of the cluster's nodes: kind's own where it can be pulled, else built here.

Built means: a Debian root, the base files from kind's Go module, and the binaries of `binaries.py`, with the
images kubeadm wants already inside. What differs from kind's own recipe is what containers without
CAP_SYS_RESOURCE need (no OOM score and limit settings).
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

from e2e.cluster import binaries, layout
from e2e.cluster.debian_root import import_debian
from e2e.cluster.docker_engine import has_image, pull, registry_answers
from e2e.cluster.shell import ClusterError, pipe, progress, run, succeeds

_PACKAGES: Final = (
    *(
        "systemd",
        "systemd-sysv",
        "dbus",
        "util-linux",
        "mount",
        "procps",
        "bash",
        "hostname",
        "kmod",
        "e2fsprogs",
    ),
    *("containerd", "runc", "containernetworking-plugins", "libseccomp2"),
    *("iptables", "nftables", "iproute2", "socat", "conntrack", "ethtool"),
    *("ca-certificates", "jq", "curl", "pigz"),
)
_REGISTRY: Final = "registry.k8s.io"
_CONTROL_PLANE: Final = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
_BUILDER: Final = "superinfer-node-image-build"
_SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# What kind's own Dockerfile does to a Debian image, plus the CNI plugins it takes from elsewhere.
_FINISH: Final = r"""
find /lib/systemd/system/sysinit.target.wants/ -name systemd-tmpfiles-setup.service -delete
rm -f /lib/systemd/system/multi-user.target.wants/* /etc/systemd/system/*.wants/*
rm -f /lib/systemd/system/local-fs.target.wants/* /lib/systemd/system/basic.target.wants/*
rm -f /lib/systemd/system/sockets.target.wants/*udev* /lib/systemd/system/sockets.target.wants/*initctl*
echo ReadKMsg=no >> /etc/systemd/journald.conf
systemctl enable kubelet.service containerd.service undo-mount-hacks.service
systemctl mask systemd-binfmt.service
mkdir -p /etc/kubernetes/manifests /opt/cni/bin
cp /usr/lib/cni/{host-local,loopback,ptp,portmap,bridge} /opt/cni/bin/
for name in containerd ctr containerd-shim-runc-v2; do ln -sf /usr/bin/$name /usr/local/bin/$name; done
ctr oci spec \
  | jq '.hooks.createContainer += [{"path": "/kind/bin/mount-product-files.sh"}]' \
  | jq 'del(.process.rlimits)' > /etc/containerd/cri-base.json
"""


def ensure_node_image() -> tuple[str, bool]:
    """Return the node image and whether it was built here (and so lacks a network plugin of its own).

    Raises:
        ClusterError: It can neither be pulled nor built.
    """
    if has_image(layout.BUILT_NODE_IMAGE):
        return layout.BUILT_NODE_IMAGE, True
    published = _published_image()
    if has_image(published) or (registry_answers() and pull(published, timeout_s=600)):
        return published, False
    progress("no image registry: building the node image")
    binaries.ensure_binaries(binaries.NODE)
    if not has_image(layout.NODE_BASE_IMAGE):
        progress("building the nodes' Debian root (3 minutes, once)")
        import_debian(layout.NODE_BASE_IMAGE, "trixie", _PACKAGES, _finish_root)
    _build()
    return layout.BUILT_NODE_IMAGE, True


def _published_image() -> str:
    source = binaries.module_directory("sigs.k8s.io/kind", layout.KIND) / "pkg/apis/config/defaults/image.go"
    found = re.search(r'const Image = "([^"]+)"', source.read_text())
    if found is None:
        raise ClusterError(
            f"kind {layout.KIND} does not name its node image in {source}; update node_image.py"
        )
    return found[1]


def _finish_root(root: Path) -> None:
    files = binaries.module_directory("sigs.k8s.io/kind", layout.KIND) / "images/base/files"
    for source, target in (("usr/local/bin", "usr/local/bin"), ("kind", "kind"), ("etc", "etc")):
        # Module files are read-only and not executable; these must be neither.
        run(["cp", "-r", "--no-preserve=mode", f"{files / source}/.", root / target])
    (root / "kind/bin").mkdir(exist_ok=True)
    for name in (*(root / "kind/bin").iterdir(), *(root / "usr/local/bin").iterdir()):
        name.chmod(0o755)
    run(["chroot", root, "bash", "-euc", _FINISH])
    _replace(
        root / "etc/containerd/config.toml", "restrict_oom_score_adj = false", "restrict_oom_score_adj = true"
    )
    unit = root / "etc/systemd/system/containerd.service"
    unit.write_text(
        re.sub(r"(?m)^(OOMScoreAdjust|LimitNPROC|LimitCORE|LimitNOFILE).*\n", "", unit.read_text())
    )


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    if old not in text:
        raise ClusterError(f"{path} of kind {layout.KIND} lacks {old!r}; update node_image.py")
    path.write_text(text.replace(old, new))


def _build() -> None:
    progress("building the images kubeadm wants")
    images = [_binary_image(f"{name}:{layout.KUBERNETES}", name, "scratch") for name in _CONTROL_PLANE]
    images.append(_binary_image(f"kube-proxy:{layout.KUBERNETES}", "kube-proxy", layout.NODE_BASE_IMAGE))
    images.append(_binary_image(f"etcd:{layout.ETCD_IMAGE_TAG}", "etcd", "scratch"))
    images.append(_binary_image(f"coredns/coredns:{layout.COREDNS}", "coredns", "scratch"))
    images += [_binary_image(f"pause:{tag}", "pause", "scratch", directory="/") for tag in ("3.10", "3.10.1")]
    progress("putting them into the node image")
    _remove_builder()
    run(["docker", "run", "--detach", "--name", _BUILDER, "--privileged", "--entrypoint", "sleep",
         layout.NODE_BASE_IMAGE, "infinity"])  # fmt: skip
    try:
        for name, target in (
            ("kubeadm", "bin"),
            ("kubelet", "bin"),
            ("kubectl", "bin"),
            ("crictl", "local/bin"),
        ):
            run(["docker", "cp", layout.BINARIES / name, f"{_BUILDER}:/usr/{target}/{name}"])
        run(
            [
                "docker",
                "exec",
                _BUILDER,
                "sh",
                "-c",
                f"echo {layout.KUBERNETES} > /kind/version; mkdir -p /kind/manifests",
            ]
        )
        run(["docker", "exec", "--detach", _BUILDER, "containerd"])
        _wait_for_containerd()
        # Unpacked images cannot be kept in an overlay inside an overlay: the nodes unpack them.
        pipe(
            ["docker", "save", *images],
            ["docker", "exec", "--interactive", _BUILDER, "ctr", "--namespace=k8s.io", "images", "import",
             "--all-platforms", "--no-unpack", "--digests", "-"],
        )  # fmt: skip
        run(
            [
                "docker",
                "exec",
                _BUILDER,
                "sh",
                "-c",
                "kill $(pidof containerd); while pidof containerd; do sleep 0.1; done",
            ]
        )
        run(["docker", "commit",
             "--change", 'ENTRYPOINT [ "/usr/local/bin/entrypoint", "/sbin/init" ]',
             "--change", "ENV container=docker",
             "--change", f"ENV PATH={_SYSTEM_PATH}",
             _BUILDER, "superinfer/kind-node:unsigned"])  # fmt: skip
    finally:
        _remove_builder()
    # `docker commit` cannot set the signal that makes systemd shut down.
    _docker_build(layout.BUILT_NODE_IMAGE, "FROM superinfer/kind-node:unsigned\nSTOPSIGNAL SIGRTMIN+3\n", [])


def _binary_image(name: str, binary: str, base: str, *, directory: str = "/usr/local/bin") -> str:
    tag = f"{_REGISTRY}/{name}"
    path = f"{directory.rstrip('/')}/{binary}"
    text = f'FROM {base}\nENV PATH={_SYSTEM_PATH}\nCOPY {binary} {path}\nENTRYPOINT ["{path}"]\n'
    _docker_build(tag, text, [layout.BINARIES / binary])
    return tag


def _docker_build(tag: str, dockerfile: str, files: list[Path]) -> None:
    with tempfile.TemporaryDirectory(dir=layout.BINARIES.parent) as scratch:
        context = Path(scratch)
        (context / "Dockerfile").write_text(dockerfile)
        for file in files:
            try:
                os.link(file, context / file.name)
            except OSError:
                shutil.copy2(file, context / file.name)
        run(["docker", "build", "--quiet", "--tag", tag, context])


def _wait_for_containerd() -> None:
    deadline = time.monotonic() + 60
    while not succeeds(["docker", "exec", _BUILDER, "ctr", "--namespace=k8s.io", "images", "list"]):
        if time.monotonic() > deadline:
            raise ClusterError("containerd did not answer in the container that builds the node image")
        time.sleep(0.5)


def _remove_builder() -> None:
    succeeds(["docker", "rm", "--force", _BUILDER])
