"""What the demo shows while it runs: chapters, answers as they stream, events as they happen, tables."""

import textwrap
import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

WIDTH = 96
NUMBERS = frozenset(
    {
        *("target ms", "predicted ms", "actual ms", "promised ms", "TTFT ms", "E2E ms", "predicted"),
        *("asked", "admitted", "kept", "budget left"),
    }
)
"""Headings of columns that hold figures, set to the right."""


class Screen:
    """Prints the story. Times of `event` are since `restart_clock`."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._zero_s = time.monotonic()
        self._mid_line = False

    def chapter(self, title: str, text: str) -> None:
        """A new part of the story."""
        self._end_line()
        self._console.print()
        self._console.rule(f"[bold]{title}[/bold]", align="left")
        self.say(text)

    def say(self, text: str) -> None:
        """A paragraph."""
        self._end_line()
        self._console.print(textwrap.fill(text, WIDTH), markup=False)

    def quote(self, speaker: str, text: str, *, most: int = 300) -> None:
        """Real words of a person or the model, cut where long."""
        self._end_line()
        flat = " ".join(text.split())
        shown = flat if len(flat) <= most else flat[:most] + " …"
        self._console.print(
            textwrap.fill(f"{speaker}: {shown}", WIDTH, initial_indent="  ", subsequent_indent="    "),
            markup=False,
        )

    def stream(self, text: str) -> None:
        """A piece of an answer, at once."""
        if not self._mid_line:
            self._console.print("  model: ", end="", markup=False)
            self._mid_line = True
        self._console.print(text, end="", markup=False)
        self._console.file.flush()

    def restart_clock(self) -> None:
        """Events count from here."""
        self._zero_s = time.monotonic()

    def event(self, text: str) -> None:
        """Something happened just now."""
        self._end_line()
        self._console.print(f"  {time.monotonic() - self._zero_s:6.2f} s  {text}", markup=False)

    def verdict(self, text: str, *, met: bool) -> None:
        """What a chapter showed."""
        self._end_line()
        mark = "[green]✓[/green]" if met else "[red]✗[/red]"
        self._console.print(f"{mark} ", end="")
        self._console.print(text, markup=False)

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Rows of text; numbers to the right."""
        self._end_line()
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for heading in headings:
            numbers = heading.endswith("ms") or heading in {
                "asked",
                "admitted",
                "kept",
                "predicted",
                "budget left",
            }
            table.add_column(heading, justify="right" if numbers else "left", no_wrap=True)
        for row in rows:
            table.add_row(*row)
        self._console.print(table)

    def _end_line(self) -> None:
        if self._mid_line:
            self._console.print()
            self._mid_line = False


def ms(value: float | None) -> str:
    """A time as text; a dash where there is none."""
    return "-" if value is None else f"{value:,.0f}"
