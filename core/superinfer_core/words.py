"""Values and text as people are told them: a message must not become as large as what caused it. Pure."""

from typing import Final

SHOWN_CHARACTERS: Final = 80
"""Values are quoted up to here: an error must not become as large as the input that caused it."""


def shortened(text: str, most: int) -> str:
    """The text, or its first `most` - 1 characters and an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + "…"


def shown(value: object) -> str:
    """The value as text of at most 80 characters, whatever it is."""
    if isinstance(value, str | bytes):
        text = repr(value[: SHOWN_CHARACTERS + 1])
    elif isinstance(value, bool) or value is None or isinstance(value, float):
        text = repr(value)
    elif isinstance(value, int):
        # Printing an integer of more than 4,300 digits raises in Python.
        text = repr(value) if value.bit_length() <= 256 else f"an integer of {value.bit_length()} bits"
    elif isinstance(value, dict):
        text = f"a mapping of {len(value)} fields" if value else "{}"
    elif isinstance(value, list | tuple | set):
        text = f"a list of {len(value)} items" if value else "[]"
    else:
        text = f"a value of type {type(value).__name__}"
    return shortened(text, SHOWN_CHARACTERS)
