"""When the process should be started again, and what its metrics say."""

from time import monotonic

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from superinfer_kube.errors import Unavailable
from superinfer_kube.informer import Trouble
from superinfer_operator.hosting.metrics import OperatorCollector
from superinfer_operator.hosting.runtime import SILENT_S, STUCK_S, Runtime
from superinfer_operator.settings import OperatorSettings


class NoClient:
    """A client nobody calls."""

    requests = 7


@pytest.fixture
async def runtime():
    made = Runtime(NoClient(), OperatorSettings(namespace="system"))
    for informer in made.cluster.informers:
        informer.synced.set()
    return made


def test_it_is_ready_once_everything_was_looked_at(runtime):
    assert not runtime.ready
    runtime.loop.last_good_s = monotonic()
    assert runtime.ready
    runtime.cluster.pods.synced.clear()
    assert not runtime.ready


class TestStandingBy:
    """A replica that is not elected."""

    @pytest.fixture
    async def standing_by(self):
        made = Runtime(NoClient(), OperatorSettings(namespace="system", candidate="a"))
        for informer in made.cluster.informers:
            informer.synced.set()
        return made

    def test_it_is_ready_once_everything_is_known(self, standing_by):
        assert standing_by.ready
        standing_by.cluster.pods.synced.clear()
        assert not standing_by.ready

    def test_once_elected_it_is_ready_after_a_round(self, standing_by):
        standing_by.election.leads = True
        assert not standing_by.ready

    def test_it_counts_nothing_that_the_other_counts(self, standing_by):
        registry = CollectorRegistry()
        registry.register(OperatorCollector(standing_by))
        text = generate_latest(registry).decode()
        assert "superinfer_operator_leads 0.0" in text
        assert "superinfer_operator_contracts" not in text
        standing_by.election.leads = True
        assert "superinfer_operator_contracts" in generate_latest(registry).decode()


def test_a_quiet_minute_is_no_reason_to_be_killed(runtime):
    assert runtime.unhealthy() == ""


def test_a_watch_that_went_silent_is(runtime):
    runtime.cluster.pods.heard_s -= SILENT_S + 1
    assert "silent" in runtime.unhealthy()


def test_an_api_server_that_is_away_is_not(runtime):
    for informer in runtime.cluster.informers:
        informer.heard_s -= SILENT_S + 1
        informer._trouble = Trouble(monotonic(), "refused", Unavailable("refused"))
    assert runtime.unhealthy() == ""


def test_a_round_that_never_ends_is(runtime):
    runtime.loop.running_since_s = monotonic() - STUCK_S - 1
    assert "round" in runtime.unhealthy()


def test_metrics_are_there_from_the_start(runtime):
    registry = CollectorRegistry()
    registry.register(OperatorCollector(runtime))
    text = generate_latest(registry).decode()
    for line in (
        "superinfer_operator_api_requests_total 7.0",
        "superinfer_operator_leads 1.0",
        "superinfer_operator_synced 1.0",
        "superinfer_operator_watches_away 0.0",
        'superinfer_operator_contracts{ready="True"} 0.0',
    ):
        assert line in text
