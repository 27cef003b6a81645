"""`superinfer serve --stub` end to end: it answers, survives crashes, leaves nothing."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
import pytest

from superinfer.serving.ports import free_port

START_S = 60


@dataclass
class Served:
    """A `superinfer serve` that was started for a test."""

    process: subprocess.Popen[str]
    url: str
    lines: list[str] = field(default_factory=list)

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def until(self, what: str, within_s: float = START_S) -> None:
        deadline = time.monotonic() + within_s
        while not any(what in line for line in self.lines):
            assert self.process.poll() is None, "".join(self.lines)
            assert time.monotonic() < deadline, "".join(self.lines)
            time.sleep(0.05)

    def stop(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=60)


@contextlib.contextmanager
def serve(*arguments: str) -> Iterator[Served]:
    port = free_port()
    command = [sys.executable, "-m", "superinfer.main", "serve", "--stub", "--port", str(port), *arguments]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    served = Served(process, f"http://127.0.0.1:{port}")

    def collect() -> None:
        assert process.stdout is not None
        served.lines.extend(process.stdout)

    reader = threading.Thread(target=collect, daemon=True)
    reader.start()
    try:
        yield served
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()
        reader.join(timeout=10)
        assert process.stdout is not None
        process.stdout.close()


def until_gone(processes: list[psutil.Process], within_s: float = 20) -> None:
    _, alive = psutil.wait_procs(processes, timeout=within_s)
    assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []


def chat(served: Served, **body: object) -> httpx.Response:
    body = {"model": "stub", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, **body}
    return httpx.post(f"{served.url}/v1/chat/completions", json=body, timeout=30)


def test_it_serves_contracts_survives_a_crash_and_leaves_no_process(tmp_path: Path) -> None:
    contract = {
        "apiVersion": "superinfer.dev/v1alpha1",
        "kind": "SLOContract",
        "metadata": {"name": "gold"},
        "spec": {"tier": "Gold", "objectives": [{"metric": "E2E", "percentile": 95, "targetMs": 60_000}]},
    }
    (tmp_path / "gold.yaml").write_text(json.dumps(contract))
    with serve("--step-ms", "2", "--contracts", str(tmp_path)) as served:
        served.until("Try it:")
        assert any("stub" in line and "made up" in line for line in served.lines), "a stub is labelled as one"
        assert any("profile" in line and "start from defaults" in line for line in served.lines)
        children = served.children()
        assert len(children) == 3
        assert chat(served).status_code == 200
        named = httpx.post(
            f"{served.url}/v1/chat/completions",
            json={"model": "stub", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2},
            headers={"x-slo-contract-id": "gold"},
            timeout=30,
        )
        assert named.headers["x-superinfer-contract"] == "default/gold"
        assert "x-superinfer-predicted-ttft-ms" in named.headers
        executor = next(p for p in children if "superinfer_executor" in " ".join(p.cmdline()))
        executor.send_signal(signal.SIGKILL)
        served.until("executor-0 crashed")
        deadline = time.monotonic() + START_S
        while chat(served).status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        everyone = [*children, *served.children()]
        assert served.stop(signal.SIGINT) == 0, "".join(served.lines)
        until_gone(everyone)


def test_sigterm_lets_an_open_stream_finish() -> None:
    with serve("--step-ms", "50") as served:
        served.until("Try it:")
        body = {"model": "stub", "prompt": [1, 2, 3], "max_tokens": 30, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", f"{served.url}/v1/completions", json=body, timeout=30) as response:
            lines = response.iter_lines()
            assert next(lines).startswith("data: ")
            served.process.send_signal(signal.SIGTERM)
            assert [line for line in lines if line][-1] == "data: [DONE]"
        assert served.process.wait(timeout=30) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="the death signal is Linux's")
def test_killed_outright_it_leaves_no_process() -> None:
    with serve() as served:
        served.until("Try it:")
        children = served.children()
        served.process.kill()
        until_gone(children)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "superinfer.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_port_in_use_is_refused_before_anything_starts() -> None:
    with contextlib.closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = run("serve", "--stub", "--port", str(taken.getsockname()[1]))
    assert done.returncode == 2
    assert "is in use" in done.stderr
    assert "--port" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--model", "/no/such/model"), "smollm2 or tiny"),
        (("--model", os.fspath(Path(__file__).parent)), "config.json is missing"),
        (("--stub", "--auth", "required"), "superinfer keys create"),
        (("--stub", "--contracts", "/no/such/dir"), "--contracts"),
        (("--stub", "--profile", "/no/such/file"), "--profile"),
        (("--stub", "--profile", os.fspath(Path(__file__))), "superinfer profile --out"),
        (("--stub", "--policy", "/no/such/file"), "--policy"),
        (("--stub", "--keys", "/no/such/file"), "superinfer keys create"),
        (("--stub", "--host", "192.0.2.1"), "--host"),
        (("--stub", "--checkpoint", "on"), "--checkpoint"),
        (("--stub", "--", "--max-num-batched-tokens", "64"), "--max-num-batched-tokens"),
    ],
    ids=[
        "no model",
        "a directory without a model",
        "no keys",
        "no contracts",
        "no profile",
        "no profile in the file",
        "no policy",
        "no keys file",
        "an address of another machine",
        "a stub that would save checkpoints",
        "arguments for an engine that is none",
    ],
)
def test_what_cannot_work_is_refused_with_what_to_do(arguments: tuple[str, ...], says: str) -> None:
    done = run("serve", "--port", str(free_port()), *arguments)
    assert done.returncode == 2
    assert says in done.stderr
