"""Which changes matter, and how soon: heartbeats must not keep the operator busy."""

import asyncio
from dataclasses import dataclass, field, replace

import pytest

from superinfer_core.placement import ExecutorPhase
from superinfer_kube.informer import Change, ChangeKind, Key
from superinfer_operator.watching.cluster import Cluster, Urgency
from superinfer_operator.watching.pods import ExecutorPod, ForeignPod

KEY = Key("shop", "x")


@dataclass
class Script:
    """Changes as an informer would tell them."""

    told: list[Change]
    synced: asyncio.Event = field(default_factory=asyncio.Event)

    async def changes(self):
        known = {}
        for change in self.told:
            if change.kind is ChangeKind.SYNCED:
                self.synced.set()
            former = known.pop(change.key, None)
            if change.kind is not ChangeKind.DELETED:
                known[change.key] = change.object
            yield replace(change, former=former)


def executor(phase=ExecutorPhase.PENDING, uid="u", **more):
    return ExecutorPod("shop", "x", uid, "shop/p", 0, 1, "r", {"node": "n"}, phase, **more)


def pokes(*told, pods=False):
    found = []
    cluster = Cluster(None, namespace="system", changed=found.append)
    script = Script([Change(ChangeKind.SYNCED), *told])

    async def follow():
        await (cluster._follow_pods(script) if pods else cluster._follow(script))

    asyncio.run(follow())
    assert found[0] is Urgency.NOW, "once everything is known there is something to look at"
    return cluster, found[1:]


@pytest.mark.parametrize(
    ("told", "want"),
    [
        pytest.param([Change(ChangeKind.ADDED, KEY, "a")], 1, id="something new"),
        pytest.param(
            [Change(ChangeKind.ADDED, KEY, "a"), Change(ChangeKind.MODIFIED, KEY, "a")],
            1,
            id="a heartbeat: written again, the same facts",
        ),
        pytest.param(
            [Change(ChangeKind.ADDED, KEY, "a"), Change(ChangeKind.MODIFIED, KEY, "b")], 2, id="other facts"
        ),
        pytest.param(
            [Change(ChangeKind.ADDED, KEY, "a"), Change(ChangeKind.DELETED, KEY, "a")], 2, id="gone"
        ),
        pytest.param(
            [
                Change(ChangeKind.ADDED, KEY, "a"),
                Change(ChangeKind.DELETED, KEY, "a"),
                Change(ChangeKind.ADDED, KEY, "a"),
            ],
            3,
            id="gone and made anew just so",
        ),
    ],
)
def test_what_is_worth_a_look(told, want):
    assert len(pokes(*told)[1]) == want


def test_what_is_told_before_everything_is_known_waits_for_that():
    found = []
    cluster = Cluster(None, namespace="system", changed=found.append)
    asyncio.run(cluster._follow(Script([Change(ChangeKind.ADDED, KEY, "a")])))
    assert found == []


def test_an_executor_is_looked_at_now_and_another_pod_soon():
    _, ours = pokes(Change(ChangeKind.ADDED, KEY, executor()), pods=True)
    _, theirs = pokes(Change(ChangeKind.ADDED, KEY, ForeignPod("n", (("cpu", 100),))), pods=True)
    assert (ours, theirs) == ([Urgency.NOW], [Urgency.SOON])


def test_another_pod_that_changes_without_holding_more_is_not_looked_at():
    pod = ForeignPod("n", (("cpu", 100),))
    _, found = pokes(Change(ChangeKind.ADDED, KEY, pod), Change(ChangeKind.MODIFIED, KEY, pod), pods=True)
    assert len(found) == 1


def test_what_others_hold_is_what_their_pods_on_nodes_hold():
    one, two = ForeignPod("n", (("cpu", 100), ("nvidia.com/gpu", 1))), ForeignPod("n", (("cpu", 50),))
    told = [
        Change(ChangeKind.ADDED, Key("a", "1"), one),
        Change(ChangeKind.ADDED, Key("a", "2"), two),
        Change(ChangeKind.ADDED, Key("a", "3"), ForeignPod("", ())),
    ]
    cluster, _ = pokes(*told, pods=True)
    assert cluster.held_by_others() == {("n", "cpu"): 150, ("n", "nvidia.com/gpu"): 1, ("n", "pods"): 2}
    cluster, _ = pokes(*told, Change(ChangeKind.DELETED, Key("a", "1"), one), pods=True)
    assert cluster.held_by_others() == {("n", "cpu"): 50, ("n", "pods"): 1}


def test_an_executor_that_served_before_and_does_not_now_is_not_one_that_has_yet_to_start():
    cluster, _ = pokes(
        Change(ChangeKind.ADDED, KEY, executor(ExecutorPhase.READY)),
        Change(ChangeKind.MODIFIED, KEY, executor(ExecutorPhase.PENDING)),
        pods=True,
    )
    assert cluster.executors(0)[0].phase is ExecutorPhase.NOT_READY
    assert cluster.executors_of("shop/p")[0].phase is ExecutorPhase.NOT_READY


def created(uid="u"):
    labels = {
        "app.kubernetes.io/managed-by": "superinfer-operator",
        "superinfer.dev/pool": "p",
        "superinfer.dev/slot": "0",
        "superinfer.dev/incarnation": "1",
    }
    metadata = {"name": "x", "namespace": "shop", "uid": uid, "labels": labels}
    return {"metadata": metadata, "spec": {}, "status": {}}


def test_a_pod_made_just_now_is_known_before_its_watch_tells_it_and_forgotten_if_it_never_does():
    cluster = Cluster(None, namespace="system", changed=lambda urgency: None)
    cluster.note_pod(created(), 100.0)
    assert [pod.name for pod in cluster.executors(101.0)] == ["x"]
    assert [pod.name for pod in cluster.executors_of("shop/p")] == ["x"]
    assert cluster.executors(1000.0) == []


def test_what_is_being_deleted_is_known_at_once():
    cluster, _ = pokes(Change(ChangeKind.ADDED, KEY, executor()), pods=True)
    cluster.note_deleting(executor(uid="another"))
    assert not cluster.executors(0)[0].terminating
    cluster.note_deleting(executor())
    assert cluster.executors(0)[0].terminating
