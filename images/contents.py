"""What goes into which image: our members with their locked requirements, as uv's lock has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Component:
    """One image: the workspace package it runs and that package's extras.

    Attributes:
        name: Image name and folder of the Dockerfile.
        package: Workspace package whose closure goes in; none for an image without our code.
        extras: Extras of the package.
        injected: Copied into a foreign image whose Python version is not ours to choose.
        files: Files built elsewhere, from the root of the checkout; their folder in the context is `files`.
    """

    name: str
    package: str | None
    extras: tuple[str, ...] = ()
    injected: bool = False
    files: tuple[str, ...] = ()


COMPONENTS: Final = (
    Component("operator", "superinfer-operator"),
    Component("ingress", "superinfer-ingress"),
    Component("sidecar", "superinfer-sidecar"),
    Component("executor-stub", "superinfer-executor"),
    Component("node-agent", "superinfer-executor", extras=("nvml",)),
    Component("gpumock", "superinfer-gpumock", files=("build/gpumock/libnvidia-ml.so.1",)),
    Component("executor-wheel", "superinfer-executor", injected=True),
    Component("vllm-mounted", None),
)
# Packages every vLLM image carries in versions that suit both; anything else is injected beside our code.
FROM_VLLM: Final = frozenset(
    {
        "annotated-types",
        "msgspec",
        "numpy",
        "pydantic",
        "pydantic-core",
        "pyyaml",
        "typing-extensions",
        "typing-inspection",
    }
)
PYTHON: Final = "3.11"
INJECTED_PYTHONS: Final = ("3.11", "3.12")
