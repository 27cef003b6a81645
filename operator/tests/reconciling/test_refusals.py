"""What the API server will not take for a pool: told, tried again later, and nobody else's trouble."""

from dataclasses import replace

import pytest

from reconciling.world import PODS, SECRETS, SETTINGS, World
from superinfer_kube.errors import Forbidden, Invalid, Unavailable
from superinfer_kube.resources import POD_DISRUPTION_BUDGETS, SERVICES

QUOTA = Forbidden("exceeded quota: small", status=403, reason="Forbidden")
POLICY = Invalid('admission webhook "policy" denied the request', status=400, reason="BadRequest")
WEBHOOK_AWAY = Unavailable(
    'Internal error occurred: failed calling webhook "policy": connection refused',
    status=500,
    reason="InternalError",
)


class ClosedNamespace(World):
    """A cluster whose namespace `closed` takes no objects of one kind."""

    refused = None
    error = None

    async def create(self, resource, document):
        self._ask(resource, document)
        return await super().create(resource, document)

    async def apply(self, resource, document, *, subresource=None):
        self._ask(resource, document)
        return await super().apply(resource, document, subresource=subresource)

    def _ask(self, resource, document):
        if resource is self.refused and document["metadata"].get("namespace") == "closed":
            self.calls.append(f"refused {resource.plural}")
            raise self.error

    def ready(self, namespace):
        status = self.objects["chipletpools", namespace, "p"]["status"]
        return next(c for c in status["conditions"] if c["type"] == "Ready")


@pytest.fixture
def world():
    made = ClosedNamespace(replace(SETTINGS, manage_certificates=True, pods=replace(SETTINGS.pods, tls=True)))
    made.node("n1")
    return made


@pytest.mark.parametrize(
    ("refused", "error"),
    [
        pytest.param(SERVICES, QUOTA, id="no Service for a quota"),
        pytest.param(POD_DISRUPTION_BUDGETS, QUOTA, id="no budget for a quota"),
        pytest.param(SECRETS, QUOTA, id="no certificate for a quota"),
        pytest.param(SERVICES, POLICY, id="no Service for a policy"),
        pytest.param(SECRETS, WEBHOOK_AWAY, id="no certificate while a webhook is away"),
        pytest.param(PODS, WEBHOOK_AWAY, id="no pods while a webhook is away"),
    ],
)
async def test_it_is_told_tried_again_later_and_costs_the_others_nothing(world, refused, error):
    world.refused, world.error = refused, error
    world.pool(namespace="closed", replicas=1)
    world.pool(namespace="open", replicas=1)
    await world.settle()
    world.run_pods()
    await world.settle()
    told = world.ready("closed")
    assert (told["status"], told["reason"]) == ("False", "ExecutorsFailed")
    assert error.message in told["message"]
    assert world.ready("open")["status"] == "True"
    tries = world.calls.count(f"refused {refused.plural}")
    await world.round(3)
    assert world.calls.count(f"refused {refused.plural}") == tries, "it is not asked for in every round"
    world.refused = None
    world.pass_time(10)
    await world.settle()
    world.run_pods()
    await world.settle()
    assert world.ready("closed")["status"] == "True"


async def test_an_edit_of_the_pool_is_tried_at_once(world):
    world.refused, world.error = SERVICES, POLICY
    world.pool(namespace="closed", replicas=1)
    await world.settle()
    world.refused = None
    world.pool(namespace="closed", replicas=2)
    await world.settle()
    assert ("services", "closed", "p-executors") in world.objects


async def test_a_pool_that_is_deleted_leaves_no_refusal_behind(world):
    world.refused, world.error = SERVICES, QUOTA
    world.pool(namespace="closed", replicas=1)
    await world.settle()
    world.delete_pool(namespace="closed")
    world.run_gone()
    await world.settle()
    world.pass_time(3600)
    assert await world.reconciler.round() is None, "nothing is due by time alone"
