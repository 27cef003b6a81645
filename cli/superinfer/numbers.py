"""Numbers on the command line: NaN passes every comparison with a bound, so bounds alone let it in."""

import math

import typer


def finite(value: float | None) -> float | None:
    """The callback of every option that is a float.

    Raises:
        typer.BadParameter: it is not a plain number.
    """
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a plain number; write one, e.g. 1.5")
    return value
