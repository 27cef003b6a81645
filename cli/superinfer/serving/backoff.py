"""How long to wait before a crashed process is started again, and when to stop trying."""

from dataclasses import dataclass

from superinfer.exit_codes import USAGE
from superinfer_core.doubling import doubled


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubling waits, forgotten after a healthy spell.

    Attributes:
        first_s, most_s: the first and the longest wait.
        healthy_s: a process that ran this long before it crashed counts as healthy.
        tries_before_ready: crashes allowed before the process was ever ready; then it is given up, since
            something is wrong with the installation rather than with one run. A process that says its command
            line is wrong is given up at once.
    """

    first_s: float = 0.5
    most_s: float = 20.0
    healthy_s: float = 30.0
    tries_before_ready: int = 3

    def delay_s(self, crashes_in_a_row: int) -> float:
        """Wait after the given number of crashes in a row (at least 1)."""
        return doubled(self.first_s, crashes_in_a_row, self.most_s)

    def crashes_in_a_row(self, before: int, ran_s: float) -> int:
        """The count after one more crash."""
        return 1 if ran_s >= self.healthy_s else before + 1

    def gives_up(self, crashes_in_a_row: int, *, returncode: int, ever_ready: bool) -> bool:
        """Whether another start would be pointless."""
        if ever_ready:
            return False
        return returncode == USAGE or crashes_in_a_row >= self.tries_before_ready
