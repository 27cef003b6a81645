"""`python -m superinfer_executor.stub`, the same as `python -m superinfer_executor stub`."""

import sys

from superinfer_executor.stub.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
