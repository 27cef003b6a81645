"""The operator as a process of its own, measured from outside."""

import asyncio
import os
import re
import sys
from pathlib import Path
from typing import Final

import httpx
import psutil

_READY_S: Final = 300.0
_STOP_S: Final = 30.0
_MIB: Final = 1024 * 1024
_PORT: Final = re.compile(r"probes and metrics on port (\d+)")


class OperatorFailed(RuntimeError):
    """The operator ended or never became ready; the message ends with its log."""


class OperatorProcess:
    """One run of `python -m superinfer_operator run`."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path, port: int) -> None:
        self._process = process
        self._log = log
        self._port = port
        self._psutil = psutil.Process(process.pid)

    @classmethod
    async def start(cls, kubeconfig: Path, log: Path) -> "OperatorProcess":
        """Start one and wait until it says where its metrics are."""
        with log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "superinfer_operator",
                "run",
                "--namespace=default",
                "--port=0",
                "--host=127.0.0.1",
                f"--kubeconfig={kubeconfig}",
                "--log-level=INFO",
                stdout=out,
                stderr=out,
                # As a container that is started again in its pod, which goes on with its lease.
                env={**os.environ, "POD_NAME": "bench", "POD_UID": "bench"},
            )
        for _ in range(600):
            found = _PORT.search(_tail(log))
            if found is not None:
                return cls(process, log, int(found[1]))
            if process.returncode is not None:
                break
            await asyncio.sleep(0.1)
        msg = f"the operator did not start:\n{_tail(log)}"
        raise OperatorFailed(msg)

    async def kill(self) -> None:
        """SIGKILL, as when its node loses power."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def stop(self) -> int:
        """SIGTERM; the exit status."""
        if self._process.returncode is None:
            self._process.terminate()
        try:
            async with asyncio.timeout(_STOP_S):
                return await self._process.wait()
        except TimeoutError:
            await self.kill()
            return -9

    async def ready(self) -> None:
        """Wait until /readyz is 200."""
        async with httpx.AsyncClient(trust_env=False) as client, asyncio.timeout(_READY_S):
            while True:
                self._check()
                answer = await client.get(f"http://127.0.0.1:{self._port}/readyz")
                if answer.status_code == 200:
                    return
                await asyncio.sleep(0.2)

    async def requests(self) -> int:
        """Requests to the API server so far."""
        async with httpx.AsyncClient(trust_env=False) as client:
            text = (await client.get(f"http://127.0.0.1:{self._port}/metrics", timeout=30)).text
        found = re.search(r"^superinfer_operator_api_requests_total (\S+)$", text, re.MULTILINE)
        assert found is not None
        return int(float(found[1]))

    def rss_mb(self) -> float:
        """Memory now."""
        self._check()
        return self._psutil.memory_info().rss / _MIB

    def peak_mb(self) -> float:
        """Most memory it ever had, as the kernel counted."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
        assert found is not None
        return int(found[1]) / 1024

    def cpu_s(self) -> float:
        """CPU time so far."""
        times = self._psutil.cpu_times()
        return times.user + times.system

    def _check(self) -> None:
        if self._process.returncode is not None:
            msg = f"the operator ended with {self._process.returncode}:\n{_tail(self._log)}"
            raise OperatorFailed(msg)


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-4000:]
