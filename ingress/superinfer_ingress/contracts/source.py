"""Where contracts are kept, as the store sees it: a directory, a cluster, or nowhere but here.

A source answers with everything it has; the store resolves, checks and swaps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from superinfer_core.contract.inheritance import StoredContract

MANAGED_SUFFIX: Final = ".superinfer.yaml"
"""Files with this ending are written and deleted by the contracts API; all others belong to people."""


@dataclass(frozen=True, slots=True)
class SourceProblem:
    """Something in a source that is not a contract: a file, or a document in it without a name."""

    file: str
    message: str


@dataclass(frozen=True, slots=True)
class FiledContract:
    """A stored contract, where it is from, and the document as written.

    `file` is "" where contracts are not in files; `owner` is who else writes it, "" where this API does.
    """

    stored: StoredContract
    file: str
    document: Mapping[str, Any]
    owner: str = ""

    @property
    def managed(self) -> bool:
        """Whether the contracts API wrote it."""
        return not self.owner and (self.file.endswith(MANAGED_SUFFIX) or not self.file)

    @property
    def owned_by(self) -> str:
        """What to tell somebody who wants to change it through this API, and may not."""
        if self.owner:
            return f"was written by {self.owner}; change it there"
        return f"is written in the file {self.file}; change that file instead"


class NotWritten(Exception):
    """A contract could not be written or deleted; nothing was changed.

    `status` is what the caller is answered with; `retry_after_ms` is set where trying again can help.
    """

    def __init__(self, message: str, *, status: int, retry_after_ms: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_ms = retry_after_ms


class ContractSource(Protocol):
    """Keeps contracts."""

    async def read(self) -> tuple[Sequence[FiledContract], Sequence[SourceProblem]]:
        """Everything there is, and what could not be read."""
        ...

    async def write(self, filed: FiledContract) -> None:
        """Keep one contract; what `read` answers has it from now on.

        Raises:
            NotWritten: it could not be kept.
        """
        ...

    async def delete(self, filed: FiledContract) -> None:
        """Forget one contract; one that is gone already is fine.

        Raises:
            NotWritten: it is still there.
        """
        ...


class MemorySource:
    """Keeps contracts for as long as the process lives."""

    def __init__(self) -> None:
        self._filed: dict[str, FiledContract] = {}

    async def read(self) -> tuple[Sequence[FiledContract], Sequence[SourceProblem]]:
        """Everything that was written."""
        return tuple(self._filed.values()), ()

    async def write(self, filed: FiledContract) -> None:
        """Keep one contract."""
        self._filed[filed.stored.object_key] = filed

    async def delete(self, filed: FiledContract) -> None:
        """Forget one contract."""
        self._filed.pop(filed.stored.object_key, None)
