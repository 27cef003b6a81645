"""How answers are compared, and how kills are matched with what they did."""

import json
from collections import Counter

import pytest

from superinfer_bench.chaos.answers import Answer, Choice, compare, internal
from superinfer_bench.chaos.bench import Result
from superinfer_bench.chaos.cases import CASES
from superinfer_bench.chaos.kills import TARGETS, Kill, attribute, detections


def answer(tokens, text="text", **fields):
    one = Answer(choices={0: Choice(tokens=list(tokens), text=text, finish=["length"])})
    one.heads = {("cmpl-1", 7)}
    one.completion_tokens = len(tokens)
    for name, value in fields.items():
        setattr(one, name, value)
    return one


REFERENCE = answer([1, 2, 3, 4, 5, 6])


@pytest.mark.parametrize(
    ("tokens", "lost", "doubled", "wrong"),
    [
        pytest.param([1, 2, 3, 4, 5, 6], 0, 0, 0, id="the same"),
        pytest.param([1, 2, 3, 5, 6], 1, 0, 0, id="one is missing"),
        pytest.param([1, 2, 3, 4], 2, 0, 0, id="it ends too early"),
        pytest.param([1, 2, 3, 3, 4, 5, 6], 0, 1, 0, id="one comes twice"),
        pytest.param([1, 2, 3, 4, 3, 4, 5, 6], 0, 2, 0, id="two come twice"),
        pytest.param([1, 2, 9, 4, 5, 6], 0, 0, 4, id="another one: all that follows rests on it"),
        pytest.param([], 6, 0, 0, id="nothing came"),
    ],
)
def test_tokens_are_compared(tokens, lost, doubled, wrong):
    found = compare(REFERENCE, answer(tokens))
    assert (found.expected, found.lost, found.doubled, found.wrong) == (6, lost, doubled, wrong)
    assert found.same is not (lost or doubled or wrong)


@pytest.mark.parametrize(
    ("other", "says"),
    [
        pytest.param(answer([1, 2, 3, 4, 5, 6], text="other"), "text", id="equal tokens, other text"),
        pytest.param(answer([1, 2, 3, 4, 5, 6], completion_tokens=7), "usage", id="usage"),
        pytest.param(answer([1, 2, 3, 4, 5, 6], heads={("a", 1), ("b", 1)}), "ids", id="two ids"),
    ],
)
def test_what_is_no_token_counts_too(other, says):
    found = compare(REFERENCE, other)
    assert says in found.other
    assert not found.same


def test_an_answer_can_be_wrong_on_its_own():
    assert internal(REFERENCE) == ""
    twice = answer([1])
    twice.choices[0].finish.append("stop")
    assert "ended 2 times" in internal(twice)
    twice.choices[0].finish, twice.choices[0].roles = ["stop"], 2
    assert "role" in internal(twice)


def test_a_stream_and_a_whole_answer_read_alike():
    head = {"id": "chatcmpl-1", "created": 7}
    usage = {"completion_tokens": 2}
    events = [
        {**head, "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]},
        {**head, "choices": [{"index": 0, "delta": {"content": "a"}, "token_ids": [1]}]},
        {
            **head,
            "choices": [{"index": 0, "delta": {"content": "b"}, "token_ids": [2], "finish_reason": "stop"}],
        },
        {**head, "choices": [], "usage": usage},
    ]
    streamed = Answer()
    for event in events:
        streamed.read_event(json.dumps(event).encode())
    assert not streamed.whole
    streamed.read_event(b"[DONE]")
    message = {"role": "assistant", "content": "ab"}
    choice = {"index": 0, "message": message, "token_ids": [1, 2], "finish_reason": "stop"}
    whole = Answer()
    whole.read_body(json.dumps({**head, "choices": [choice], "usage": usage}).encode())
    assert streamed == whole
    assert compare(streamed, whole).same


def test_an_error_is_no_answer():
    cut = Answer()
    cut.read_event(b'{"error":{"code":"engine_failed","message":"given up"}}')
    assert (cut.error, cut.why, cut.whole) == ("engine_failed", "given up", False)


def resume(left, lost_at_ms, **fields):
    base = {"decision_ms": 2, "gap_ms": 50, "delivered_tokens": 3}
    return {"left": left, "lost_at_ms": lost_at_ms, **base, **fields}


def test_a_resume_belongs_to_the_latest_kill_that_can_have_caused_it():
    first = Kill("engine", "any", 1000.0, ("a",), "engine", 1)
    second = Kill("both", "any", 2000.0, ("a", "b"), "engine and sidecar", 2)
    other = Kill("sidecar", "any", 2500.0, ("c",), "sidecar", 0)
    records = [
        {"resumes": [resume("a", 1030.0), resume("b", 2040.0)]},
        {"resumes": [resume("a", 2010.0, delivered_tokens=0)]},
        {"resumes": [resume("d", 2600.0)]},
        {"resumes": []},
    ]
    assert attribute([first, second, other], records) == 1
    assert (first.as_json()["detection_ms"], first.as_json()["first_token_ms"]) == (30.0, 80.0)
    assert (first.as_json()["phase"], first.as_json()["restore_ms"]) == ("decode", 48.0)
    assert second.as_json()["resumed"] == 2
    assert (second.as_json()["phase"], second.as_json()["detection_ms"]) == ("prefill and decode", 40.0)
    assert (other.as_json()["phase"], other.as_json()["detection_ms"]) == ("idle", None)


def test_every_kind_of_request_has_a_name_of_its_own():
    assert len({case.name for case in CASES}) == len(CASES)
    assert set(TARGETS) == {"engine", "sidecar", "executor", "peer", "both"}


def test_the_report_sums_over_its_cases():
    cases = {"a": Counter(answers=3, resumed=2, resumes=5), "b": Counter(answers=4, resumed=1, resumes=1)}
    report = Result([], [], per_case=cases).as_json()
    assert report["streams"]["resumed"] == 3
    assert report["cases"]["a"]["resumes"] == 5


def test_detection_is_told_by_what_died():
    def kill(parts, *heard_ms):
        resumes = [
            {"lost_at_ms": at, "gap_ms": None, "decision_ms": 1, "delivered_tokens": 1} for at in heard_ms
        ]
        return Kill("engine", "any", 0.0, ("executor-0",), parts, 1, resumes)

    found = detections(
        [kill("engine", 10.0, 30.0), kill("engine", 20.0), kill("sidecar"), kill("EngineCore", 7)]
    )
    assert found == {
        "EngineCore": {"kills": 1, "median_ms": 7, "p95_ms": 7, "slowest_ms": 7},
        "engine": {"kills": 2, "median_ms": 25.0, "p95_ms": 30.0, "slowest_ms": 30.0},
    }
