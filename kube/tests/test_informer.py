"""Watches against a real API server, and against one that goes away, forgets and comes back."""

import asyncio
import contextlib

import pytest

from superinfer_kube.client import KubeClient
from superinfer_kube.informer import ChangeKind, Informer, Key, Patience
from superinfer_kube.resources import CONFIG_MAPS
from superinfer_kube.testing.apiserver import ApiServer, apiserver_missing, running_apiserver

pytestmark = pytest.mark.apiserver

IMPATIENT = Patience(first_pause_s=0.05, longest_pause_s=0.5)


def colour_of(document):
    return document["data"]["colour"]


def config_map(namespace, name, colour, **labels):
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "data": {"colour": colour},
    }


class Followed:
    """An informer that a task reads, and what it said."""

    def __init__(self, client, namespace, **more):
        self.informer = Informer(client, CONFIG_MAPS, colour_of, namespace=namespace, **more)
        self.changes = []
        self._changed = asyncio.Condition()
        self._task = asyncio.create_task(self._read())

    async def _read(self):
        async for change in self.informer.changes():
            async with self._changed:
                self.changes.append(change)
                self._changed.notify_all()

    @property
    def told(self):
        return [(change.kind.value, change.key.name, change.object) for change in self.changes]

    async def until(self, told):
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(lambda: told(self.told))
        return self.told

    async def close(self):
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


@pytest.fixture
async def client(apiserver):
    client = KubeClient.connect(field_manager="tests", kubeconfig=apiserver.kubeconfig)
    yield client
    await client.close()


@pytest.fixture
async def follow():
    followed = []

    def start(client, namespace, **more):
        followed.append(Followed(client, namespace, **more))
        return followed[-1]

    yield start
    for one in followed:
        await one.close()


async def test_what_is_there_comes_first_then_every_change_once(client, namespace, follow):
    await client.create(CONFIG_MAPS, config_map(namespace, "old", "red"))
    watched = follow(client, namespace)
    await watched.until(lambda told: len(told) == 2)
    await client.create(CONFIG_MAPS, config_map(namespace, "new", "blue"))
    await client.patch(CONFIG_MAPS, "new", namespace, {"data": {"colour": "green"}})
    await client.delete(CONFIG_MAPS, "old", namespace)
    told = await watched.until(lambda told: len(told) == 5)
    assert told == [
        ("Added", "old", "red"),
        ("Synced", "", None),
        ("Added", "new", "blue"),
        ("Modified", "new", "green"),
        ("Deleted", "old", "red"),
    ]
    assert dict(watched.informer.objects) == {Key(namespace, "new"): "green"}


async def test_a_change_of_what_nobody_reads_does_not_matter(client, namespace, follow):
    await client.create(CONFIG_MAPS, config_map(namespace, "a", "red"))
    watched = follow(client, namespace)
    await watched.until(lambda told: len(told) == 2)
    await client.patch(CONFIG_MAPS, "a", namespace, {"data": {"size": "small"}})
    await client.patch(CONFIG_MAPS, "a", namespace, {"data": {"colour": "blue"}})
    await watched.until(lambda told: len(told) == 4)
    assert [(c.former, c.object, c.matters) for c in watched.changes[2:]] == [
        ("red", "red", False),
        ("red", "blue", True),
    ]


async def test_a_selector_sees_what_enters_and_leaves(client, namespace, follow):
    watched = follow(client, namespace, labels="kind=seen")
    await watched.until(lambda told: len(told) == 1)
    await client.create(CONFIG_MAPS, config_map(namespace, "a", "red", kind="seen"))
    await client.create(CONFIG_MAPS, config_map(namespace, "b", "red", kind="other"))
    await client.patch(CONFIG_MAPS, "a", namespace, {"metadata": {"labels": {"kind": "other"}}})
    await client.patch(CONFIG_MAPS, "b", namespace, {"metadata": {"labels": {"kind": "seen"}}})
    told = await watched.until(lambda told: len(told) == 4)
    assert told[1:] == [("Added", "a", "red"), ("Deleted", "a", "red"), ("Added", "b", "red")]


async def test_what_cannot_be_read_is_told_and_takes_nothing_else_along(client, namespace, follow):
    await client.create(
        CONFIG_MAPS, {"metadata": {"name": "bad", "namespace": namespace}, "data": {"size": "1"}}
    )
    await client.create(CONFIG_MAPS, config_map(namespace, "good", "red"))
    watched = follow(client, namespace)
    await watched.until(lambda told: len(told) == 3)
    assert "colour" in next(c.problem for c in watched.changes if c.key.name == "bad")
    assert dict(watched.informer.objects) == {Key(namespace, "good"): "red"}
    await client.patch(CONFIG_MAPS, "bad", namespace, {"data": {"colour": "blue"}})
    told = await watched.until(lambda told: len(told) == 4)
    assert told[-1] == ("Modified", "bad", "blue")


async def test_a_text_with_unusual_line_ends_is_one_object(client, namespace, follow):
    watched = follow(client, namespace)
    await watched.until(lambda told: len(told) == 1)
    colour = "re\u0085d\u2028\x1c\u2029"
    await client.create(CONFIG_MAPS, config_map(namespace, "odd", colour))
    told = await watched.until(lambda told: len(told) == 2)
    assert told[-1] == ("Added", "odd", colour)


async def test_streams_the_server_ends_go_on_from_where_they_were(client, namespace, follow):
    watched = follow(client, namespace, patience=Patience(stream_s=(1, 1), first_pause_s=0.05))
    await watched.until(lambda told: len(told) == 1)
    before = client.requests
    while client.requests < before + 3:
        await asyncio.sleep(0.1)
    await client.create(CONFIG_MAPS, config_map(namespace, "late", "red"))
    told = await watched.until(lambda told: len(told) == 2)
    assert told[-1] == ("Added", "late", "red")
    assert watched.informer.relists == 1


async def test_a_stream_that_is_silent_is_opened_again(client, namespace, follow):
    """A connection that is dead without saying so; a real one is never silent for longer than a bookmark."""
    watched = follow(client, namespace, patience=Patience(silence_s=0.5, first_pause_s=0.05))
    await watched.until(lambda told: len(told) == 1)
    before = client.requests
    while client.requests < before + 2:
        await asyncio.sleep(0.05)
    await client.create(CONFIG_MAPS, config_map(namespace, "late", "red"))
    assert (await watched.until(lambda told: len(told) == 2))[-1] == ("Added", "late", "red")


@pytest.fixture(scope="module")
def own_apiserver(tmp_path_factory):
    """One that may be stopped."""
    if absent := apiserver_missing():
        pytest.skip(f"{', '.join(absent)} not built: make apiserver")
    with running_apiserver(tmp_path_factory.mktemp("own")) as server:
        yield server


async def stopped(server: ApiServer):
    await asyncio.to_thread(server.stop_server)


async def started(server: ApiServer):
    await asyncio.to_thread(server.start_server)


async def test_the_server_goes_away_and_comes_back(own_apiserver, follow):
    client = KubeClient.connect(field_manager="tests", kubeconfig=own_apiserver.kubeconfig)
    await client.create(CONFIG_MAPS, config_map("default", "kept", "red"))
    watched = follow(client, "default", patience=IMPATIENT)
    await watched.until(lambda told: ("Synced", "", None) in told)
    await stopped(own_apiserver)
    async with asyncio.timeout(30):
        while watched.informer.trouble is None:
            await asyncio.sleep(0.05)
    assert watched.informer.objects[Key("default", "kept")] == "red"
    assert watched.informer.trouble.why
    await started(own_apiserver)
    await client.patch(CONFIG_MAPS, "kept", "default", {"data": {"colour": "blue"}})
    told = await watched.until(lambda told: ("Modified", "kept", "blue") in told)
    assert watched.informer.trouble is None
    assert [kind for kind, name, _ in told if name == "kept"] == ["Added", "Modified"]
    await client.close()


async def test_a_version_that_is_too_old_is_a_new_listing_with_its_deletions(own_apiserver, follow):
    """What happened while nobody listened: one changed, one gone, one new."""
    client = KubeClient.connect(field_manager="tests", kubeconfig=own_apiserver.kubeconfig)
    for name in ("stays", "changes", "goes"):
        await client.create(CONFIG_MAPS, config_map("default", name, "red"))
    watched = follow(client, "default", patience=IMPATIENT)
    await watched.until(lambda told: ("Synced", "", None) in told)
    known = len(watched.told)
    # A version of another history, as after a restore from a backup: the server cannot go on from it.
    watched.informer._version = "1"
    await stopped(own_apiserver)
    await started(own_apiserver)
    watched.informer._version = "1"
    await client.delete(CONFIG_MAPS, "goes", "default")
    await client.patch(CONFIG_MAPS, "changes", "default", {"data": {"colour": "blue"}})
    await client.create(CONFIG_MAPS, config_map("default", "comes", "red"))
    told = await watched.until(lambda told: len(told) >= known + 3)
    assert sorted(told[known:]) == [
        ("Added", "comes", "red"),
        ("Deleted", "goes", "red"),
        ("Modified", "changes", "blue"),
    ]
    assert set(watched.informer.objects) >= {Key("default", name) for name in ("stays", "changes", "comes")}
    assert all(change.kind is not ChangeKind.SYNCED for change in watched.changes[known:])
    assert watched.informer.relists >= 2  # once more where the server was not ready for the first
    await client.close()
