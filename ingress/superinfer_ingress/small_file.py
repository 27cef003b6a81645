"""Reads files that people name: never more than such a file can sensibly have.

A device or a log given by mistake ends in an error, not in all the memory of the machine.
"""

import errno
from pathlib import Path
from typing import Final

MOST_BYTES: Final = 16 * 1024 * 1024


def read_small_text(path: Path, most_bytes: int = MOST_BYTES) -> str:
    """The text of a file, which must be UTF-8.

    Raises:
        OSError: it cannot be read, or is larger than that.
        UnicodeDecodeError: it is not UTF-8.
    """
    with path.open("rb") as stream:
        raw = stream.read(most_bytes + 1)
    if len(raw) > most_bytes:
        raise OSError(errno.EFBIG, f"is larger than {most_bytes} bytes; is it the right file?", str(path))
    return raw.decode("utf-8")
