"""`superinfer_operator crds`: writes everything, and says what is stale."""

from pathlib import Path

import pytest

from superinfer_operator.crdgen.command import main
from superinfer_operator.crdgen.reference import reference


def arguments(folder: Path) -> list[str]:
    return [
        f"--out={folder / 'crds'}",
        f"--chart={folder / 'chart'}",
        f"--reference={folder / 'api.md'}",
    ]


@pytest.mark.parametrize(
    "path",
    ["crds/superinfer.dev_slocontracts.yaml", "chart/superinfer.dev_chipletpools.yaml", "api.md"],
)
def test_what_is_stale_is_named(tmp_path: Path, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(tmp_path)) == 0
    assert main([*arguments(tmp_path), "--check"]) == 0
    (tmp_path / path).write_text("edited by hand")
    capsys.readouterr()
    assert main([*arguments(tmp_path), "--check"]) == 1
    said = capsys.readouterr().err
    assert Path(path).name in said
    assert "make gen" in said


def test_checking_writes_nothing(tmp_path: Path) -> None:
    assert main([*arguments(tmp_path), "--check"]) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        "| `chiplet.shape` | `MIG`, `GPU`, `CPU` |",
        "| `drainSeconds` | 1 to 3,600 |",
        "Default: `60`.",
        "| `objectives[].targetMs` | 1 to 3,600,000 |",
        "- `spec.chiplet`: chiplet.profile cannot be changed",
        "| `gpus[].instances[].uuid` |",
    ],
)
def test_the_reference_says(words: str) -> None:
    assert words in reference()
