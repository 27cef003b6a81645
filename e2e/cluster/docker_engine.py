"""A Docker engine that answers: the machine's own where there is one, else one started here.

Containers without systemd or without CAP_SYS_RESOURCE (many CI sandboxes) can still run privileged containers
once that capability is dropped from what runc is asked for; the wrapper runtime does that, and only then.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from e2e.cluster.shell import ClusterError, progress, run, succeeds

_CAP_SYS_RESOURCE: Final = 24
_WRAPPER: Final = Path("/usr/local/bin/runc-without-sys-resource")
_WRAPPER_TEXT: Final = r"""#!/bin/bash
# runc, asked for everything but CAP_SYS_RESOURCE, which this machine cannot give.
bundle=. previous=
for argument in "$@"; do
  case "$previous" in
    --bundle|-b) bundle=$argument ;;
    --process|-p) sed -i 's/"CAP_SYS_RESOURCE",\?//g' "$argument" ;;
  esac
  previous=$argument
done
if [ -f "$bundle/config.json" ]; then sed -i 's/"CAP_SYS_RESOURCE",\?//g' "$bundle/config.json"; fi
exec runc "$@"
"""
_PACKAGES: Final = ("docker.io", "containerd", "runc", "iptables", "iproute2", "debootstrap")
_LOG: Final = Path("/var/log/superinfer-dockerd.log")


def ensure_docker() -> None:
    """Make sure a Docker engine answers; start one where this is root and none runs.

    Raises:
        ClusterError: None answers and none can be started.
    """
    if succeeds(["docker", "info"]):
        return
    if os.geteuid() != 0:
        raise ClusterError("no Docker engine answers; start it (or run this as root, which starts one)")
    if shutil.which("dockerd") is None:
        _install_packages(_PACKAGES)
    command = ["dockerd"]
    if not _may_use(_CAP_SYS_RESOURCE):
        _WRAPPER.write_text(_WRAPPER_TEXT)
        _WRAPPER.chmod(0o755)
        command += ["--add-runtime", f"nosr={_WRAPPER}", "--default-runtime", "nosr"]
    progress(f"starting dockerd (log {_LOG})")
    with _LOG.open("ab") as log:
        subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 60
    while not succeeds(["docker", "info"]):
        if time.monotonic() > deadline:
            raise ClusterError(f"dockerd did not answer within 60 s; see {_LOG}")
        time.sleep(0.5)


def ensure_inotify_limits() -> None:
    """Raise the limits that several kubelets on one kernel run into, where this machine allows it."""
    for name, least in (("max_user_instances", 1024), ("max_user_watches", 524288)):
        setting = Path("/proc/sys/fs/inotify") / name
        try:
            if int(setting.read_text()) < least:
                setting.write_text(str(least))
        except OSError:
            progress(
                f"fs.inotify.{name} is {setting.read_text().strip()} and cannot be raised here; going on"
            )


def ensure_debootstrap() -> None:
    """Make sure debootstrap is there, which images without a registry are built with.

    Raises:
        ClusterError: It is not installed and this is not root.
    """
    if shutil.which("debootstrap") is None:
        if os.geteuid() != 0:
            raise ClusterError(
                "debootstrap is not installed; install it, or make an image registry reachable"
            )
        _install_packages(("debootstrap",))


def has_image(tag: str) -> bool:
    """Tell whether Docker holds an image."""
    return succeeds(["docker", "image", "inspect", tag])


def pull(tag: str, *, timeout_s: float) -> bool:
    """Pull an image if its registry answers within the time; tell whether it is here now."""
    return has_image(tag) or succeeds(["docker", "pull", "--quiet", tag], timeout_s=timeout_s)


def registry_answers(host: str = "registry-1.docker.io") -> bool:
    """Tell quickly whether an image registry can be reached at all."""
    try:
        with urllib.request.urlopen(f"https://{host}/v2/", timeout=8):
            return True
    except urllib.error.HTTPError:
        return True  # it asks for credentials, so it is there
    except OSError:
        return False


def _install_packages(names: tuple[str, ...]) -> None:
    progress(f"installing {' '.join(names)} from Debian")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run(["apt-get", "update", "-qq"], env=environment)
    run(["apt-get", "install", "-y", "-qq", *names], env=environment)


def _may_use(capability: int) -> bool:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapBnd:"):
            return bool(int(line.split()[1], 16) >> capability & 1)
    return True
