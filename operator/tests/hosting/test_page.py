"""Probes and metrics over HTTP."""

import asyncio
import contextlib

import pytest
from prometheus_client import CollectorRegistry

from superinfer_operator.hosting.page import Page


class Answers:
    """What the checks say."""

    live = ""
    ready = "not everything is known yet"


@pytest.fixture
async def page():
    answers = Answers()
    made = Page(live=lambda: answers.live, ready=lambda: answers.ready, registry=CollectorRegistry())
    port = await made.start("127.0.0.1", 0)
    yield answers, port
    await made.stop()


async def ask(port, text):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text.encode())
    answer = (await reader.read()).decode()
    writer.close()
    return int(answer.split()[1]), answer.partition("\r\n\r\n")[2]


@pytest.mark.parametrize(
    ("request_line", "want"),
    [
        pytest.param("GET /livez HTTP/1.1", 200, id="alive"),
        pytest.param("GET /readyz HTTP/1.1", 503, id="not ready yet"),
        pytest.param("GET /readyz?verbose HTTP/1.1", 503, id="with a query"),
        pytest.param("GET /metrics HTTP/1.1", 200, id="metrics"),
        pytest.param("GET /other HTTP/1.1", 404, id="something else"),
        pytest.param("POST /livez HTTP/1.1", 405, id="another method"),
        pytest.param("nonsense", 405, id="no HTTP at all"),
    ],
)
async def test_answers(page, request_line, want):
    _, port = page
    code, _ = await ask(port, f"{request_line}\r\nHost: x\r\n\r\n")
    assert code == want


async def test_a_failing_check_says_why(page):
    answers, port = page
    answers.live = "a watch has been silent for 300 s"
    assert await ask(port, "GET /livez HTTP/1.1\r\n\r\n") == (503, "a watch has been silent for 300 s\n")


async def test_a_client_that_hangs_up_or_says_too_much_harms_nobody(page):
    _, port = page
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()
    await asyncio.wait_for(_flood(port), 10)
    assert (await ask(port, "GET /livez HTTP/1.1\r\n\r\n"))[0] == 200


async def _flood(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET " + b"x" * 100_000)
    with contextlib.suppress(ConnectionError):
        await reader.read()
    writer.close()
