"""JSON that is nested deeper than it can be read, cut so that the rest of it can.

Whoever may write a field without a schema (a pod template) may nest it thousands of levels deep, and the API
server takes it. A decoder gives up at about a thousand, on the whole answer: one such object would hide every
other of its kind. Promise: `decode_json` reads what is nested deeper than `DEEPEST_LEVELS` as null where it
could not be read otherwise; whoever takes such fields refuses what comes near that depth. Pure.
"""

import re
from typing import Any, Final

import msgspec

DEEPEST_LEVELS: Final = 400
"""Far below where decoding and copying fail; an object of a watch event has two levels around it."""

_TOKENS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_decode: Final = msgspec.json.Decoder().decode


def decode_json(text: bytes) -> Any:
    """What a JSON text says, without what is nested too deeply.

    Raises:
        msgspec.DecodeError: it is not JSON.
    """
    try:
        return _decode(text)
    except RecursionError:
        return _decode(cut(text, DEEPEST_LEVELS))


def cut(text: bytes, levels: int) -> bytes:
    """The same text with null for every list and mapping below so many levels."""
    kept: list[bytes] = []
    depth, copied = 0, 0
    for token in _TOKENS.finditer(text):
        mark = token.group()
        if mark in b"[{":
            depth += 1
            if depth == levels + 1:
                kept += (text[copied : token.start()], b"null")
        elif mark in b"]}":
            if depth == levels + 1:
                copied = token.end()
            depth -= 1
    kept.append(text[copied:])
    return b"".join(kept)
