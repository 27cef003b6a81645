"""The snapshot: what counts as ours, and what as somebody else's."""

from superinfer_core.placement import ExecutorPhase, Node, PlannerMemory, PlannerSettings
from superinfer_core.pods.settings import PodSettings
from superinfer_operator.placing.setup import set_up
from superinfer_operator.placing.snapshot import Gathered, make_snapshot
from superinfer_operator.watching.pods import ExecutorPod
from superinfer_operator.watching.pools import pool_record


def setup(name, **spec):
    made = {"model": {"name": "m"}, "engine": {"type": "Stub"}, "chiplet": {"shape": "GPU"}} | spec
    document = {"metadata": {"name": name, "namespace": "shop", "uid": name, "generation": 1}, "spec": made}
    return set_up(pool_record(document), {}, PodSettings())


def pod(pool, slot=0, namespace="shop", **more):
    chiplet = {"node": "n1", "resource": "nvidia.com/gpu", "count": 1, "devices": ["GPU-1"], "recreations": 1}
    given = {
        "requests": {"nvidia.com/gpu": 1, "cpu": 150},
        "phase": ExecutorPhase.READY,
        "revision": "r",
        "chiplet": chiplet,
    } | more
    return ExecutorPod(
        namespace=namespace,
        name=f"{pool}-{slot}-1",
        uid=f"{namespace}-{pool}-{slot}",
        pool=f"{namespace}/{pool}",
        slot=slot,
        incarnation=1,
        **given,
    )


def snapshot(setups, pods, held=None, given=None):
    return make_snapshot(
        setups=setups,
        nodes=[Node("n1")],
        topologies={},
        executors=pods,
        held=held or {},
        given=given or {},
        memory=PlannerMemory(),
        settings=PlannerSettings(),
    )


def test_an_executor_is_planned_with_what_is_known_of_its_device():
    made = snapshot([setup("p")], [pod("p")], given={"shop/p-0-1": ("GPU-9",)})
    running = made.executors[0]
    assert (running.planned_devices, running.devices, running.recreations) == (("GPU-1",), ("GPU-9",), 1)
    assert (running.resource, running.count) == ("nvidia.com/gpu", 1)
    assert running.requests == {"cpu": 150, "pods": 1}, "the chiplet itself is not counted twice"


def test_executors_of_one_name_in_two_namespaces_are_two():
    made = snapshot([], [pod("p", namespace="a"), pod("p", namespace="b")])
    assert len({running.name for running in made.executors}) == 2


def test_a_pool_with_a_mistake_keeps_its_executors_and_what_they_hold_is_taken():
    made = snapshot([setup("p", podTemplate={"spec": {"nodeName": "x"}})], [pod("p")], {("n1", "cpu"): 100})
    assert made.pools == ()
    assert made.executors == ()
    use = {use.resource: use for use in made.foreign}
    assert use["nvidia.com/gpu"].amount == 1
    assert use["nvidia.com/gpu"].devices == ("GPU-1",)
    assert use["cpu"].amount == 250


def test_executors_without_a_pool_are_planned_so_that_they_end():
    made = snapshot([], [pod("gone")])
    assert [running.pool for running in made.executors] == ["shop/gone"]


def test_what_has_not_changed_is_the_same_object_in_the_next_snapshot():
    pods, nodes, gathered = [pod("p", 0), pod("p", 1)], [Node("n1"), Node("n2")], Gathered()

    def gather():
        return make_snapshot(
            setups=[],
            nodes=nodes,
            topologies={},
            executors=pods,
            held={("n1", "cpu"): 100},
            given={},
            memory=PlannerMemory(),
            settings=PlannerSettings(),
            gathered=gathered,
        )

    first = gather()
    pods[1], nodes[1] = pod("p", 1, terminating=True), Node("n2", schedulable=False)
    second = gather()
    assert second.nodes[0] is first.nodes[0]
    assert second.executors[0] is first.executors[0]
    assert second.foreign is first.foreign
    assert (second.nodes[1].schedulable, second.executors[1].terminating) == (False, True)
