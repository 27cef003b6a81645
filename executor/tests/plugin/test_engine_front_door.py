"""Promises nobody can read: refused where a client hears it, harmless where none can."""

from pathlib import Path
from typing import Any

import pytest

from superinfer_executor.plugin.front_door import serves_promises
from superinfer_executor.plugin.step_facts import MAX_DATAGRAM_BYTES, StepFactsSender, bind_step_facts_socket
from superinfer_executor.plugin.step_facts import decode_step_facts as decode

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]


@pytest.mark.parametrize(
    "value", ["fast", -5, 0, pytest.param(10**18, id="10^18"), pytest.param([1], id="a list")]
)
def test_a_promise_that_cannot_be_read_is_refused_by_name(engine: Any, prompt_of: Any, value: Any) -> None:
    from vllm.exceptions import VLLMClientError

    with pytest.raises(VLLMClientError, match=r"vllm_xargs\.slo_ttft_ms"):
        engine.submit("one", prompt_of(4), slo_ttft_ms=value)
    assert engine.scheduler.requests == {}


def test_past_the_front_door_it_is_served_as_best_effort_and_counted(
    engine: Any, prompt_of: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    core = engine.llm.llm_engine.engine_core
    add_request = core.add_request

    def add_garbage(request: Any) -> None:
        request.sampling_params.extra_args = {"slo_ttft_ms": "fast", "slo_rank": 0}
        add_request(request)

    monkeypatch.setattr(core, "add_request", add_garbage)
    before = engine.scheduler.invalid_promises
    for name in ("one", "two"):
        engine.submit(name, prompt_of(4), max_tokens=2)
    assert engine.scheduler._tracked["one"].promise.slo.best_effort
    engine.run()
    assert engine.finished == {"one": "length", "two": "length"}
    assert engine.scheduler.invalid_promises == before + 2


@pytest.mark.parametrize(
    ("scheduler_cls", "expected"),
    [
        pytest.param("superinfer_executor.plugin.scheduler.SlackScheduler", True, id="ours by its path"),
        pytest.param(None, False, id="vLLM's own"),
        pytest.param("somebody.Else", False, id="somebody else's"),
        pytest.param(dict, False, id="somebody else's class"),
    ],
)
def test_engines_with_another_scheduler_never_see_our_checks(scheduler_cls: object, expected: bool) -> None:
    assert serves_promises(scheduler_cls) is expected


def test_a_defect_in_a_decision_costs_the_plan_not_the_engine(
    engine: Any, prompt_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from superinfer_executor.plugin import slack

    def fails(*args: Any, **kwargs: Any) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(slack, "plan_with_room", fails)
        engine.submit("one", prompt_of(4), max_tokens=3, slo_ttft_ms=50)
        engine.run()
    assert engine.finished == {"one": "length"}
    assert engine.scheduler.failed_plans > 0
    engine.scheduler.failed_plans = 0


def test_facts_of_every_step_reach_the_socket(
    engine: Any, prompt_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "facts"
    with bind_step_facts_socket(path) as reader:
        sender = StepFactsSender(str(path))
        monkeypatch.setattr(engine.scheduler, "_facts", sender)
        engine.now_ms += 500.0  # idle time is nobody's
        engine.submit("long", prompt_of(600, 1), max_tokens=2, slo_ttft_ms=60_000)
        engine.step(step_ms=40.0)
        engine.step(step_ms=20.0)
        engine.now_ms += 5.0  # between steps the engine hands outputs on: every token pays for it
        engine.step(step_ms=7.0)
        first, second, third = (fact for _ in range(3) for fact in decode(reader.recv(MAX_DATAGRAM_BYTES)))
        sender.close()

    chunk = engine.steps[0]["tokens"]["long"]
    assert first.prefill_tokens == chunk == first.progress[0].computed_tokens
    assert first.prefill_context_tokens2 == chunk * chunk / 2
    assert first.step_ms == pytest.approx(40.0)
    assert first.decode_seqs == 0
    assert second.prefill_tokens == 600 - chunk
    assert second.prefill_context_tokens2 == (600 - chunk) * (chunk + (600 - chunk) / 2)
    assert (third.prefill_tokens, third.decode_seqs, third.decode_context_tokens) == (0, 1, 600)
    assert third.step_ms == pytest.approx(12.0)
    assert [fact.step - first.step for fact in (first, second, third)] == [0, 1, 2]
    assert 0 < second.kv_usage < 1
