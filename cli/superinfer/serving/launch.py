"""Start a program that cannot outlive its parent: `python launch.py PARENT_PID SIGNAL PROGRAM ARGS...`.

The kernel sends SIGNAL when the parent dies, however it dies; the setting survives exec. Run as a script
of its own rather than between fork and exec, where only signal-safe code is safe.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def cannot_outlive_us(command: tuple[str, ...]) -> list[str]:
    """The command line that starts a program so: it gets SIGTERM when the calling thread ends."""
    guard = [sys.executable, "-I", "-S", __file__]
    return [*guard, str(os.getpid()), str(int(signal.SIGTERM)), *command]


def main(argv: list[str]) -> None:
    """Arm the death signal, make sure the parent is still there, become the program."""
    parent, signal_number, *command = argv
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0)
    if os.getppid() != int(parent):
        sys.exit(1)
    os.execvp(command[0], command)  # noqa: S606 - the whole point: become the program


if __name__ == "__main__":
    main(sys.argv[1:])
