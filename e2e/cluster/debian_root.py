"""Image bases made from Debian packages, for machines that reach Debian's mirror but no image registry.

Needs root (debootstrap and chroot do).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from e2e.cluster import layout
from e2e.cluster.docker_engine import ensure_debootstrap, has_image, pull, registry_answers
from e2e.cluster.shell import pipe, progress, run

_PYTHON_PACKAGES: Final = ("python3", "ca-certificates", "libgomp1", "libnuma1")


def ensure_python_base() -> str:
    """Return the image our own images start from: Docker Hub's Python, else one made from Debian packages."""
    if has_image(layout.BUILT_PYTHON_IMAGE):
        return layout.BUILT_PYTHON_IMAGE
    if registry_answers() and pull(layout.PULLED_PYTHON_IMAGE, timeout_s=300):
        return layout.PULLED_PYTHON_IMAGE
    progress("no image registry: building the Python base from Debian packages (2 minutes, once)")
    import_debian(layout.BUILT_PYTHON_IMAGE, "bookworm", _PYTHON_PACKAGES, _finish_python)
    return layout.BUILT_PYTHON_IMAGE


def import_debian(tag: str, suite: str, packages: tuple[str, ...], finish: Callable[[Path], None]) -> None:
    """Make a Debian root with the packages, let `finish` change it, and import it as an image."""
    ensure_debootstrap()
    root = Path(tempfile.mkdtemp(prefix="superinfer-root-"))
    try:
        run(["debootstrap", "--variant=minbase", f"--include={','.join(packages)}", suite, root])
        finish(root)
        run(["chroot", root, "apt-get", "clean"])
        for name in (
            "var/lib/apt/lists",
            "usr/share/doc",
            "usr/share/man",
            "usr/share/locale",
            "var/cache/apt",
        ):
            shutil.rmtree(root / name, ignore_errors=True)
        (root / "var/lib/apt/lists").mkdir(parents=True)
        pipe(["tar", "-C", root, "-c", "."], ["docker", "import", "-", tag])
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _finish_python(root: Path) -> None:
    # As in Docker Hub's image, `python` is there too.
    (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
