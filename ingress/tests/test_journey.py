"""What an ingress remembers of requests that may bring engines down: trials, and ends nobody explains."""

from types import SimpleNamespace

import pytest

from superinfer_core.contract.request_slo import best_effort_slo
from superinfer_core.failover.blame import BlamePolicy
from superinfer_ingress.config import ExecutorSettings
from superinfer_ingress.executors.link import ExecutorLink
from superinfer_ingress.inflight import InFlight
from superinfer_ingress.interruption import Cause
from superinfer_ingress.journey import Journey, Trials
from superinfer_ingress.ledger import LedgerBudget
from superinfer_proto.v1 import engine_pb2, work_pb2

POLICY = BlamePolicy.of(4)


def link_to(name, generation):
    link = ExecutorLink(
        ExecutorSettings(name=name, address="unix:/nowhere"), ingress_id="test", version="test"
    )
    link.engine = engine_pb2.EngineInfo(generation=generation)
    link._send_soon = lambda: None
    return link


def journey_on(link, request_id="r"):
    writer = SimpleNamespace(begun=False, on_gone=None)
    request = InFlight(request_id, writer, stream=True, budget=LedgerBudget(1000))
    request.begin_attempt(link)
    return Journey(request, SimpleNamespace(), best_effort_slo(None))


def dies_under(journey, link, now_ms, generation):
    """The engine ends under it, and the next attempt begins on its successor."""
    request = journey.request
    request.begun = True
    request.interrupt(Cause.ENGINE_FAILED, "it broke", now_ms)
    journey.cut(request.interruption)
    link.ends.note(now_ms, link.engine.generation, asked_to=False)
    link.ends.note(now_ms, generation, asked_to=False)
    link.engine = engine_pb2.EngineInfo(generation=generation)
    journey.begins(link)
    request.begin_attempt(link)


def speaks(journey):
    journey.request.on_output(work_pb2.Output(token_ids=[1], chunk=b"x"), 1.0)


OVER = {
    "it speaks": speaks,
    "it is lost again": lambda journey: journey.request.on_executor_lost(1.0),
    "its client leaves": lambda journey: journey.request.on_client_left(),
}


@pytest.mark.parametrize("over", OVER.values(), ids=OVER)
def test_a_trial_lasts_until(over):
    link, trials = link_to("a", "a1"), Trials()
    journey = journey_on(link)
    assert not trials.busy("a")
    trials.begin("a", journey)
    assert trials.busy("a")
    assert not trials.busy("b")
    over(journey)
    assert not trials.busy("a")


def test_a_new_token_clears_what_speaks_against_it():
    link = link_to("a", "a0")
    journey = journey_on(link)
    for number in range(3):
        dies_under(journey, link, float(number), f"a{number + 1}")
    assert (journey.blame.deaths, POLICY.alone(journey.blame)) == (3, True)
    speaks(journey)
    dies_under(journey, link, 9.0, "a9")
    assert (journey.blame.deaths, POLICY.alone(journey.blame)) == (0, False)


def test_engines_that_end_with_no_suspect_aboard_excuse_it():
    here, there, trials = link_to("a", "a0"), link_to("b", "b0"), Trials()
    there.ends.note(0.0, "b0", asked_to=False)
    there.ends.note(5.0, "b1", asked_to=False)
    journey = journey_on(here)
    for number in range(1, 6):
        dies_under(journey, here, 10.0 * number, f"a{number}")
    links = [here, there]
    assert journey.unexplained(links, trials) == 0, "its own do not count, nor what ended before"
    there.ends.note(60.0, "b2", asked_to=False)
    there.ends.note(61.0, "b3", asked_to=False)
    assert journey.unexplained(links, trials) == 2
    trials.note("b2")
    assert journey.unexplained(links, trials) == 1, "another suspect was aboard one of them"


def test_a_trial_that_is_over_is_not_remembered_for_an_executor_that_is_gone():
    trials = Trials()
    for number in range(50):
        journey = journey_on(link_to(f"pool-{number}", "g"))
        trials.begin(f"pool-{number}", journey)
        speaks(journey)
    assert len(trials._on) <= 1


def test_an_answer_that_ends_with_tokens_it_had_before_goes_on_elsewhere():
    journey = journey_on(link_to("a", "g"))
    speaks(journey)
    journey.request.on_output(
        work_pb2.Output(token_ids=[1], chunk=b"x", finish_reason="stop", final=True), 2.0
    )
    assert journey.request.ending is None
    assert journey.request.interruption is not None, "else nobody would ever end it"
    assert journey.request.interruption.cause is Cause.GAP
