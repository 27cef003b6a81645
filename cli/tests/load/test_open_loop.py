"""Open-loop load against a server that answers, refuses, breaks off or is not there."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from superinfer.load.bodies import token_bodies
from superinfer.load.client import LoadClient
from superinfer.load.record import RequestRecord
from superinfer.load.run import Load, Run, open_loop
from superinfer.simulation.workload import Job
from superinfer_core.slo import Rank, RequestSlo, Tier

Answer = Callable[[dict[str, str], dict[str, object], asyncio.StreamWriter], Awaitable[None]]


def job(number: int, at_ms: float = 0.0, *, ttft_ms: float = 60_000, output: int = 3) -> Job:
    slo = RequestSlo("bench/gold-1", Rank(0), ttft_ms=ttft_ms, itl_ms=60_000)
    return Job(f"r{number}", at_ms, 5, output, Tier.GOLD, slo)


@contextlib.asynccontextmanager
async def server(answer: Answer) -> AsyncIterator[str]:
    tasks: set[asyncio.Task[None] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                pairs = [line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line]
                headers = {name.lower(): value for name, value in pairs}
                body = json.loads(await reader.readexactly(int(headers["content-length"])))
                await answer(headers, body, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        await asyncio.gather(*(task for task in tasks if task is not None))


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def tokens(_headers: dict[str, str], body: dict[str, object], writer: asyncio.StreamWriter) -> None:
    head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
    writer.write(f"{head}x-superinfer-predicted-ttft-ms: 12.5\r\n\r\n".encode())
    count = int(str(body["max_tokens"]))
    for number in range(count):
        finish = "length" if number == count - 1 else None
        event = {"choices": [{"text": "x", "finish_reason": finish}]}
        writer.write(chunk(f"data: {json.dumps(event)}\n\n".encode()))
    last = {"choices": [], "usage": {"completion_tokens": count}}
    writer.write(chunk(f"data: {json.dumps(last)}\n\n".encode()))
    writer.write(chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")


async def refuse(_headers: dict[str, str], _body: dict[str, object], writer: asyncio.StreamWriter) -> None:
    text = json.dumps({"error": {"code": "slo_infeasible", "message": "no"}})
    head = f"HTTP/1.1 425 Too Early\r\ncontent-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n"
    writer.write((head + text).encode())


async def fail_inside(
    _headers: dict[str, str], _body: dict[str, object], writer: asyncio.StreamWriter
) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    writer.write(chunk(b'data: {"choices":[{"text":"x"}]}\n\n'))
    writer.write(chunk(b'data: {"error":{"code":"engine_failed"}}\n\n') + b"0\r\n\r\n")


async def hang_up(_headers: dict[str, str], _body: dict[str, object], writer: asyncio.StreamWriter) -> None:
    writer.close()


async def run(url: str, jobs: list[Job], timeout_s: float = 20) -> Run:
    async with LoadClient(url, timeout_s=timeout_s) as client:
        return await open_loop(client, jobs, Load(token_bodies("m", "seed"), keep_events=True))


async def one(answer: Answer) -> RequestRecord:
    async with server(answer) as url:
        return (await run(url, [job(0)])).records[0]


async def test_a_stream_is_timed_and_kept() -> None:
    record = await one(tokens)
    assert (record.status, record.tokens, record.finish) == (200, 3, "length")
    assert record.served
    assert record.kept
    assert record.ttft_ms is not None
    assert record.e2e_ms is not None
    assert 0 <= record.ttft_ms <= record.e2e_ms
    assert len(record.event_ms) == 3
    assert record.predicted_ttft_ms == 12.5


async def test_a_late_first_token_is_served_and_not_kept() -> None:
    async with server(tokens) as url:
        record = (await run(url, [job(0, ttft_ms=1e-6)])).records[0]
    assert record.served
    assert not record.kept


async def test_a_refusal_is_a_record_with_its_code() -> None:
    record = await one(refuse)
    assert (record.status, record.code, record.refused, record.kept) == (425, "slo_infeasible", True, False)


async def test_an_error_inside_a_stream_is_not_a_token() -> None:
    record = await one(fail_inside)
    assert (record.status, record.code, record.tokens) == (200, "engine_failed", 1)
    assert not record.served


@pytest.mark.parametrize("answer", [pytest.param(hang_up, id="the server hangs up")])
async def test_a_broken_connection_is_an_answer_of_status_zero(answer: Answer) -> None:
    record = await one(answer)
    assert (record.status, record.refused, record.kept) == (0, False, False)
    assert record.error


async def test_a_server_that_is_not_there_breaks_nothing() -> None:
    async with server(tokens) as url:
        pass
    assert [r.status for r in (await run(url, [job(0), job(1)])).records] == [0, 0]


async def test_requests_leave_when_due_not_when_others_are_done() -> None:
    """The first request is never answered until the second has arrived."""
    second = asyncio.Event()

    async def gate(headers: dict[str, str], body: dict[str, object], writer: asyncio.StreamWriter) -> None:
        if headers["x-request-id"] == "r1":
            second.set()
        await second.wait()
        await tokens(headers, body, writer)

    async with server(gate) as url:
        records = (await run(url, [job(0), job(1, at_ms=5.0)])).records
    assert [r.served for r in records] == [True, True]
    assert all(r.sent_ms >= r.due_ms for r in records)


async def test_promises_travel_as_headers() -> None:
    seen: dict[str, str] = {}

    async def note(headers: dict[str, str], body: dict[str, object], writer: asyncio.StreamWriter) -> None:
        seen.update(headers)
        await tokens(headers, body, writer)

    async with server(note) as url:
        await run(url, [job(7, ttft_ms=81.38)])
    assert seen["x-request-id"] == "r7"
    assert seen["x-slo-contract-id"] == "bench/gold-1"
    assert seen["x-slo-ttft-ms"] == "81.380"


def test_prompts_are_exact_and_share_no_prefix() -> None:
    bodies = token_bodies("m", "seed")
    first, again, second = bodies(job(1)), bodies(job(1)), bodies(job(2))
    assert first == again
    assert len(json.loads(first)["prompt"]) == 5
    assert json.loads(first)["prompt"][:2] != json.loads(second)["prompt"][:2]
