"""Text from a user into plain data, without trusting it.

Promises: whatever bytes come in, the result is mappings with text keys, lists, text, booleans, None, finite
floats and 64-bit integers, at most 64 KiB of it, 32 levels and 4,096 values deep and wide; anything else is
`ContractInvalid` with line and column where there is one. YAML is read as its JSON subset plus comments: no
anchors or aliases (a few bytes of which can stand for gigabytes), no tags, no merge keys, no duplicate keys,
no YAML 1.1 surprises (`1:30`, `010`, `yes` and dates are text). Pure; safe from any thread.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

from superinfer_core.contract.problems import ContractInvalid, FieldProblem
from superinfer_core.words import shortened, shown

MAX_DOCUMENT_BYTES: Final = 65_536
MAX_DEPTH: Final = 32
MAX_VALUES: Final = 4_096
MAX_DOCUMENTS: Final = 256
_MAX_INT: Final = 2**63
_SHOWN_PATH_CHARACTERS: Final = 200

_INT: Final = re.compile(r"[-+]?(0|[1-9][0-9]*)", re.ASCII)
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_NOT_FINITE: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", re.ASCII)
_WORDS: Final[Mapping[str, bool | None]] = {
    "": None,
    "~": None,
    "null": None,
    "Null": None,
    "NULL": None,
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}
_TOO_LARGE: Final = ("is too large", "write a smaller number")
_NO_NUMBER: Final = ("is not a finite number", "write a plain number")
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_document(text: str | bytes) -> Mapping[str, Any]:
    """The one mapping a YAML or JSON text holds.

    Raises:
        ContractInvalid: it is not text, not YAML or JSON, too large, or not exactly one mapping.
    """
    documents = load_documents(text)
    if len(documents) != 1:
        raise _invalid(
            "document",
            "",
            f"{len(documents)} documents where one was expected",
            "send one contract at a time",
        )
    return documents[0]


def load_documents(text: str | bytes) -> tuple[Mapping[str, Any], ...]:
    """Every mapping of a text, as a file with `---` between contracts holds them; empty ones are left out.

    Raises:
        ContractInvalid: as load_document.
    """
    decoded = _decoded(text)
    values = _json_documents(decoded) if decoded.lstrip()[:1] in ("{", "[") else None
    if values is None:
        values = _yaml_documents(decoded)
    documents = [value for value in values if value is not None]
    for value in documents:
        if not isinstance(value, dict):
            raise _invalid("document", shown(value), "is not a mapping", "write fields as `name: value`")
    return tuple(documents)


def plain_mapping(document: object) -> dict[str, Any]:
    """A copy of a mapping that came from elsewhere, held to the same limits.

    Raises:
        ContractInvalid: it holds something a JSON document cannot, or too much of it.
    """
    if not isinstance(document, Mapping):
        raise _invalid("document", shown(document), "is not a mapping", "write fields as `name: value`")
    budget = [MAX_VALUES]
    plain = _plain(document, "", 0, budget)
    assert isinstance(plain, dict)
    return plain


def _invalid(field: str, value: str, message: str, fix: str) -> ContractInvalid:
    return ContractInvalid((FieldProblem(field, value, message, fix),))


def _decoded(text: str | bytes) -> str:
    if len(text) > MAX_DOCUMENT_BYTES:
        raise _invalid(
            "document",
            f"{len(text)} bytes",
            f"is larger than {MAX_DOCUMENT_BYTES} bytes",
            "split it; a contract needs a few hundred",
        )
    if isinstance(text, str):
        return text.removeprefix("\ufeff")
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"is not UTF-8 (byte {error.start})"
        raise _invalid("document", shown(text[error.start :]), message, "save it as UTF-8") from None


def _too_deep(path: str) -> ContractInvalid:
    return _invalid(path or "document", "", f"is nested deeper than {MAX_DEPTH} levels", "flatten it")


def _too_many() -> ContractInvalid:
    return _invalid("document", "", f"holds more than {MAX_VALUES} values", "split it")


def _plain(value: object, path: str, depth: int, budget: list[int]) -> Any:
    budget[0] -= 1
    if budget[0] < 0:
        raise _too_many()
    if depth > MAX_DEPTH:
        raise _too_deep(_cut(path))
    if isinstance(value, Mapping):
        fields: dict[str, Any] = {}
        for key, item in value.items():
            name = _key(key, path)
            fields[name] = _plain(item, f"{path}.{_cut(name)}" if path else _cut(name), depth + 1, budget)
        return fields
    if isinstance(value, list | tuple):
        return [_plain(item, f"{path}[{i}]", depth + 1, budget) for i, item in enumerate(value)]
    return _scalar(value, path)


def _cut(text: str) -> str:
    return shortened(text, _SHOWN_PATH_CHARACTERS)


def _key(key: object, path: str) -> str:
    if not isinstance(key, str):
        raise _invalid(_cut(path) or "document", shown(key), "is a field name that is not text", "quote it")
    return _text(key, _cut(path) or "document")


def _scalar(value: object, path: str) -> Any:
    field = _cut(path) or "document"
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, field)
    if isinstance(value, int):
        if -_MAX_INT <= value < _MAX_INT:
            return int(value)
        raise _invalid(field, shown(value), *_TOO_LARGE)
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        raise _invalid(field, shown(value), *_NO_NUMBER)
    if isinstance(value, _Unusable):
        reason = _TOO_LARGE if value.digits[-1:].isdigit() else _NO_NUMBER
        raise _invalid(field, shown(value.digits), *reason)
    raise _invalid(field, shown(value), "is nothing YAML or JSON can say", "write text, a number or a list")


def _text(value: str, field: str) -> str:
    """The text itself; a subclass (an enum, say) must not carry its own behaviour further."""
    text = str.__str__(value)
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise _invalid(field, "", "holds half a character (a lone surrogate)", "remove it")
    return text


def _json_documents(text: str) -> list[Any] | None:
    """The JSON value of a text, or None where it is not JSON (YAML's flow style also begins with a brace)."""
    if _deepest_bracket(text) > MAX_DEPTH:
        raise _too_deep("")
    try:
        value = json.loads(
            text,
            object_pairs_hook=_unique_pairs,
            parse_constant=_Unusable,
            parse_int=_json_number,
            parse_float=_json_number,
        )
    except json.JSONDecodeError:
        return None
    budget = [MAX_VALUES]
    return [_plain(value, "", 0, budget)]


def _deepest_bracket(text: str) -> int:
    """Upper bound of the nesting, brackets inside text included: cheap, and before any recursion."""
    depth = deepest = 0
    for character in text:
        if character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise _invalid(_cut(key), shown(value), "is there twice", "keep one of them")
        result[key] = value
    return result


class _Unusable:
    """A number JSON text holds and a contract cannot; refused once its place is known."""

    def __init__(self, digits: str) -> None:
        self.digits = digits


def _json_number(digits: str) -> Any:
    number = _number_of(digits)
    return _Unusable(digits) if number is None else number


def _number_of(digits: str) -> int | float | None:
    """The number; None before Python spends time on 10^400 or a million digits."""
    if len(digits) > 64:
        return None
    if _INT.fullmatch(digits):
        whole = int(digits)
        return whole if -_MAX_INT <= whole < _MAX_INT else None
    real = float(digits)
    return real if math.isfinite(real) else None


def _yaml_documents(text: str) -> list[Any]:
    try:
        return list(_documents_of(yaml.parse(text, Loader=_LOADER)))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark is not None else "document"
        message = f"is neither YAML nor JSON: {_cut(str(error.problem or error.context or 'cannot be read'))}"
        raise _invalid(where, "", message, "check indentation, quotes and brackets there") from None
    except (yaml.YAMLError, UnicodeError) as error:
        raise _invalid("document", "", f"is not YAML: {_cut(str(error))}", "remove the character") from None


def _documents_of(events: Iterator[Any]) -> Iterator[Any]:
    budget, count = [MAX_VALUES], 0
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            count += 1
            if count > MAX_DOCUMENTS:
                raise _too_many()
            yield _node(next(events), events, "", 0, budget)


def _node(event: Any, events: Iterator[Any], path: str, depth: int, budget: list[int]) -> Any:
    budget[0] -= 1
    if budget[0] < 0:
        raise _too_many()
    if depth > MAX_DEPTH:
        raise _too_deep(_cut(path))
    where = _cut(path) or f"line {event.start_mark.line + 1}"
    if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
        raise _invalid(where, "", "uses a YAML anchor or alias", "write the values out")
    if event.tag is not None and not (isinstance(event, yaml.ScalarEvent) and event.tag == "!"):
        raise _invalid(where, shown(event.tag), "uses a YAML tag", "remove it")
    if isinstance(event, yaml.ScalarEvent):
        return _scalar_of(event, where)
    if isinstance(event, yaml.SequenceStartEvent):
        items: list[Any] = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            items.append(_node(event, events, f"{path}[{len(items)}]", depth + 1, budget))
        return items
    fields: dict[str, Any] = {}
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        key = _key_of(event, where)
        inner = f"{path}.{_cut(key)}" if path else _cut(key)
        if key in fields:
            raise _invalid(_cut(inner), "", f"is there twice (line {event.start_mark.line + 1})", "keep one")
        fields[key] = _node(next(events), events, inner, depth + 1, budget)
    return fields


def _key_of(event: Any, where: str) -> str:
    if not isinstance(event, yaml.ScalarEvent) or event.anchor is not None or event.tag is not None:
        raise _invalid(where, "", "has a field name that is not plain text", "write fields as `name: value`")
    if event.value == "<<":
        raise _invalid(where, "'<<'", "uses a YAML merge key", "write the values out")
    return str(event.value)


def _scalar_of(event: Any, field: str) -> Any:
    text = str(event.value)
    if not event.implicit[0]:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text) or (text != "." and _FLOAT.fullmatch(text) and not _leading_zero(text)):
        number = _number_of(text)
        if number is None:
            raise _invalid(field, shown(text), *_TOO_LARGE)
        return number
    if _NOT_FINITE.fullmatch(text):
        raise _invalid(field, shown(text), *_NO_NUMBER)
    return text


def _leading_zero(text: str) -> bool:
    digits = text.lstrip("+-")
    return len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()
