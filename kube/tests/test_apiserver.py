"""The API server that tests use: it keeps its state and address when it is stopped and started again."""

from pathlib import Path

import pytest

from superinfer_kube.testing.apiserver import apiserver_missing, running_apiserver

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.skipif(bool(apiserver_missing()), reason="not built: make apiserver"),
]


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


def test_others_can_be_impersonated_and_have_no_rights_of_their_own(tmp_path: Path) -> None:
    with running_apiserver(tmp_path) as server:
        code, answer = server.request("GET", "/api/v1/secrets", impersonate="somebody")
    assert code == 403
    assert "somebody" in answer["message"]
