"""The Secrets of certificates over whole rounds: made before pods, left to others, made again, forgotten."""

import asyncio
import base64
from dataclasses import replace

import pytest

from reconciling.world import SECRETS, SETTINGS, World
from superinfer_kube.errors import Forbidden
from superinfer_operator.reconciling.reconciler import NotWritten

THEIRS = {"metadata": {"name": "theirs-executor-tls", "namespace": "shop"}, "data": {"tls.crt": "eA=="}}


@pytest.fixture
def world():
    made = World(replace(SETTINGS, manage_certificates=True, pods=replace(SETTINGS.pods, tls=True)))
    made.node("n1")
    return made


def secrets(world):
    return {key[1:]: document for key, document in world.objects.items() if key[0] == "secrets"}


async def test_they_are_issued_before_pods_and_left_to_others_where_they_are_theirs(world):
    world.put(SECRETS, THEIRS)
    world.pool(replicas=1)
    world.pool(name="theirs", replicas=1)
    await world.settle()
    found = secrets(world)
    assert set(found["shop", "p-executor-tls"]["data"]) == {"tls.crt", "tls.key", "ca.crt"}
    assert found["shop", "p-executor-tls"]["metadata"]["ownerReferences"][0]["name"] == "p"
    assert {("system", "superinfer-ca"), ("system", "superinfer-ingress-tls")} <= set(found)
    assert found["shop", "theirs-executor-tls"]["data"] == {"tls.crt": "eA=="}
    assert world.calls.index("create secrets p-executor-tls") < world.calls.index("create pods p-0-1")


async def test_what_somebody_else_kept_is_made_again_once_it_is_gone(world):
    world.put(SECRETS, THEIRS)
    world.pool(name="theirs", replicas=1)
    await world.settle()
    world.drop(SECRETS, "shop", "theirs-executor-tls")
    wake_s = await world.reconciler.round()
    assert wake_s is not None, "nothing would ever look again"
    world.pass_time(wake_s)
    await world.settle()
    assert set(secrets(world)["shop", "theirs-executor-tls"]["data"]) == {"tls.crt", "tls.key", "ca.crt"}
    assert await world.reconciler.round() is None, "nobody else's is left to look at"


async def test_somebody_elses_is_not_looked_at_in_every_round(world):
    world.put(SECRETS, THEIRS)
    world.pool(name="theirs", replicas=1)
    await world.settle()
    reads = []
    get = world.get

    async def counted(resource, name, namespace=None):
        reads.append(name)
        return await get(resource, name, namespace)

    world.get = counted
    await world.round(5)
    assert reads == []


async def test_an_authority_nobody_can_read_is_no_reason_for_round_after_round(world):
    world.put(SECRETS, THEIRS)
    world.pool(name="theirs", replicas=1)
    await world.settle()
    world.drop(SECRETS, "system", "superinfer-ca")
    metadata = {"name": "superinfer-ca", "namespace": "system"}
    world.put(SECRETS, {"metadata": metadata, "data": {"tls.crt": "eA=="}})
    world.pass_time(120)
    assert await world.reconciler.round() is None


async def test_pools_that_are_gone_leave_nothing_in_memory(world):
    keeper = world.reconciler._certificates
    for number in range(3):
        theirs = {"name": f"theirs{number}-executor-tls", "namespace": "shop"}
        world.put(SECRETS, {"metadata": theirs})
        for name in (f"theirs{number}", f"ours{number}"):
            world.pool(name=name, replicas=0)
            await world.settle()
            world.delete_pool(name)
            await world.settle()
    assert {key.name for key in (*keeper._good, *keeper._foreign)} == {"superinfer-ingress-tls"}


async def test_a_pool_where_the_operator_may_keep_no_secret_is_told_so_and_nothing_is_tried():
    covered = frozenset({"system", "shop"})
    pods = replace(SETTINGS.pods, tls=True, tls_namespaces=covered)
    world = World(replace(SETTINGS, manage_certificates=True, secret_namespaces=covered, pods=pods))
    world.node("n1")
    world.pool(namespace="shop")
    world.pool(namespace="bank")
    keys = {"superinfer.dev/api-keys": "true"}
    for namespace in ("shop", "bank"):
        metadata = {"name": "keys", "namespace": namespace, "labels": keys}
        world.put(SECRETS, {"metadata": metadata, "data": {"me": "c2VjcmV0"}})
    await world.settle()
    assert world.conditions("chipletpools", "p", "bank")["Accepted"] == ("False", "NamespaceNotCovered")
    assert world.conditions("chipletpools", "p", "shop")["Accepted"] == ("True", "Accepted")
    assert {pod["metadata"]["namespace"] for pod in world.pods()} == {"shop"}
    assert ("bank", "p-executor-tls") not in secrets(world)
    assert ("shop", "p-executor-tls") in secrets(world)
    digests = base64.b64decode(secrets(world)["system", "superinfer-api-keys"]["data"]["keys.yaml"]).decode()
    assert ("shop/keys/me" in digests, "bank/keys/me" in digests) == (True, False)


async def test_one_namespace_that_refuses_costs_the_others_nothing(world):
    create = world.create

    async def refusing(resource, document):
        namespace = document["metadata"]["namespace"]
        if resource is SECRETS and namespace == "closed":
            raise Forbidden("no Secrets here", status=403, reason="Forbidden")
        for _ in range(0 if namespace == "shut" else 5):
            # These are still under way when the others fail.
            await asyncio.sleep(0)
        return await create(resource, document)

    async def refusing_reads(resource, name, namespace=None):
        if resource is SECRETS and namespace == "shut":
            raise Forbidden("no Secrets here", status=403, reason="Forbidden")
        return await get(resource, name, namespace)

    get, world.get, world.create = world.get, refusing_reads, refusing
    world.put(SECRETS, {"metadata": {"name": "a-executor-tls", "namespace": "shut"}})
    world.pool(name="a", namespace="shut")
    world.pool(name="b", namespace="closed")
    world.pool(name="z", namespace="shop")
    with pytest.raises(NotWritten):
        await world.round()
    assert ("shop", "z-executor-tls") in secrets(world)
    assert ("system", "superinfer-ingress-tls") in secrets(world)
