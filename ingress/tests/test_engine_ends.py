"""Which engines ended, by load reports: a stream that breaks says nothing of the engine behind it."""

import pytest

from superinfer_ingress.executors.outages import EngineEnds

BREAK = object()


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        pytest.param(["", "a", "a"], [], id="it serves on"),
        pytest.param(["a", ""], ["a"], id="none serves any more"),
        pytest.param(["a", "", "", "b", ""], ["a", "b"], id="one after the other"),
        pytest.param(["a", "b"], ["a"], id="replaced between two reports"),
        pytest.param(["a", BREAK, "", "a"], [], id="its sidecar went, and it lived on"),
        pytest.param(["a", BREAK, BREAK, "", "a"], [], id="twice"),
        pytest.param(["a", BREAK, "", "b"], ["a"], id="both went"),
        pytest.param(["a", BREAK], [], id="nobody knows yet"),
    ],
)
def test_ends(reports, expected):
    ends = EngineEnds()
    for now_ms, report in enumerate(reports):
        if report is BREAK:
            ends.stream_broke()
        else:
            ends.note(float(now_ms), report, asked_to=False)
    assert [generation for _, generation in ends.latest] == expected


def test_one_that_was_asked_to_end_does_not_count():
    ends = EngineEnds()
    ends.note(0.0, "a", asked_to=False)
    ends.note(1.0, "", asked_to=True)
    assert not ends.latest
