"""Where the test cluster keeps its things, and which versions it is made of.

Everything slow to make (binaries, images) lives outside the checkout, so that a second checkout on the same
machine starts warm. Nothing here touches the machine.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from images.contents import PYTHON as PYTHON

ROOT: Final = Path(__file__).resolve().parents[2]
CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "superinfer"
BINARIES: Final = CACHE / "kind" / "bin"
LOCK: Final = CACHE / "kind" / "in-use.lock"
MODELS: Final = CACHE / "models"
# Mounted into an image of ours, so of the Python that those run.
SITE_PACKAGES: Final = ROOT / ".venv" / "lib" / f"python{PYTHON}" / "site-packages"
BUILD: Final = ROOT / "build" / "e2e"
KUBECONFIG: Final = BUILD / "kubeconfig"

KUBERNETES: Final = "v1.35.4"
KUBERNETES_STAGING: Final = "v0.35.4"
ETCD: Final = "v3.6.6"
ETCD_IMAGE_TAG: Final = "3.6.6-0"
COREDNS: Final = "v1.13.1"
CRICTL: Final = "v1.34.0"
KIND: Final = "v0.33.0"
HELM: Final = "v3.22.0"

CLUSTER: Final = os.environ.get("SUPERINFER_CLUSTER", "superinfer")
WORKERS: Final = 3
POD_NETWORK: Final = "10.244.0.0/16"

# Raised whenever the recipe of a built image changes, so that machines with an older one build it anew.
NODE_IMAGE_RECIPE: Final = 1
PYTHON_IMAGE_RECIPE: Final = 1
BUILT_NODE_IMAGE: Final = f"superinfer/kind-node:{KUBERNETES}-{NODE_IMAGE_RECIPE}"
NODE_BASE_IMAGE: Final = f"superinfer/kind-base:trixie-{NODE_IMAGE_RECIPE}"
BUILT_PYTHON_IMAGE: Final = f"superinfer/python:{PYTHON}-bookworm-{PYTHON_IMAGE_RECIPE}"
PULLED_PYTHON_IMAGE: Final = f"python:{PYTHON}-slim-bookworm"

# Paths inside the worker nodes, read-only: what a pod with the real engine mounts as hostPath.
NODE_SITE_PACKAGES: Final = "/opt/superinfer-e2e/site-packages"
NODE_MODELS: Final = "/opt/superinfer-e2e/models"
