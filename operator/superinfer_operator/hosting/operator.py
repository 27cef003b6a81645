"""kopf around the runtime: start, stop, signals, credentials.

kopf keeps no state of its own in the cluster here: no handler of it watches an object, so it adds no
finalizers, annotations or results. What it would be needed for is where it loses: see `watching.cluster`.
A registry of our own is used, so that importing this module registers nothing anywhere.
"""

import asyncio
import logging
from typing import Any

import kopf

from superinfer_core.api.v1alpha1.labels import DRAIN_FINALIZER, OPERATOR_ANNOTATION_PREFIX
from superinfer_kube.client import KubeClient, find_cluster
from superinfer_operator.hosting.command import RunCommand
from superinfer_operator.hosting.metrics import OperatorCollector
from superinfer_operator.hosting.page import Page
from superinfer_operator.hosting.runtime import Runtime

_log = logging.getLogger("superinfer.operator")


class Hosting:
    """One operator process."""

    def __init__(self, command: RunCommand, client: KubeClient) -> None:
        self._command = command
        self._client = client
        self._ended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failed = False
        self._runtime = Runtime(client, command.settings)

    async def run(self) -> int:
        """Run until a signal; 0 where it ended as it should."""
        registry = kopf.OperatorRegistry()
        kopf.on.startup(registry=registry)(self._start)
        kopf.on.cleanup(registry=registry)(self._stop)
        kopf.on.login(registry=registry)(self._login)
        identity: Any = self._command.settings.instance
        page = self._page()
        port = await page.start(self._command.host, self._command.port)
        _log.info("probes and metrics on port %d", port)
        try:
            await kopf.operator(
                registry=registry,
                settings=_kopf_settings(),
                # Its own guess asks for the user's name, and in a container there may be none.
                identity=identity,
                clusterwide=True,
                stop_flag=self._ended,
            )
        finally:
            await page.stop()
            await self._client.close()
        return 1 if self._failed else 0

    async def _start(self, **_: Any) -> None:
        self._task = asyncio.create_task(self._runtime.run(), name="runtime")
        self._task.add_done_callback(self._has_ended)

    async def _stop(self, **_: Any) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _login(self, **_: Any) -> kopf.ConnectionInfo:
        config = find_cluster(self._command.kubeconfig)
        user, cluster = config.user, config.cluster
        return kopf.ConnectionInfo(
            server=cluster.server,
            ca_path=_path(config, cluster.certificate_auth),
            ca_data=cluster.certificate_auth_data,
            insecure=cluster.insecure,
            token=user.token if user is not None else None,
            certificate_path=_path(config, user.client_cert) if user is not None else None,
            certificate_data=user.client_cert_data if user is not None else None,
            private_key_path=_path(config, user.client_key) if user is not None else None,
            private_key_data=user.client_key_data if user is not None else None,
        )

    def _has_ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed = True
            _log.error("the operator cannot go on", exc_info=error)
        self._ended.set()

    def _page(self) -> Page:
        registry = _registry(self._runtime)
        return Page(
            live=self._runtime.unhealthy,
            ready=lambda: "" if self._runtime.ready else "not everything is known yet",
            registry=registry,
        )


def _registry(runtime: Runtime) -> Any:
    from prometheus_client import GC_COLLECTOR, PROCESS_COLLECTOR, CollectorRegistry

    registry = CollectorRegistry()
    for collector in (PROCESS_COLLECTOR, GC_COLLECTOR, OperatorCollector(runtime)):
        registry.register(collector)
    return registry


def _path(config: Any, name: str | None) -> Any:
    return config.abs_file(name) if name else None


def _kopf_settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.persistence.finalizer = DRAIN_FINALIZER
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(
        prefix=OPERATOR_ANNOTATION_PREFIX, v1=False
    )
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(
        prefix=OPERATOR_ANNOTATION_PREFIX, key="last-handled", v1=False
    )
    return settings
