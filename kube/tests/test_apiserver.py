"""The API server that tests use: it keeps its state and address when it is stopped and started again."""

import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from superinfer_kube.testing.apiserver import apiserver_missing, running_apiserver

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.skipif(bool(apiserver_missing()), reason="not built: make apiserver"),
]


def listens(url: str) -> bool:
    host, port = url.removeprefix("https://").split(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


def test_objects_and_address_outlive_a_stop(tmp_path: Path) -> None:
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}, "data": {"a": "1"}}
    path = "/api/v1/namespaces/default/configmaps"
    with running_apiserver(tmp_path) as server:
        assert server.request("POST", path, document)[0] == 201
        url, kubeconfig = server.url, server.kubeconfig.read_text()
        server.stop_server()
        with pytest.raises(OSError, match="refused"):
            server.request("GET", path)
        server.start_server()
        assert (server.url, server.kubeconfig.read_text()) == (url, kubeconfig)
        assert server.request("GET", f"{path}/kept")[1]["data"] == {"a": "1"}


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="without setpriv nothing can end them")
def test_nothing_outlives_a_run_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys, time\n"
        "from superinfer_kube.testing.apiserver import ApiServer\n"
        "server = ApiServer(pathlib.Path(sys.argv[1]))\n"
        "server.start()\n"
        "print(server.url, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        url = run.stdout.readline().strip()
        run.kill()
    deadline = time.monotonic() + 60
    while listens(url) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not listens(url)


def test_others_can_be_impersonated_and_have_no_rights_of_their_own(tmp_path: Path) -> None:
    with running_apiserver(tmp_path) as server:
        code, answer = server.request("GET", "/api/v1/secrets", impersonate="somebody")
    assert code == 403
    assert "somebody" in answer["message"]
