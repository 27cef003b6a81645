"""`python3 -m e2e.cluster up|down|status|network|apiserver|python-base`: the test cluster of this machine.

Needs only the standard library, so that it runs before anything of the project is installed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

from e2e.cluster import binaries, layout, nodes
from e2e.cluster.debian_root import ensure_python_base
from e2e.cluster.docker_engine import ensure_docker, ensure_inotify_limits
from e2e.cluster.node_image import ensure_node_image
from e2e.cluster.shell import ClusterError, progress
from e2e.cluster.turn import turn


@turn()
def up() -> None:
    """Bring the cluster up, from whatever state."""
    ensure_docker()
    ensure_inotify_limits()
    binaries.ensure_binaries(binaries.CLIENT)
    if nodes.cluster_exists():
        if nodes.cluster_is_whole():
            progress(f"the cluster {layout.CLUSTER} is up")
            return
        progress(f"the cluster {layout.CLUSTER} is not whole; making it anew")
        nodes.delete_cluster()
    image, built_here = ensure_node_image()
    nodes.create_cluster(image, own_network=built_here)
    progress(f"the cluster {layout.CLUSTER} is up (KUBECONFIG={layout.KUBECONFIG})")


@turn()
def down() -> None:
    """Delete the cluster; images and binaries stay."""
    ensure_docker()
    if (layout.BINARIES / "kind").exists():
        nodes.delete_cluster()


def status() -> None:
    """Print the cluster's nodes and pods."""
    if not (layout.BINARIES / "kind").exists():
        sys.stdout.write("no cluster: nothing was built yet (make cluster-up)\n")
        return
    sys.stdout.write(nodes.describe() + "\n")


def apiserver() -> None:
    """Build what tests against a bare API server need."""
    binaries.ensure_binaries(binaries.API_SERVER)
    sys.stdout.write(f"{layout.BINARIES}\n")


def python_base() -> None:
    """Print the image that our own images start from, building it where no registry answers."""
    ensure_docker()
    base = ensure_python_base()
    sys.stdout.write(f"{base}\n")


_COMMANDS: Final[dict[str, Callable[[], None]]] = {
    "up": up,
    "down": down,
    "status": status,
    "network": nodes.connect_nodes,
    "apiserver": apiserver,
    "python-base": python_base,
}


def main() -> int:
    """Run one command; a failure is one message, not a traceback."""
    if len(sys.argv) != 2 or sys.argv[1] not in _COMMANDS:
        sys.stderr.write(f"usage: python3 -m e2e.cluster {'|'.join(_COMMANDS)}\n")
        return 2
    try:
        _COMMANDS[sys.argv[1]]()
    except ClusterError as error:
        sys.stderr.write(f"cluster: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
