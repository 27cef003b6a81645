"""What every result file has, whatever happened."""

import json
from pathlib import Path

import pytest

from superinfer_bench.report import Aim, document, write


@pytest.mark.parametrize(
    ("aim", "met"),
    [
        pytest.param(Aim.at_least("goodput", 3, 3.0), True, id="exactly enough is enough"),
        pytest.param(Aim.at_least("goodput", 3, 2.99), False, id="not quite"),
        pytest.param(Aim.at_least("goodput", 3, None), False, id="not measured is not met"),
        pytest.param(Aim.at_most("memory", 256, 256.0), True, id="at the bound"),
        pytest.param(Aim.at_most("memory", 256, None), False, id="a bound not measured is not met"),
    ],
)
def test_an_aim_is_met_only_when_measured_and_good_enough(aim: Aim, met: bool) -> None:
    assert aim.met is met
    assert set(aim.as_json()) == {"name", "aim", "got", "met"}


def test_a_file_has_the_shared_keys_and_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "result.json"
    write(path, document([Aim.at_least("a", 1, 2)], {"runs": []}))
    write(path, document([Aim.at_least("a", 1, 0)], {"runs": [1]}))
    found = json.loads(path.read_text())
    assert {"commit", "machine", "aims", "runs"} <= set(found)
    assert found["aims"][0]["met"] is False
    assert [p.name for p in path.parent.iterdir()] == ["result.json"]
