"""One namespace of a real API server, MOCK nodes and a MOCK kubelet, and an operator in this process."""

import asyncio
import contextlib
from typing import Any

from superinfer_core.pods.settings import PodSettings
from superinfer_kube.client import KubeClient
from superinfer_kube.errors import AlreadyExists, KubeError, NotFound
from superinfer_kube.resources import (
    CHIPLET_POOLS,
    EVENTS,
    NODES,
    PODS,
    SLO_CONTRACTS,
    Resource,
)
from superinfer_operator.hosting.runtime import Runtime
from superinfer_operator.reconciling.loop import Pace
from superinfer_operator.settings import OperatorSettings

NODE_NAMES = ("mock-a", "mock-b")
PATIENCE_S = 60.0
LOOK_S = 0.1


class Stage:
    """What a test acts on."""

    def __init__(self, server: Any, client: KubeClient, namespace: str) -> None:
        self.server = server
        self.client = client
        self.namespace = namespace
        self.runtime: Runtime | None = None
        self._task: asyncio.Task[None] | None = None
        self._own: KubeClient | None = None

    async def set_up(self) -> None:
        for name in NODE_NAMES:
            with contextlib.suppress(AlreadyExists):
                await self.client.create(NODES, {"metadata": {"name": name}})
            amounts = {"cpu": "16", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "2"}
            condition = {"type": "Ready", "status": "True", "reason": "R", "message": "MOCK node"}
            status = {"allocatable": amounts, "capacity": amounts, "conditions": [condition]}
            await self.client.patch(NODES, name, None, {"status": status}, subresource="status")
            # No controller takes it off here.
            await self.client.patch(NODES, name, None, {"spec": {"taints": None, "unschedulable": None}})

    async def clear(self) -> None:
        """Nothing of this test is left for the operator of the next."""
        for resource in (CHIPLET_POOLS, SLO_CONTRACTS, PODS):
            for found in (await self.client.list(resource, self.namespace)).items:
                name = found["metadata"]["name"]
                with contextlib.suppress(NotFound):
                    if found["metadata"].get("finalizers"):
                        change = {"metadata": {"finalizers": None}}
                        await self.client.patch(resource, name, self.namespace, change)
                    await self.client.delete(resource, name, self.namespace, grace_s=0)

    def start(self) -> None:
        self._own = KubeClient.connect(field_manager="superinfer-operator", kubeconfig=self.server.kubeconfig)
        settings = OperatorSettings(
            namespace=self.namespace,
            pods=PodSettings(engine_image="vllm:1"),
            pace=Pace(quiet_s=0.02, soon_s=0.05, longest_retry_s=2.0),
        )
        self.runtime = Runtime(self._own, settings)
        self._task = asyncio.create_task(self.runtime.run())

    async def kill(self) -> None:
        """Wherever it is, as SIGKILL would."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError, BaseExceptionGroup):
                await self._task
            self._task = None
        if self._own is not None:
            await self._own.close()
            self._own = None

    async def pool(self, name="p", **spec):
        made = {
            "model": {"name": "m"},
            "engine": {"type": "Stub"},
            "chiplet": {"shape": "CPU"},
            "replicas": 2,
        }
        document = {"metadata": {"name": name, "namespace": self.namespace}, "spec": {**made, **spec}}
        return await self.client.apply(CHIPLET_POOLS, document)

    async def contract(self, name, **spec):
        document = {"metadata": {"name": name, "namespace": self.namespace}, "spec": spec}
        return await self.client.apply(SLO_CONTRACTS, document)

    async def pods(self) -> list[dict[str, Any]]:
        found = (await self.client.list(PODS, self.namespace)).items
        return sorted(found, key=lambda pod: pod["metadata"]["name"])

    async def names(self) -> list[str]:
        return [
            p["metadata"]["name"] for p in await self.pods() if not p["metadata"].get("deletionTimestamp")
        ]

    async def run_pods(self) -> None:
        """MOCK kubelet: what was made serves."""
        for pod in await self.pods():
            condition = {"type": "Ready", "status": "True"}
            status = {"status": {"phase": "Running", "conditions": [condition]}}
            name = pod["metadata"]["name"]
            with contextlib.suppress(NotFound):
                await self.client.patch(PODS, name, self.namespace, status, subresource="status")

    async def kubectl(self, *args: str) -> None:
        """In a thread: the operator runs on this event loop."""
        await asyncio.to_thread(self.server.kubectl, "-n", self.namespace, *args)

    async def get(self, resource: Resource, name: str) -> dict[str, Any] | None:
        try:
            return await self.client.get(resource, name, self.namespace)
        except NotFound:
            return None

    async def conditions(self, resource: Resource, name: str) -> dict[str, tuple[str, str]]:
        found = await self.get(resource, name) or {}
        status = found.get("status") or {}
        return {c["type"]: (c["status"], c["reason"]) for c in status.get("conditions", ())}

    async def reasons(self) -> list[str]:
        return [event["reason"] for event in (await self.client.list(EVENTS, self.namespace)).items]

    async def until(self, check, words: str = ""):
        """Wait until an async check holds, and give what it gave; says the last one where it never does."""
        last: Any = None
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    with contextlib.suppress(KubeError):
                        last = await check()
                        if last:
                            return last
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise AssertionError(f"{words or 'never held'}: {last!r}") from None

    async def until_names(self, *want: str) -> None:
        async def check():
            return await self.names() == list(want)

        await self.until(check, f"wanted {want}")

    async def until_condition(self, resource: Resource, name: str, kind: str, want: tuple[str, str]) -> None:
        async def check():
            return (await self.conditions(resource, name)).get(kind) == want

        await self.until(check, f"{name} never became {kind} {want}: {await self.conditions(resource, name)}")
