"""`python -m superinfer_executor.node_agent`: the node agent alone, without the engines' imports."""

import sys

from superinfer_executor.node_agent.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
