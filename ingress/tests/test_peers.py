"""Sidecars learn of each other through the ingress; what an executor is away for is remembered."""

import asyncio
from math import inf
from types import SimpleNamespace

import pytest

from superinfer_ingress.executors.outages import Outages
from superinfer_proto.v1 import slo_pb2, work_pb2


def silent(_submit):
    return []


async def test_every_sidecar_is_told_its_pool_on_connect(rig, kit, scripted):
    first, one = await scripted(silent)
    second, two = await scripted(silent)
    other, three = await scripted(silent)
    executors = [
        SimpleNamespace(settings={**one.settings, "faultDomain": ["zone/a", "node/n1"]}),
        SimpleNamespace(settings={**two.settings, "faultDomain": ["zone/a", "node/n2"]}),
        SimpleNamespace(settings={**three.settings, "pool": "another"}),
    ]
    await asyncio.to_thread(lambda: rig.ingress(executors))
    for sidecar in (first, second, other):
        await asyncio.to_thread(kit.until, lambda each=sidecar: each.peers, "the peers")
    for sidecar in (first, second):
        (told,) = sidecar.peers
        assert [(p.executor, p.address, list(p.fault_domain)) for p in told.peers] == [
            (one.name, one.address, ["zone/a", "node/n1"]),
            (two.name, two.address, ["zone/a", "node/n2"]),
        ]
    assert [peer.executor for peer in other.peers[0].peers] == [three.name]


async def test_a_resume_names_who_may_have_the_blocks(rig, kit, scripted):
    def fails_once(submit):
        last = work_pb2.Output(final=True, chunk=b"data: [DONE]\n\n")
        if submit.attempt == 1:
            last = work_pb2.Output(final=True, error=slo_pb2.Error(code="engine_failed", message="it broke"))
        token = work_pb2.Output(first_token=submit.attempt - 1, token_ids=[7], chunk=b'data: {"n":1}\n\n')
        return kit.admitted(submit, token, last)

    def resumable(submit):
        messages = fails_once(submit)
        messages[0].decisions[0].resumable = True
        return messages

    sidecars = [await scripted(resumable) for _ in range(3)]
    by_name = {executor.name: (sidecar, executor) for sidecar, executor in sidecars}
    for sidecar, executor in sidecars:
        peer = next(name for name in sorted(by_name) if name != executor.name)
        sidecar.checkpoint_peers = [executor.name, peer]
    executors = [executor for _, executor in sidecars]
    ingress = await asyncio.to_thread(lambda: rig.ingress(executors))
    await asyncio.to_thread(
        kit.until, lambda: ingress.metric("superinfer_executor_serving") == 3, "all executors"
    )
    answer = await asyncio.to_thread(lambda: ingress.chat(8, stream=True))
    assert answer.content.endswith(b"[DONE]\n\n")
    began, left = next(
        (sidecar, executor) for sidecar, executor in sidecars if [s.attempt for s in sidecar.submits] == [1]
    )
    holder = began.checkpoint_peers[1]
    taken_by = next(
        executor.name for sidecar, executor in sidecars if 2 in [s.attempt for s in sidecar.submits]
    )
    assert taken_by == holder
    (submit,) = by_name[holder][0].submits
    assert list(submit.checkpoint_holders) == [left.address, by_name[holder][1].address]


@pytest.mark.parametrize(
    ("notes", "now_ms", "left_ms"),
    [
        pytest.param([], 0, 0, id="nothing known: it is there"),
        pytest.param([(0, False)], 500, inf, id="it has never come back before"),
        pytest.param([(0, False), (800, True)], 900, 0, id="it is back"),
        pytest.param([(0, False), (800, True), (1000, False)], 1100, 700, id="as long as the last time"),
        pytest.param([(0, False), (800, True), (1000, False)], 9000, 0, id="longer than ever"),
        pytest.param(
            [(0, False), (800, True), (1000, False), (1400, True), (2000, False)], 2000, 600, id="the middle"
        ),
        pytest.param([(0, False), (100, False), (800, True), (900, False)], 900, 800, id="told twice"),
    ],
)
def test_outages(notes, now_ms, left_ms):
    outages = Outages()
    for at_ms, serving in notes:
        outages.note(at_ms, serving=serving)
    assert outages.left_ms(now_ms) == left_ms
