"""Writes manifests/install.yaml: the chart with its defaults, for clusters that are managed without Helm.

`--check` writes nothing and fails when the file is stale. Needs helm (on the PATH, or built by the cluster
set-up); where there is none it says so and leaves the file alone.
"""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from superinfer_kube.testing.binaries import HELM, find_binary

ROOT: Final = Path(__file__).parents[1]
NAMESPACE: Final = "superinfer-system"
TARGET: Final = ROOT / "manifests" / "install.yaml"
_HEAD: Final = f"""\
# Generated from charts/superinfer by `make gen`; do not edit. SuperInfer without Helm:
#   kubectl apply --server-side -f manifests/install.yaml
#   kubectl apply -f manifests/samples/first
# Before removing it: kubectl delete chipletpools --all --all-namespaces
apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
  labels:
    app.kubernetes.io/name: superinfer
    pod-security.kubernetes.io/enforce: restricted
"""
# A secret cannot be generated into a committed file; hooks and their rights are Helm's.
_SETTINGS: Final = "ingress.cacheSalt.enabled=false,cleanup.enabled=false,crds.keep=false"


def find_helm() -> str | None:
    """The one that is installed, else the one that was built."""
    built = find_binary(HELM)
    return shutil.which("helm") or (str(built) if built is not None else None)


def render(helm: str) -> str:
    """The whole file."""
    chart = str(ROOT / "charts" / "superinfer")
    flags = ["--namespace", NAMESPACE, "--no-hooks", "--kube-version", "1.34.0", "--set", _SETTINGS]
    done = subprocess.run(
        [helm, "template", "superinfer", chart, *flags],
        check=True,
        capture_output=True,
        text=True,
    )
    helms = r"^ *(app\.kubernetes\.io/managed-by: Helm|helm\.sh/chart: .*|# Source: .*)\n"
    return _HEAD + re.sub(helms, "", done.stdout, flags=re.MULTILINE)


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the file is stale")
    options = parser.parse_args()
    helm = find_helm()
    if helm is None:
        sys.stderr.write("manifests/install.yaml: left alone, there is no helm here\n")
        return 0
    wanted = render(helm)
    if not options.check:
        TARGET.write_text(wanted, encoding="utf-8")
    elif not TARGET.exists() or TARGET.read_text(encoding="utf-8") != wanted:
        sys.stderr.write(f"stale: {TARGET}; run 'make gen' and commit\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
