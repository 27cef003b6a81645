"""`python -m superinfer_gpumock plugin|fail|recover|show|check|examples|example`: MOCK GPUs."""

import sys
from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Run a subcommand."""
    if argv and argv[0] == "plugin":
        from superinfer_gpumock import serve

        return serve.main(argv[1:])
    from superinfer_gpumock import control

    return control.main(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
