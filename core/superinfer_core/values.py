"""Values from outside: a number in its range, or an error that says what to write instead. Pure.

One check for policy files, urgency profiles and what reaches the engine with a request, so that none of them
takes true for 1, NaN for a number or 10^400 for a duration.
"""

from superinfer_core.words import shown


class InvalidValue(ValueError):
    """Something from outside that cannot be used.

    Attributes:
        field: what it was meant for.
        given: as it came.
        value: the same as text, cut.
        fix: what to write instead.
    """

    def __init__(self, field: str, value: object, fix: str) -> None:
        self.field = field
        self.given = value
        self.value = shown(value)
        self.fix = fix
        super().__init__(self.describe())

    def describe(self) -> str:
        """One line: field, value, fix."""
        return f"{self.field}: {self.value} is not usable; {self.fix}"


def number(
    field: str,
    value: object,
    least: float,
    most: float,
    *,
    above: bool = False,
    error: type[InvalidValue] = InvalidValue,
) -> float:
    """A number from `least` (with `above`: above it) to `most`, which are finite; raises `error`."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not least <= value <= most
        or (above and value == least)
    ):
        bound = "above" if above else "of at least"
        raise error(field, value, f"write a number {bound} {least:g}, at most {most:g}")
    return float(value)


def whole(
    field: str, value: object, least: int, most: int, *, error: type[InvalidValue] = InvalidValue
) -> int:
    """A whole number from `least` to `most`; raises `error`."""
    found = number(field, value, least, most, error=error)
    if found != int(found):
        raise error(field, value, "write a whole number")
    return int(found)
