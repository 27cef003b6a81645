"""`python3 -m images`: build every image with Docker, each only when something in it changed.

Prints the tags, one a line. Standard library only.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from images.contents import COMPONENTS
from images.sites import CONTEXTS, ROOT, SitesBuilder

_LABEL: Final = "superinfer.dev/contents"


def main() -> int:
    """Build the images."""
    parser = argparse.ArgumentParser(prog="python3 -m images", description=__doc__)
    parser.add_argument("--base-image", required=True, help="image with Python 3.11 that ours start from")
    parser.add_argument("--registry", default="superinfer", help="prefix of the tags")
    parser.add_argument("--tag", default="dev")
    parser.add_argument("--uv", type=Path, required=True)
    parser.add_argument("--python", type=Path, default=ROOT / ".venv" / "bin" / "python")
    options = parser.parse_args()
    started = time.monotonic()
    _progress(started, "packages")
    SitesBuilder(options.uv, options.python).build()
    common = f"{options.registry}/common:{options.tag}"
    base_id = _image_id(options.base_image)
    _build("common", common, {"BASE_IMAGE": options.base_image}, base_id, started)
    for component in COMPONENTS:
        tag = f"{options.registry}/{component.name}:{options.tag}"
        arguments = {"COMMON_IMAGE": common}
        parent = _image_id(common)
        if component.package is None:
            arguments, parent = {"BASE_IMAGE": options.base_image}, base_id
        _build(component.name, tag, arguments, parent, started)
        sys.stdout.write(f"{tag}\n")
    return 0


def _build(name: str, tag: str, arguments: dict[str, str], parent: str, started: float) -> None:
    context = CONTEXTS / name
    dockerfile = ROOT / "images" / name / "Dockerfile"
    contents = _digest(context, dockerfile, parent)
    if _label(tag) == contents:
        return
    _progress(started, f"building {tag}")
    (context / ".dockerignore").write_text("*.sha256\n*.txt\nthird-party-*\n")
    words = [word for key, value in arguments.items() for word in ("--build-arg", f"{key}={value}")]
    command = ["docker", "build", "--quiet", "--tag", tag, "--label", f"{_LABEL}={contents}", *words]
    result = subprocess.run(
        [*command, "--file", str(dockerfile), str(context)], capture_output=True, text=True, check=False
    )
    if result.returncode:
        raise SystemExit(f"images: building {tag} failed:\n{(result.stdout + result.stderr)[-3000:]}")


def _digest(context: Path, dockerfile: Path, parent: str) -> str:
    """Return a digest of all that goes into an image; times of files do not count."""
    whole = hashlib.sha256(parent.encode() + dockerfile.read_bytes())
    for folder, names, files in os.walk(context):
        names[:] = sorted(name for name in names if not name.startswith("third-party-"))
        for file in sorted(files):
            path = Path(folder, file)
            # Our own marks, which .dockerignore keeps out of the image.
            if folder == str(context) and (path.suffix in (".sha256", ".txt") or file == ".dockerignore"):
                continue
            whole.update(str(path.relative_to(context)).encode())
            whole.update(path.read_bytes())
    return whole.hexdigest()


def _image_id(tag: str) -> str:
    return _inspect(tag, "{{.Id}}")


def _label(tag: str) -> str:
    return _inspect(tag, f'{{{{index .Config.Labels "{_LABEL}"}}}}')


def _inspect(tag: str, template: str) -> str:
    """Return what Docker says of an image; nothing where there is none."""
    command = ["docker", "image", "inspect", "--format", template, tag]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _progress(started: float, text: str) -> None:
    sys.stderr.write(f"images: {time.monotonic() - started:4.0f}s  {text}\n")


if __name__ == "__main__":
    sys.exit(main())
