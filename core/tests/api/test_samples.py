"""Every document of ours that people may copy is one that core takes, too, without a warning."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from superinfer_core.contract.parse import parse_contract, parse_pool

SAMPLES = Path(__file__).parents[3] / "manifests" / "samples"
PARSERS = {"ChipletPool": parse_pool, "SLOContract": parse_contract}


def documents() -> list[Any]:
    return [
        pytest.param(document, id=f"{path.relative_to(SAMPLES)} {number}")
        for path in sorted(SAMPLES.rglob("*.yaml"))
        for number, document in enumerate(yaml.safe_load_all(path.read_text()))
        if document.get("kind") in PARSERS
    ]


@pytest.mark.parametrize("document", documents())
def test_every_sample_is_understood(document: dict[str, Any]) -> None:
    PARSERS[document["kind"]](document)


def test_sample_secrets_of_keys_carry_the_label_that_makes_them_known() -> None:
    for path in sorted(SAMPLES.rglob("*.yaml")):
        found = list(yaml.safe_load_all(path.read_text()))
        for secret in (document for document in found if document.get("kind") == "Secret"):
            assert secret["metadata"]["labels"] == {"superinfer.dev/api-keys": "true"}, path
