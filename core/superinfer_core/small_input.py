"""Input that people name: never more of it is read than such a thing can sensibly have.

A device or a log given by mistake ends in an error, not in all the memory of the machine. The reading itself
is passed in.
"""

import errno
from collections.abc import Callable
from typing import Final

MOST_BYTES: Final = 16 * 1024 * 1024


def small_input(read: Callable[[int], bytes], name: str, most_bytes: int = MOST_BYTES) -> bytes:
    """Everything there is to read.

    Args:
        read: up to so many bytes, as a binary file does.
        name: of what is read, for the error.
        most_bytes: that it may have; one more is read, so that too much is seen as such.

    Raises:
        OSError: it has more.
    """
    raw = read(most_bytes + 1)
    if len(raw) > most_bytes:
        raise OSError(errno.EFBIG, f"is larger than {most_bytes} bytes; is it the right file?", name)
    return raw
