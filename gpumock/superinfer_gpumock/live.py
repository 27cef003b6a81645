"""The live description on a node: a directory with the JSON, and the flat file the mock library reads.

Promise: readers always see whole files (written aside, renamed), edits of several processes do not get lost
(one lock), and a new source description replaces the live one while a restart with the same source keeps
faults. Blocking (small files), also on the plugin's event loop.
"""

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from superinfer_gpumock.description import Description, DescriptionInvalid, parse, render
from superinfer_gpumock.flat import flatten
from superinfer_gpumock.node import MockNode, resolve

DEFAULT_DIRECTORY: Final = Path("/var/lib/superinfer-gpumock")


@dataclass(frozen=True, slots=True)
class LiveNode:
    """The live description of one node in one directory."""

    directory: Path

    @property
    def description_file(self) -> Path:
        """The JSON, with faults and events."""
        return self.directory / "node.json"

    @property
    def flat_file(self) -> Path:
        """What the mock library reads."""
        return self.directory / "node.flat"

    @property
    def name(self) -> str:
        """The node's name, kept since `install`."""
        return self._named_file.read_text().strip()

    @property
    def _named_file(self) -> Path:
        return self.directory / "node.name"

    @property
    def _source_file(self) -> Path:
        return self.directory / "source.sha256"

    def install(self, source: str, node_name: str) -> bool:
        """Make `source` live unless it already is; True when it was new. Raises DescriptionInvalid."""
        self.directory.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256(f"{node_name}\n{source}".encode()).hexdigest()
        with self._locked():
            known = self._source_file.read_text() if self._source_file.exists() else ""
            if known == digest and self.description_file.exists() and self.flat_file.exists():
                return False
            description = parse(source)
            node = resolve(description, node_name)
            _replace(self._named_file, node_name)
            self._write(description, node)
            _replace(self._source_file, digest)
        return True

    def remove(self) -> bool:
        """This node is no mock any more; True when it was one."""
        with self._locked():
            there = self.description_file.exists()
            for file in (self._source_file, self.description_file, self.flat_file):
                file.unlink(missing_ok=True)
        return there

    def read(self) -> tuple[Description, MockNode]:
        """What is live now; raises OSError or DescriptionInvalid."""
        description = parse(self.description_file.read_text())
        return description, resolve(description, self.name)

    def edit(self, change: Callable[[Description], Description]) -> MockNode:
        """Apply one change; raises DescriptionInvalid and changes nothing where the result cannot be."""
        if not self.description_file.exists():
            raise DescriptionInvalid(
                f"no live description in {self.directory}; start the device plugin first"
            )
        with self._locked():
            description = change(self.read()[0])
            node = resolve(description, self.name)
            self._write(description, node)
        return node

    def version(self) -> tuple[int, int] | None:
        """Changes whenever the live description does; None while there is none."""
        try:
            found = self.description_file.stat()
        except FileNotFoundError:
            return None
        return found.st_mtime_ns, found.st_ino

    def _write(self, description: Description, node: MockNode) -> None:
        _replace(self.flat_file, flatten(node))
        _replace(self.description_file, render(description))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.directory / "lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield


def _replace(path: Path, text: str) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(text)
    aside.replace(path)
