"""Which description a node has: a file named after it, or the one its label names, or none.

Looked for in order: `<directory>/<node>.json`, then what the label `gpumock.superinfer.dev/description`
names, as `<directory>/<name>.json` or as a bundled example. Blocking (small files).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from superinfer_gpumock.description import DescriptionInvalid
from superinfer_gpumock.examples import NAMES, example

LABEL: Final = "gpumock.superinfer.dev/description"


@dataclass(slots=True)
class Source:
    """Where a node's description comes from; `label` is what the node's says, None until that is known."""

    node_name: str
    directory: Path | None = None
    file: Path | None = None
    label: str | None = None

    def find(self) -> str | None:
        """The JSON; None where there is none; raises DescriptionInvalid for an unknown name."""
        if self.file is not None:
            return self.file.read_text()
        named = self._read(self.node_name)
        if named is not None:
            return named
        if not self.label:
            return None
        labelled = self._read(self.label)
        if labelled is not None:
            return labelled
        if self.label in NAMES:
            return example(self.label)
        raise DescriptionInvalid(
            f"label {LABEL}={self.label} of node {self.node_name} names no description;"
            f" there are {', '.join(NAMES)} and the files in {self.directory}"
        )

    def _read(self, name: str) -> str | None:
        if self.directory is None:
            return None
        try:
            return (self.directory / f"{name}.json").read_text()
        except FileNotFoundError:
            return None
