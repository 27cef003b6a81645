"""YAML that people wrote into data, with one error for everything that can be wrong with it.

A parser fails in many ways: a date that does not exist, a number of a million digits, a tag without a
constructor, nesting without end. All of them are the writer's mistake, so all are `NotYaml`. Contracts and
policies go through `contract.document`, which is stricter; this is for files too large for its limits.
"""

import re
from typing import Any, Final

import yaml

_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_QUOTED: Final = re.compile(r"'[^']{2,}'|\"[^\"]{2,}\"")


class NotYaml(ValueError):
    """A text cannot be read as YAML; never quotes it, for it may hold secrets.

    Attributes:
        line: where, from 1; None where nobody knows.
    """

    def __init__(self, problem: str, line: int | None) -> None:
        self.line = line
        where = f"line {line}: " if line is not None else ""
        super().__init__(f"{where}{problem}")


def load_yaml(text: str | bytes) -> Any:
    """The one document of a text; None where there is none.

    Raises:
        NotYaml: see there; also where there are several documents.
    """
    documents = load_yaml_documents(text)
    if len(documents) > 1:
        raise NotYaml(f"holds {len(documents)} documents where one was expected", None)
    return documents[0] if documents else None


def load_yaml_documents(text: str | bytes) -> list[Any]:
    """Every document of a text, the empty ones as None.

    Raises:
        NotYaml: see there.
    """
    try:
        return list(yaml.load_all(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else None
        raise NotYaml(_in_short(error), line) from None
    except yaml.YAMLError as error:
        raise NotYaml("holds a character that YAML cannot have", None) from error
    except RecursionError:
        raise NotYaml("is nested too deeply", None) from None
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise NotYaml("holds a value that is none (a number, date or tag)", None) from error


def _in_short(error: yaml.MarkedYAMLError) -> str:
    """What is wrong, without the text around it."""
    return _QUOTED.sub("…", str(error.problem or error.context or "cannot be read"))[:120]
