"""The verbs of the API server, for plain mappings.

lightkube finds the cluster and keeps its credentials: a service account's token is read again when the server
no longer takes it, because the kubelet replaces it within the hour. Every failure is a `KubeError`; nothing
here tries again, except that credentials are refreshed once.
Concurrency: one client per process, shared by any number of tasks of one event loop.
"""

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2
import msgspec
from lightkube.config.client_adapter import AsyncClient, ConnectionParams
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.core.exceptions import ConfigError

from superinfer_kube.errors import KubeConfigError, KubeError, Unavailable, error_from_status
from superinfer_kube.nesting import decode_json
from superinfer_kube.resources import Resource

Document = dict[str, Any]

_REQUEST_S: Final = 30.0
_CONNECT_S: Final = 5.0
_PAGE: Final = 500
APPLY: Final = "application/apply-patch+yaml"
MERGE: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
_encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Listing:
    """A collection at one moment."""

    items: Sequence[Document]
    resource_version: str
    """Where a watch goes on from."""


def find_cluster(kubeconfig: Path | None = None, context: str | None = None) -> SingleConfig:
    """The pod's service account, else $KUBECONFIG, else ~/.kube/config; or the file that is named.

    Raises:
        KubeConfigError: none of them can be used.
    """
    try:
        found = KubeConfig.from_env() if kubeconfig is None else KubeConfig.from_file(kubeconfig)
        config = found.get(context)
    except (ConfigError, KeyError, OSError, ValueError) as error:
        msg = f"no cluster to talk to: {error}; run in a pod, or set KUBECONFIG"
        raise KubeConfigError(msg) from error
    if config is None:
        msg = "the kubeconfig has no current context; set one with kubectl config use-context"
        raise KubeConfigError(msg)
    return config


class KubeClient:
    """One API server."""

    def __init__(self, config: SingleConfig, *, field_manager: str) -> None:
        self.field_manager = field_manager
        self.requests = 0
        """Calls made so far, watches included."""
        self.namespace: str = config.namespace or "default"
        """The namespace of the service account or of the kubeconfig's context."""
        self._http = _connect(config)

    @classmethod
    def connect(
        cls, *, field_manager: str, kubeconfig: Path | None = None, context: str | None = None
    ) -> "KubeClient":
        """A client of the cluster this process belongs to; see `find_cluster`."""
        return cls(find_cluster(kubeconfig, context), field_manager=field_manager)

    async def close(self) -> None:
        """End every connection, watches too."""
        await self._http.aclose()

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Document:
        """One object."""
        what = _what("get", resource, namespace, name)
        return await self._call("GET", resource.path(namespace, name), what)

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        page: int = _PAGE,
    ) -> Listing:
        """Every object, in pages; of all namespaces without `namespace`. Selectors as kubectl writes them."""
        what = _what("list", resource, namespace)
        query = selected(labels, fields) | {"limit": str(page)}
        items: list[Document] = []
        while True:
            document = await self._call("GET", resource.path(namespace), what, query=query)
            items += document.get("items") or ()
            metadata = document.get("metadata") or {}
            if not metadata.get("continue"):
                return Listing(items, str(metadata.get("resourceVersion", "")))
            query["continue"] = metadata["continue"]

    async def create(self, resource: Resource, document: Mapping[str, Any]) -> Document:
        """A new object, which must not exist yet."""
        namespace, name = _identity(document)
        what = _what("create", resource, namespace, name)
        body = _typed(resource, document)
        return await self._call("POST", resource.path(namespace), what, query=self._managed(), body=body)

    async def apply(
        self,
        resource: Resource,
        document: Mapping[str, Any],
        *,
        force: bool = True,
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> Document:
        """Server-side apply: the whole of what this field manager wants of the object.

        Without `force`, a field that belongs to another manager is a `Conflict` that names it.
        """
        namespace, name = _identity(document)
        what = _what("apply", resource, namespace, name, subresource)
        query = self._managed() | {"force": "true" if force else "false"}
        if dry_run:
            query["dryRun"] = "All"
        path = resource.path(namespace, name, subresource)
        body = _typed(resource, document)
        return await self._call("PATCH", path, what, query=query, body=body, content_type=APPLY)

    async def apply_status(self, resource: Resource, document: Mapping[str, Any]) -> Document:
        """Server-side apply of the status of an object that exists: metadata.name, namespace and status."""
        return await self.apply(resource, document, subresource="status")

    async def patch(
        self,
        resource: Resource,
        name: str,
        namespace: str | None,
        change: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        subresource: str | None = None,
    ) -> Document:
        """A merge patch, or a JSON patch where `change` is a list of operations."""
        what = _what("patch", resource, namespace, name, subresource)
        kind = MERGE if isinstance(change, Mapping) else JSON_PATCH
        path = resource.path(namespace, name, subresource)
        return await self._call("PATCH", path, what, query=self._managed(), body=change, content_type=kind)

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        grace_s: int | None = None,
        uid: str | None = None,
    ) -> None:
        """Delete an object; with `uid` only that one, else `Conflict`."""
        options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        if uid:
            options["preconditions"] = {"uid": uid}
        what = _what("delete", resource, namespace, name)
        await self._call("DELETE", resource.path(namespace, name), what, body=options)

    @contextlib.asynccontextmanager
    async def stream(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        query: Mapping[str, str],
        silence_s: float,
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of one watch request; `Unavailable` after `silence_s` without a byte.

        For `Informer`, which makes of it something that lasts.
        """
        what = _what("watch", resource, namespace)
        timeout = httpx2.Timeout(_REQUEST_S, connect=_CONNECT_S, read=silence_s)
        self.requests += 1
        with _as_kube_errors(what):
            request = self._http.build_request(
                "GET",
                resource.path(namespace),
                params=dict(query) | {"watch": "true", "allowWatchBookmarks": "true"},
                timeout=timeout,
            )
            response = await self._http.send(request, stream=True)
            try:
                if response.is_error:
                    await response.aread()
                    raise _refusal(response, what)
                yield _lines(response)
            finally:
                await response.aclose()

    def _managed(self) -> dict[str, str]:
        return {"fieldManager": self.field_manager}

    async def _call(
        self,
        method: str,
        path: str,
        what: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> Document:
        self.requests += 1
        with _as_kube_errors(what):
            response = await self._http.request(
                method,
                path,
                params=dict(query or {}),
                content=None if body is None else _encode(body),
                headers={} if body is None else {"Content-Type": content_type},
            )
            if response.is_error:
                raise _refusal(response, what)
            document = decode_json(response.content)
        if not isinstance(document, dict):
            msg = "the API server answered with something that is not an object"
            raise KubeError(msg, what=what)
        return document


def _connect(config: SingleConfig) -> httpx2.AsyncClient:
    timeout = httpx2.Timeout(_REQUEST_S, connect=_CONNECT_S)
    # No proxy of the environment: a cluster's own address is never behind one.
    try:
        client: httpx2.AsyncClient = AsyncClient(config, ConnectionParams(timeout=timeout, trust_env=False))
    except (ConfigError, OSError, ValueError, AssertionError) as error:
        msg = f"the credentials of {config.context_name} cannot be used: {error}"
        raise KubeConfigError(msg) from error
    client.headers["User-Agent"] = "superinfer"
    return client


@contextlib.contextmanager
def _as_kube_errors(what: str) -> Any:
    try:
        yield
    except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
        raise Unavailable(f"{type(error).__name__}: {error}", what=what) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unavailable(f"the answer cannot be read: {error}", what=what) from error
    except ConfigError as error:  # the token file is gone
        raise Unavailable(str(error), what=what) from error


def _refusal(response: httpx2.Response, what: str) -> KubeError:
    try:
        document = decode_json(response.content)
    except msgspec.DecodeError:
        document = None
    return error_from_status(
        response.status_code,
        document if isinstance(document, dict) else None,
        what=what,
        retry_after=response.headers.get("retry-after"),
    )


async def _lines(response: httpx2.Response) -> AsyncIterator[bytes]:
    """Lines end with a line feed and nothing else: JSON text may hold what str.splitlines ends at."""
    parts: list[bytes] = []
    async for chunk in response.aiter_bytes():
        *ended, rest = chunk.split(b"\n")
        for line in ended:
            parts.append(line)
            whole = b"".join(parts)
            parts.clear()
            if whole:
                yield whole
        if rest:
            parts.append(rest)


def selected(labels: str | None, fields: str | None) -> dict[str, str]:
    """The query of a list or watch that takes only what its selectors name."""
    given = {"labelSelector": labels, "fieldSelector": fields}
    return {key: value for key, value in given.items() if value is not None}


def _identity(document: Mapping[str, Any]) -> tuple[str | None, str]:
    metadata = document.get("metadata") or {}
    name = metadata.get("name")
    if not name:
        msg = "an object without metadata.name"
        raise ValueError(msg)
    return metadata.get("namespace"), name


def _typed(resource: Resource, document: Mapping[str, Any]) -> Document:
    return {**document, "apiVersion": resource.api_version, "kind": resource.kind}


def _what(
    verb: str,
    resource: Resource,
    namespace: str | None,
    name: str | None = None,
    subresource: str | None = None,
) -> str:
    kind = resource.plural if subresource is None else f"{resource.plural}/{subresource}"
    where = "/".join(part for part in (namespace, name) if part)
    return f"{verb} {kind} {where}".rstrip()
