"""Which executor gets a new request: the emptiest that is soon enough for its promise, else the soonest."""

import asyncio

import pytest

from superinfer_proto.v1 import work_pb2

CONTRACTS = {"patient": 10_000, "hurried": 600}


@pytest.mark.parametrize(
    ("contract", "backlog_ms", "shares"),
    [
        pytest.param("patient", 2_000, [3, 3], id="both keep it: spread"),
        pytest.param("hurried", 400, [6, 0], id="one keeps it with ease: there"),
        pytest.param("hurried", 200, [3, 3], id="both do with ease: spread"),
        pytest.param(None, 50, [3, 3], id="nothing promised, both soon: spread"),
        pytest.param(None, 500, [6, 0], id="nothing promised, one slow: the soonest"),
    ],
)
async def test_requests_spread_over_whoever_keeps_their_promise(
    rig, kit, scripted, contract, backlog_ms, shares
):
    """Six requests that go on and on, one after the other; the second executor is thought slower."""
    going_on = work_pb2.Output(first_token=0, token_ids=[0], chunk=b'data: {"n":0}\n\n')
    sidecars, settings = zip(
        *[await scripted(lambda submit: kit.admitted(submit, going_on)) for _ in range(2)], strict=True
    )
    sidecars[1].backlog_ms = backlog_ms
    contracts = [kit.contract(name, objectives={"TTFT": ms}) for name, ms in CONTRACTS.items()]
    ingress = await asyncio.to_thread(lambda: rig.ingress(list(settings), contracts=contracts))
    await asyncio.to_thread(
        lambda: kit.until(lambda: _backlog_ms(ingress, settings[1]) == backlog_ms, "both have reported")
    )
    headers = {} if contract is None else kit.under(contract)
    streams = []
    try:
        for _ in range(6):
            stream = await asyncio.to_thread(lambda: _begin(ingress, kit, headers))
            streams.append(stream)
        assert [len(sidecar.submits) for sidecar in sidecars] == shares
    finally:
        for stream in streams:
            await asyncio.to_thread(stream.close)


def _backlog_ms(ingress, executor):
    return ingress.metric("superinfer_executor_backlog_ms", executor=executor.name)


def _begin(ingress, kit, headers):
    """A stream whose first token is here."""
    asked = ingress.client.build_request(
        "POST", "/v1/chat/completions", json=kit.chat(64, stream=True), headers=headers
    )
    answer = ingress.client.send(asked, stream=True)
    assert answer.status_code == 200
    return answer
