import json

import pytest

from superinfer_core.contract.effective import EffectiveContract
from superinfer_core.contract.fulfilment import RequestOutcome
from superinfer_core.slo import Metric, Objective, Tier
from superinfer_ingress.cluster.attainment import AttainmentPublisher, PodIdentity
from superinfer_ingress.contracts.accounts import Accounts
from superinfer_kube.errors import Unavailable

POD = PodIdentity("ingress-1", "superinfer-system", "uid-1")


class ApiServer:
    """Takes what is applied, or is away."""

    def __init__(self):
        self.applied = []
        self.away = False

    async def apply(self, _resource, document):
        if self.away:
            raise Unavailable("nobody answers")
        self.applied.append(document)

    @property
    def counts(self):
        return json.loads(self.applied[-1]["data"]["counts.json"])["contracts"]


class Site:
    def __init__(self):
        self.now_ms = 1000.0
        self.server = ApiServer()
        self.accounts = Accounts(lambda: self.now_ms, 1)
        self.publisher = AttainmentPublisher(
            self.server, POD, self.accounts, clock_ms=lambda: self.now_ms, every_s=30.0
        )

    def serve(self, name="chat", times=1):
        objectives = (Objective(Metric.TTFT, 99, 300),)
        account = self.accounts.of(EffectiveContract("shop", name, Tier.GOLD, 0, objectives))
        for _ in range(times):
            account.record(self.now_ms, RequestOutcome(admitted=True, ttft_ms=10.0, e2e_ms=20.0))


@pytest.fixture
def site():
    return Site()


async def test_only_what_changed_is_written(site):
    site.serve()
    assert await site.publisher.publish()
    site.now_ms += 60_000.0
    assert not await site.publisher.publish()
    site.serve()
    assert await site.publisher.publish()
    assert len(site.server.applied) == 2
    assert site.server.counts["shop/chat"]["offered"] == 2


async def test_it_belongs_to_its_pod(site):
    site.serve()
    await site.publisher.publish()
    metadata = site.server.applied[0]["metadata"]
    assert metadata["name"] == "superinfer-attainment-ingress-1"
    assert metadata["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Pod", "name": "ingress-1", "uid": "uid-1"}
    ]


async def test_contracts_nobody_asked_for_are_left_out(site):
    site.serve("asked")
    site.serve("silent", times=0)
    await site.publisher.publish()
    assert list(site.server.counts) == ["shop/asked"]


async def test_what_could_not_be_written_is_written_later(site):
    site.serve()
    site.server.away = True
    with pytest.raises(Unavailable):
        await site.publisher.publish()
    site.server.away = False
    assert await site.publisher.publish()


async def test_the_busiest_stay_where_not_all_fit(site):
    for number in range(9000):
        site.serve(f"c{number}", times=1 if number else 3)
    await site.publisher.publish()
    text = site.server.applied[0]["data"]["counts.json"]
    assert len(text) < 1_000_000
    assert "shop/c0" in site.server.counts
    assert len(site.server.counts) < 9000
