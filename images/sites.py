"""Directories of installed packages, one per image, made on this machine from the lock.

Building them here keeps the network, compilers and uv out of `docker build`. Third-party directories are kept
until the lock or the contents change; our own members are installed anew each time. Compiled modules are
checked against nothing at run time, so an image starts as fast with a read-only root as without.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from images.contents import COMPONENTS, FROM_VLLM, INJECTED_PYTHONS, PYTHON, Component

_EXPORT: Final = (
    "export",
    "--frozen",
    "--no-dev",
    "--no-header",
    "--no-annotate",
    "--no-hashes",
    "--package",
)
_INSTALL: Final = ("pip", "install", "--quiet", "--no-deps")
_PLATFORM: Final = ("--only-binary", ":all:", "--python-platform", "x86_64-manylinux_2_28")
_COMPILE: Final = ("-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash")
ROOT: Final = Path(__file__).resolve().parents[1]
CONTEXTS: Final = ROOT / "build" / "images"


class SitesBuilder:
    """Makes the build contexts of all images; not safe to run twice at once in one checkout."""

    def __init__(self, uv: Path, python: Path) -> None:
        """Keep the tools.

        Args:
            uv: The project's uv.
            python: An interpreter of the version the images run.
        """
        self._uv = uv
        self._python = python

    def build(self) -> None:
        """Make every context below build/images."""
        members: dict[str, list[str]] = {}
        third_party: dict[str, list[str]] = {}
        for component in COMPONENTS:
            if component.package is not None:
                members[component.name], third_party[component.name] = self._requirements(component)
        shared = _shared(third_party)
        self._install_third_party(CONTEXTS / "common" / "third-party", shared)
        for component in COMPONENTS:
            context = CONTEXTS / component.name
            context.mkdir(parents=True, exist_ok=True)
            _copy_files(context, component)
            if component.injected:
                self._install_injected(context / "site", members[component.name], third_party[component.name])
            elif component.package is not None:
                own = [line for line in third_party[component.name] if line not in shared]
                self._install_third_party(context / "third-party", own)
                self._install_members(context / "site", members[component.name])

    def _requirements(self, component: Component) -> tuple[list[str], list[str]]:
        words = [word for extra in component.extras for word in ("--extra", extra)]
        lines = self._run_uv([*_EXPORT, str(component.package), *words]).splitlines()
        members = [line.removeprefix("-e ") for line in lines if line.startswith("-e ")]
        return members, [line for line in lines if line and not line.startswith(("-e ", "#"))]

    def _install_third_party(self, target: Path, requirements: list[str]) -> None:
        mark = hashlib.sha256("\n".join([PYTHON, *requirements]).encode()).hexdigest()
        stamp = target.parent / f"{target.name}.sha256"
        if target.is_dir() and stamp.exists() and stamp.read_text() == mark:
            return
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        if requirements:
            self._install(target, requirements, python=PYTHON)
        self._compile(target)
        stamp.write_text(mark)

    def _install_members(self, target: Path, members: list[str]) -> None:
        shutil.rmtree(target, ignore_errors=True)
        self._run_uv([*_INSTALL, "--python", str(self._python), "--target", str(target), *members])
        self._compile(target)

    def _install_injected(self, target: Path, members: list[str], requirements: list[str]) -> None:
        """Install for several Python versions into one directory: only extension modules differ, by name."""
        carried = [line for line in requirements if line.split("==")[0] not in FROM_VLLM]
        shutil.rmtree(target, ignore_errors=True)
        for python in INJECTED_PYTHONS:
            one = target.parent / f"third-party-{python}"
            mark = hashlib.sha256("\n".join([python, *carried]).encode()).hexdigest()
            stamp = target.parent / f"{one.name}.sha256"
            if not (one.is_dir() and stamp.exists() and stamp.read_text() == mark):
                shutil.rmtree(one, ignore_errors=True)
                self._install(one, carried, python=python)
                stamp.write_text(mark)
            shutil.copytree(one, target, dirs_exist_ok=True)
        self._run_uv([*_INSTALL, "--python", str(self._python), "--target", str(target), *members])

    def _install(self, target: Path, requirements: Sequence[str], *, python: str) -> None:
        listed = target.parent / f"{target.name}.txt"
        listed.write_text("\n".join(requirements) + "\n")
        where = ("--python-version", python, "--target", str(target), "-r", str(listed))
        self._run_uv([*_INSTALL, *_PLATFORM, *where])

    def _compile(self, target: Path) -> None:
        for leftover in ("bin", ".lock"):
            path = target / leftover
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        _run([str(self._python), *_COMPILE, "-s", str(target), str(target)])

    def _run_uv(self, words: list[str]) -> str:
        return _run([str(self._uv), *words])


def _shared(third_party: dict[str, list[str]]) -> list[str]:
    """Return what more than one component needs, so that it becomes one layer of all."""
    injected = {component.name for component in COMPONENTS if component.injected}
    uses = Counter(line for name, lines in third_party.items() if name not in injected for line in set(lines))
    return sorted(line for line, count in uses.items() if count > 1)


def _copy_files(context: Path, component: Component) -> None:
    for name in component.files:
        (context / "files").mkdir(exist_ok=True)
        shutil.copyfile(ROOT / name, context / "files" / Path(name).name)


def _run(command: list[str]) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if result.returncode:
        raise SystemExit(
            f"images: {' '.join(command[:4])} ... failed:\n{(result.stdout + result.stderr)[-3000:]}"
        )
    return result.stdout
