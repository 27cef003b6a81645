"""What pydantic says about a document, in the words of somebody who has to fix it.

Every entry names the field as the user wrote it, the value found and what to write instead. Pure.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic import ValidationError

from superinfer_core.contract.problems import FieldProblem
from superinfer_core.words import shortened, shown

_SHOWN_PATH_CHARACTERS: Final = 200
_WITH_UNIT: Final = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*(ms|s|sec|seconds|m|min|h)?\s*", re.ASCII)
_UNIT_MS: Final = {
    "ms": 1,
    "s": 1000,
    "sec": 1000,
    "seconds": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
}

_PATTERN_FIXES: Final[Mapping[str, str]] = {
    "apiVersion": "write superinfer.dev/v1alpha1",
    "kind": "write SLOContract (or ChipletPool for a pool)",
    "serviceID": "use lower-case letters, digits and dashes, at most 63, not beginning or ending with a dash",
    "availability": 'write percent as text, from "1" to "99.9999", e.g. "99.95"',
    "window": "write a whole number and s, m, h or d, e.g. 10m or 1h",
    "name": "use lower-case letters, digits, dashes and dots, beginning and ending with a letter or digit",
    "namespace": "use lower-case letters, digits and dashes, at most 63",
}


def problems_of(error: ValidationError, prefix: str = "") -> tuple[FieldProblem, ...]:
    """Every problem of a validation, in document order."""
    return tuple(_problem(entry, prefix) for entry in error.errors(include_url=False))


def path_of(location: tuple[Any, ...], prefix: str = "") -> str:
    """`spec.objectives[0].targetMs` from pydantic's location."""
    path = prefix
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part != "[key]":
            path += f".{part}" if path else str(part)
    return shortened(path, _SHOWN_PATH_CHARACTERS)


def closest(word: str, known: list[str]) -> str | None:
    """The known word somebody most likely meant: spelled alike, or in another case or style."""
    squeezed = {_squeeze(candidate): candidate for candidate in known}
    word = word[:100]
    if (same := squeezed.get(_squeeze(word))) is not None:
        return same
    near = difflib.get_close_matches(_squeeze(word), list(squeezed), n=1, cutoff=0.7)
    return squeezed[near[0]] if near else None


def _squeeze(word: str) -> str:
    return word.lower().replace("_", "").replace("-", "")


def _problem(entry: Any, prefix: str) -> FieldProblem:
    kind, context, value = str(entry["type"]), entry.get("ctx") or {}, entry.get("input")
    location = tuple(entry["loc"])
    field = path_of(location, prefix)
    name = next((str(part) for part in reversed(location) if isinstance(part, str)), "")
    if kind == "missing":
        return FieldProblem(field, "", "is missing", f"add {name}")
    describe = _BY_TYPE.get(kind)
    if describe is None:
        return FieldProblem(
            field, shown(value), str(entry["msg"])[:200], str(context.get("fix", "correct it"))
        )
    message, fix = describe(name, value, context)
    return FieldProblem(field, shown(value), message, fix)


def _not_whole(name: str, value: Any, _: Mapping[str, Any]) -> tuple[str, str]:
    if isinstance(value, str) and (match := _WITH_UNIT.fullmatch(value)):
        number, unit = float(match[1]), match[2]
        if name.endswith("Ms") and unit is not None:
            return (
                "has a unit",
                f"write {max(1, round(number * _UNIT_MS[unit]))} (whole milliseconds, no unit)",
            )
        if unit is None:
            return "is text", f"write {round(number)} without quotes"
    if name == "percentile":
        return "is not a whole number", "write a whole number from 1 to 99"
    if isinstance(value, float):
        return (
            "is not a whole number",
            f"write {max(1, round(value)) if abs(value) < 1e15 else 'a smaller number'}",
        )
    return "is not a whole number", "write a whole number, e.g. 300" if name.endswith(
        "Ms"
    ) else "write a whole number"


def _below(_: str, __: Any, context: Mapping[str, Any]) -> tuple[str, str]:
    return "is too small", f"write at least {context.get('ge', context.get('gt'))}"


def _above(_: str, __: Any, context: Mapping[str, Any]) -> tuple[str, str]:
    return "is too large", f"write at most {context.get('le', context.get('lt'))}"


def _not_listed(_: str, value: Any, context: Mapping[str, Any]) -> tuple[str, str]:
    expected = str(context.get("expected", ""))
    meant = closest(value, re.findall(r"'([^']*)'", expected)) if isinstance(value, str) else None
    return "is not one of the known values", f"write {meant}" if meant else f"write one of {expected}"


def _not_text(name: str, value: Any, _: Mapping[str, Any]) -> tuple[str, str]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "is a number where text is expected", f'write "{value}" in quotes'
    return "is not text", _PATTERN_FIXES.get(name, "write text")


def _bad_form(name: str, value: Any, context: Mapping[str, Any]) -> tuple[str, str]:
    fallback = f"match {str(context.get('pattern', ''))[:100]}"
    if name == "serviceID" and isinstance(value, str):
        meant = re.sub(r"[^a-z0-9]+", "-", value[:63].lower()).strip("-")
        if meant:
            return "has characters a serviceID cannot have", f"write {meant}, for example"
    return "is not in the form expected", _PATTERN_FIXES.get(name, fallback)


def _long(_: str, __: Any, context: Mapping[str, Any]) -> tuple[str, str]:
    return "is too long", f"write at most {context.get('max_length')}"


def _short(_: str, __: Any, context: Mapping[str, Any]) -> tuple[str, str]:
    return "is too short", f"write at least {context.get('min_length')}"


def _not_mapping(_: str, __: Any, ___: Mapping[str, Any]) -> tuple[str, str]:
    return "is not a mapping", "write fields under it, as `name: value`"


def _not_list(_: str, __: Any, ___: Mapping[str, Any]) -> tuple[str, str]:
    return "is not a list", "write one item per line, each beginning with `- `"


_BY_TYPE: Final[Mapping[str, Callable[[str, Any, Mapping[str, Any]], tuple[str, str]]]] = {
    "int_type": _not_whole,
    "int_from_float": _not_whole,
    "int_parsing": _not_whole,
    "greater_than_equal": _below,
    "greater_than": _below,
    "less_than_equal": _above,
    "less_than": _above,
    "enum": _not_listed,
    "literal_error": _not_listed,
    "string_type": _not_text,
    "string_pattern_mismatch": _bad_form,
    "string_too_long": _long,
    "too_long": _long,
    "string_too_short": _short,
    "too_short": _short,
    "model_type": _not_mapping,
    "model_attributes_type": _not_mapping,
    "dict_type": _not_mapping,
    "list_type": _not_list,
}
