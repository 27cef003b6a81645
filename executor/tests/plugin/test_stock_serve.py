"""A stock `vllm serve` with our wheel installed: `--scheduler-cls` and flat `vllm_xargs` are all it takes.

The one test here in which vLLM runs as its users run it: front end, engine core and worker in processes of
their own, so it also proves that the worker's half of the plug-in is loaded there.
"""

import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from superinfer_executor.plugin.step_facts import (
    MAX_DATAGRAM_BYTES,
    SOCKET_ENV,
    StepFactsMessage,
    bind_step_facts_socket,
    decode_step_facts,
)

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]

START_S = 240
ARGUMENTS = (
    *("--dtype", "float32", "--max-model-len", "1024", "--max-num-seqs", "4", "--block-size", "32"),
    *("--max-num-batched-tokens", "256", "--enforce-eager"),
    *("--scheduler-cls", "superinfer_executor.plugin.scheduler.SlackScheduler"),
)


class StockServer:
    """`vllm serve` on a port of its own, with a reader for its step facts."""

    def __init__(self, directory: Path, model: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.base = f"http://127.0.0.1:{port}"
        self.facts = bind_step_facts_socket(directory / "facts")
        self._log = directory / "log"
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("VLLM_")},
            "OMP_NUM_THREADS": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_NO_USAGE_STATS": "1",
            SOCKET_ENV: str(directory / "facts"),
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        # What `vllm serve` runs; the command itself wants metadata of "vllm" that vllm-cpu lacks.
        command = [sys.executable, "-m", "vllm.entrypoints.launchers.api_server.entry", "--model", str(model)]
        command += ["--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port), *ARGUMENTS]
        with self._log.open("w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def wait_ready(self) -> None:
        import time

        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                urllib.request.urlopen(f"{self.base}/health", timeout=5).close()
            except OSError:
                time.sleep(0.2)
            else:
                return
        pytest.fail(f"vllm serve did not start:\n{self._log.read_text()[-4000:]}")

    def complete(self, **body: Any) -> tuple[int, dict[str, Any]]:
        request = urllib.request.Request(
            f"{self.base}/v1/completions",
            data=json.dumps({"model": "tiny", "ignore_eos": True, **body}).encode(),
            headers={"content-type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def steps(self) -> list[StepFactsMessage]:
        found: list[StepFactsMessage] = []
        while True:
            try:
                found += decode_step_facts(self.facts.recv(MAX_DATAGRAM_BYTES))
            except BlockingIOError:
                return found

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.facts.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[StockServer]:
    server = StockServer(tmp_path_factory.mktemp("serve"), tiny_model)
    try:
        server.wait_ready()
        yield server
    finally:
        server.stop()


def test_requests_of_every_rank_are_served_and_steps_reported(server: StockServer) -> None:
    def ask(rank: int) -> tuple[int, dict[str, Any]]:
        promise = {"slo_ttft_ms": 60_000, "slo_itl_ms": 1_000, "slo_rank": rank}
        return server.complete(prompt="x" * 400, max_tokens=16, vllm_xargs=promise)

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(ask, [0, 1, 2, 0, 1, 2]))

    assert {status for status, _ in answers} == {200}
    assert {answer["usage"]["completion_tokens"] for _, answer in answers} == {16}
    steps = server.steps()
    assert sum(step.prefill_tokens for step in steps) >= 400
    assert all(step.failed_plans == 0 and step.invalid_promises == 0 for step in steps)
    assert [step.step for step in steps] == sorted(step.step for step in steps)


@pytest.mark.parametrize("promise", [{"slo_ttft_ms": "soon"}, {"slo_ttft_ms": 0}, {"slo_tfft_ms": 5}])
def test_a_promise_that_cannot_be_read_is_a_400_that_names_it(
    server: StockServer, promise: dict[str, Any]
) -> None:
    status, answer = server.complete(prompt="x", max_tokens=1, vllm_xargs=promise)
    assert status == 400
    assert f"vllm_xargs.{next(iter(promise))}" in answer["error"]["message"]


def test_a_seeded_prompt_in_chunks_is_served_and_resumed_exactly(server: StockServer) -> None:
    """Without the worker's half the chunks alone kill the engine, and the resumed tokens differ."""
    body = {
        "prompt": [5 + (13 * i + (i * i) % 31) % 1_000 for i in range(600)],
        "max_tokens": 24,
        "temperature": 0.9,
        "seed": 7,
        "presence_penalty": 0.5,
        "return_token_ids": True,
    }
    status, whole = server.complete(**body)
    assert status == 200
    tokens = whole["choices"][0]["token_ids"]
    assert len(set(tokens)) > 8
    status, resumed = server.complete(**body, vllm_xargs={"resume_token_ids": tokens[:10]})
    assert status == 200
    assert resumed["choices"][0]["token_ids"][-14:] == tokens[10:]
