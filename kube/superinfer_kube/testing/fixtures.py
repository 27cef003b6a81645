"""pytest fixtures around the real API server.

Import them in a conftest: `from superinfer_kube.testing.fixtures import apiserver, namespace  # noqa: F401`.

Tests that use them carry the marker `apiserver`; where the binaries are not built they are skipped, with the
command that builds them. However many folders import it, one server serves the whole run.
"""

import itertools
import re
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from superinfer_kube.testing.apiserver import ApiServer, apiserver_missing, install_crds, running_apiserver

CRDS: Final = Path(__file__).parents[3] / "crds"
"""The generated CustomResourceDefinitions of this checkout."""

_numbers: Final = itertools.count(1)


class _Shared:
    """The server of this run and how many still need it."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._server: ApiServer | None = None
        self._users = 0

    def take(self) -> ApiServer:
        if self._server is None:
            folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="apiserver-"))
            self._server = self._stack.enter_context(running_apiserver(Path(folder)))
        self._users += 1
        return self._server

    def release(self) -> None:
        self._users -= 1
        if self._users == 0:
            self._server = None
            self._stack.close()
            self._stack = ExitStack()


_shared: Final = _Shared()


@pytest.fixture(scope="session")
def apiserver() -> Iterator[ApiServer]:
    """A real API server, one for the whole run: give objects a namespace of their own."""
    if absent := apiserver_missing():
        pytest.skip(f"{', '.join(absent)} not built: make apiserver")
    server = _shared.take()
    yield server
    _shared.release()


@pytest.fixture(scope="session")
def superinfer_api(apiserver: ApiServer) -> ApiServer:
    """The API server with the kinds of superinfer.dev."""
    install_crds(apiserver, CRDS)
    return apiserver


@pytest.fixture
def namespace(apiserver: ApiServer, request: pytest.FixtureRequest) -> str:
    """A namespace nobody else uses. It stays: without controllers nothing could empty it."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:40].strip("-")
    name = f"t{next(_numbers)}-{words}"
    code, answer = apiserver.request(
        "POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    )
    assert code == 201, answer
    return name
