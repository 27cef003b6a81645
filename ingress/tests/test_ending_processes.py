"""A sidecar on this machine whose process ends is given up before its socket closes."""

import asyncio
import os

from superinfer_ingress.config import ExecutorSettings
from superinfer_ingress.executors.link import ExecutorLink

PATIENCE_S = 20.0


async def until(condition, what):
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)
    assert condition(), what


async def test_the_stream_to_a_process_that_ends_is_dropped(scripted, monkeypatch):
    _, executor = await scripted(lambda _: [])
    link = ExecutorLink(ExecutorSettings(**executor.settings), ingress_id="test", version="1")
    link.start()
    try:
        await until(lambda: link.serving, "a first report")
        link.drop_if_ending()
        await asyncio.sleep(0)
        assert link.connected, "a process that lives keeps its stream"
        looked_at = []
        monkeypatch.setattr(
            "superinfer_ingress.executors.link.is_ending", lambda pid: not looked_at.append(pid)
        )
        link.drop_if_ending()
        await until(lambda: link.reconnects == 1, "the loss")
        assert looked_at == [os.getpid()], "the process behind the socket"
        await until(lambda: link.serving, "the stream to its successor")
    finally:
        await link.close()
