"""Reads files that people name: never more than such a file can sensibly have.

A device or a log given by mistake ends in an error, not in all the memory of the machine.
"""

from pathlib import Path

from superinfer_core.small_input import MOST_BYTES, small_input


def read_small_bytes(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """What a file holds.

    Raises:
        OSError: it cannot be read, or is larger than that.
    """
    with path.open("rb") as stream:
        return small_input(stream.read, str(path), most_bytes)


def read_small_text(path: Path, most_bytes: int = MOST_BYTES) -> str:
    """The text of a file, which must be UTF-8.

    Raises:
        OSError: it cannot be read, or is larger than that.
        UnicodeDecodeError: it is not UTF-8.
    """
    return read_small_bytes(path, most_bytes).decode("utf-8")
