"""Where the Kubernetes binaries are that tests and the local cluster use.

They are built once per machine (`make apiserver`) into the cache; $SUPERINFER_KIND_BIN names another folder.
"""

import os
from pathlib import Path
from typing import Final

API_SERVER: Final = "kube-apiserver"
ETCD: Final = "etcd"
KUBECTL: Final = "kubectl"
HELM: Final = "helm"


def binaries_folder() -> Path:
    """The folder, whether it is there or not."""
    if named := os.environ.get("SUPERINFER_KIND_BIN"):
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME")
    base = Path(cache) if cache else Path.home() / ".cache"
    return base / "superinfer" / "kind" / "bin"


def find_binary(name: str) -> Path | None:
    """One of the binaries, or None where it is not built."""
    path = binaries_folder() / name
    return path if os.access(path, os.X_OK) else None


def missing(*names: str) -> list[str]:
    """Those that are not built."""
    return [name for name in names if find_binary(name) is None]
