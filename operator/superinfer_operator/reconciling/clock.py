"""One moment, as everything that is decided together sees it."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Now:
    """A moment."""

    instant: datetime

    @property
    def seconds(self) -> float:
        """Since 1970, as timestamps of the API are compared with."""
        return self.instant.timestamp()

    @property
    def text(self) -> str:
        """RFC 3339 to the second, as conditions have it."""
        return self.instant.strftime("%Y-%m-%dT%H:%M:%SZ")

    @property
    def micro_text(self) -> str:
        """RFC 3339 with microseconds, as events have it."""
        return self.instant.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


Clock = Callable[[], Now]


def system_clock() -> Now:
    """The moment it is called."""
    return Now(datetime.now(UTC))
