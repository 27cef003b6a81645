"""A directory of contracts: what lives beside contracts is left alone, what was meant as one is not."""

from pathlib import Path

import pytest

from superinfer_ingress.contracts.files import ContractFiles

CONTRACT = """\
apiVersion: superinfer.dev/v1alpha1
kind: SLOContract
metadata: {name: checkout, namespace: shop}
spec: {tier: Gold}
"""


def read(directory: Path, text: str) -> tuple[list[str], list[str]]:
    (directory / "some.yaml").write_text(text)
    filed, problems = ContractFiles(directory, default_namespace="default").read()
    usable = [one.stored.object_key for one in filed if one.stored.spec is not None]
    return usable, [problem.message for problem in problems]


@pytest.mark.parametrize(
    "other",
    [
        "{apiVersion: v1, kind: Secret, metadata: {name: keys}}",
        "{apiVersion: superinfer.dev/v1alpha1, kind: ChipletPool, metadata: {name: gpu}}",
    ],
    ids=["a secret", "a pool"],
)
def test_other_kinds_live_beside_contracts(tmp_path: Path, other: str) -> None:
    assert read(tmp_path, f"{other}\n---\n{CONTRACT}") == (["shop/checkout"], [])


@pytest.mark.parametrize("kind", ["SLOContrct", "SloContract", "Contract"])
def test_a_mistyped_kind_is_told_and_not_left_out(tmp_path: Path, kind: str) -> None:
    usable, problems = read(tmp_path, CONTRACT.replace("SLOContract", kind))
    assert usable == []
    assert len(problems) == 1
    assert "shop/checkout" in problems[0]
    assert "write kind: SLOContract" in problems[0]
