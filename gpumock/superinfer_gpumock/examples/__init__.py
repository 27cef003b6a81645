"""Descriptions that come with the mock."""

from importlib import resources
from typing import Final

NAMES: Final = ("h200-nvswitch", "a100-pcie-bridged", "h100-mixed-mig", "b200-fabric")


def example(name: str) -> str:
    """The JSON of an example; raises KeyError for a name that is not in NAMES."""
    if name not in NAMES:
        raise KeyError(name)
    return resources.files(__name__).joinpath(f"{name}.json").read_text()
