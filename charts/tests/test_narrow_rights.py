"""The operator as the chart starts it, with exactly the rights the chart gives it, where these are narrow."""

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from charts.tests.rendering import NAMESPACE, REPOSITORY, Chart, container
from charts.tests.test_installation import apply

from superinfer_kube.testing.apiserver import ApiServer, apiserver_missing, install_crds, running_apiserver

pytestmark = pytest.mark.apiserver

PATIENCE_S = 120.0
POOLS = "/apis/superinfer.dev/v1alpha1/namespaces/{}/chipletpools/p"
SPEC = {"model": {"name": "m"}, "engine": {"type": "Stub"}, "chiplet": {"shape": "CPU"}, "replicas": 1}


@dataclass
class Installed:
    """A cluster with two namespaces of users, of which the operator may touch the Secrets of one."""

    server: ApiServer
    log: Path

    def get(self, path: str) -> dict[str, Any]:
        code, answer = self.server.request("GET", path)
        return answer if code == 200 else {}

    def until(self, check: Callable[[], Any], words: str) -> Any:
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            if found := check():
                return found
            time.sleep(0.2)
        raise AssertionError(f"{words}; the operator says:\n{self.log.read_text()[-3000:]}")

    def accepted(self, namespace: str) -> tuple[str, str] | None:
        conditions = self.get(POOLS.format(namespace)).get("status", {}).get("conditions", [])
        return next(((c["status"], c["reason"]) for c in conditions if c["type"] == "Accepted"), None)


@pytest.fixture
def installed(chart: Chart, tmp_path: Path) -> Iterator[Installed]:
    if absent := apiserver_missing():
        pytest.skip(f"{', '.join(absent)} not built: make apiserver")
    with running_apiserver(tmp_path / "server") as server:
        install_crds(server, REPOSITORY / "crds")
        for namespace in (NAMESPACE, "shop", "bank"):
            document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            assert apply(server, document)[0] in (200, 201)
        rendered = chart.render("secrets.namespaces={shop}")
        for document in rendered.documents:
            if document["metadata"]["name"] == "superinfer-operator" and document["kind"] in (
                "ServiceAccount",
                "ClusterRole",
                "ClusterRoleBinding",
                "Role",
                "RoleBinding",
            ):
                assert apply(server, document)[0] in (200, 201)
        for namespace in ("shop", "bank"):
            secret = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {
                    "name": "keys",
                    "namespace": namespace,
                    "labels": {"superinfer.dev/api-keys": "true"},
                },
                "data": {"me": base64.b64encode(namespace.encode()).decode()},
            }
            pool = {"apiVersion": "superinfer.dev/v1alpha1", "kind": "ChipletPool", "spec": SPEC}
            pool["metadata"] = {"name": "p", "namespace": namespace}
            for document in (secret, pool):
                assert apply(server, document)[0] in (200, 201)
        template = rendered.one("Deployment", "superinfer-operator")["spec"]["template"]
        log = tmp_path / "log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "superinfer_operator", *container(template, "operator")["args"]),
                    *("--host=127.0.0.1", "--port=0", f"--kubeconfig={account(server, tmp_path)}"),
                ],
                stdout=out,
                stderr=out,
                env={"PATH": os.environ["PATH"], "POD_NAME": "operator-0", "POD_UID": "u"},
            )
        yield Installed(server, log)
        process.kill()
        process.wait()


def account(server: ApiServer, folder: Path) -> Path:
    """A kubeconfig of the operator's service account."""
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/superinfer-operator/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    code, answer = server.request("POST", path, request)
    assert code == 201, answer
    document = json.loads(server.kubeconfig.read_text())
    document["users"] = [{"name": "admin", "user": {"token": answer["status"]["token"]}}]
    made = folder / "kubeconfig"
    made.write_text(json.dumps(document))
    return made


def test_it_works_where_it_may_and_says_so_where_it_may_not(installed: Installed) -> None:
    installed.until(lambda: installed.accepted("shop") == ("True", "Accepted"), "shop's pool is not accepted")
    installed.until(
        lambda: installed.accepted("bank") == ("False", "NamespaceNotCovered"), "bank's pool is not refused"
    )
    assert installed.get("/api/v1/namespaces/shop/secrets/p-executor-tls")
    assert not installed.get("/api/v1/namespaces/bank/secrets/p-executor-tls")
    digests = installed.until(
        lambda: installed.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/superinfer-api-keys"),
        "no digests of keys were written",
    )
    text = base64.b64decode(digests["data"]["keys.yaml"]).decode()
    assert ("shop/keys/me" in text, "bank/keys/me" in text) == (True, False)
    lease = installed.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/superinfer-operator")
    assert lease["spec"]["holderIdentity"] == "operator-0_u"
    said = installed.log.read_text()
    assert "orbidden" not in said, said
    assert "not written" not in said, said
