"""Reads a node several times while its description changes; run with the MOCK library, prints JSON."""

import ctypes
import json
import sys
from pathlib import Path

from superinfer_executor.node_agent.driver import Driver
from superinfer_gpumock.examples import example
from superinfer_gpumock.faults import Failure, fail, recover
from superinfer_gpumock.live import LiveNode


def main(library: str, directory: str) -> None:
    ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    live = LiveNode(Path(directory))
    driver = Driver()
    seen = []

    def look() -> None:
        node = driver.read()
        seen.append(
            [sorted({gpu.product for gpu in node.gpus}), [gpu.lost for gpu in node.gpus], len(node.links)]
        )

    look()
    live.edit(lambda described: fail(described, Failure(gpu=3, lost=True)))
    look()
    live.edit(lambda described: recover(described, 3))
    look()
    live.install(example("a100-pcie-bridged"), live.name)
    look()
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
