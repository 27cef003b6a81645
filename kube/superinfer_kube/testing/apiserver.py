"""kube-apiserver and etcd alone: the API as it really validates, admits and merges, without any node.

No controllers run: no service accounts appear, nothing is garbage-collected and no pod starts. Authorization
is RBAC; the administrator's token is in `kubeconfig`, and others can be impersonated with it.
Concurrency: the processes belong to the object; `stop` ends them. The server can be stopped and started again
over the same etcd, to show what happens while it is away.
"""

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from superinfer_kube.testing.binaries import API_SERVER, ETCD, KUBECTL, find_binary, missing

_START_S: Final = 180
_STOP_S: Final = 20
_PROBE_S: Final = 0.2
SERVICE_CIDR: Final = "10.213.0.0/16"


class ApiServerFailed(RuntimeError):
    """A process did not start; the message ends with what it said."""


_LONG_LIVED: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="starts API servers")
"""Starts processes that end with us: the kernel ends them with the *thread* that started them, and a caller's
thread (asyncio.to_thread, say) may be gone with its event loop."""


@dataclass(slots=True)
class ApiServer:
    """A running API server.

    Attributes:
        folder: state and logs; it must not be used by another one.
        url: https address on loopback.
        token: of an administrator.
        feature_gates: e.g. {"DynamicResourceAllocation": True}.
    """

    folder: Path
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    url: str = ""
    token: str = field(default_factory=lambda: secrets.token_hex(16))
    _port: int = 0
    _etcd_url: str = ""
    _etcd: subprocess.Popen[bytes] | None = None
    _server: subprocess.Popen[bytes] | None = None

    @property
    def kubeconfig(self) -> Path:
        """For clients and kubectl, as the administrator."""
        return self.folder / "kubeconfig"

    @property
    def certificate(self) -> Path:
        """Self-signed, so it is also what clients trust."""
        return self.folder / "certs" / "apiserver.crt"

    def start(self) -> None:
        """Starts etcd and the server and waits until it is ready.

        Raises:
            ApiServerFailed: one of them ended, or was not ready in three minutes.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write_identities()
        client_port, peer_port, self._port = _free_ports(3)
        self._etcd_url = f"http://127.0.0.1:{client_port}"
        self.url = f"https://127.0.0.1:{self._port}"
        peer = f"http://127.0.0.1:{peer_port}"
        self._etcd = self._spawn(
            ETCD,
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={self._etcd_url}",
            f"--advertise-client-urls={self._etcd_url}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            # A test's data is worth nothing after a crash, and fsync costs most of the time.
            "--unsafe-no-fsync",
            "--log-level=error",
        )
        self.start_server()

    def start_server(self) -> None:
        """Starts the server alone over the etcd that runs; it keeps address, certificate and identities."""
        gates = [
            "--feature-gates="
            + ",".join(f"{k}={str(v).lower()}" for k, v in sorted(self.feature_gates.items()))
        ]
        self._server = self._spawn(
            API_SERVER,
            f"--etcd-servers={self._etcd_url}",
            f"--secure-port={self._port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--cert-dir={self.folder / 'certs'}",
            f"--service-cluster-ip-range={SERVICE_CIDR}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            # Pods of a service account that no controller has made could not be created otherwise.
            "--disable-admission-plugins=ServiceAccount",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.folder / 'sa.pub'}",
            f"--service-account-signing-key-file={self.folder / 'sa.key'}",
            "--endpoint-reconciler-type=none",
            "--profiling=false",
            *(gates if self.feature_gates else []),
        )
        self._await_ready()

    def stop_server(self) -> None:
        """Ends the server and leaves etcd running: the API is away."""
        _end(self._server)
        self._server = None

    def stop(self) -> None:
        """Ends both."""
        self.stop_server()
        _end(self._etcd)
        self._etcd = None

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """What kubectl prints.

        Raises:
            subprocess.CalledProcessError: it failed and `check` is set; its stderr is in the exception.
        """
        binary = find_binary(KUBECTL)
        if binary is None:
            msg = "kubectl is not built; run make apiserver"
            raise ApiServerFailed(msg)
        done = subprocess.run(  # noqa: S603 - our own binary
            [str(binary), f"--kubeconfig={self.kubeconfig}", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=check,
            env={**os.environ, "HOME": str(self.folder)},
        )
        return done.stdout if check else done.stdout + done.stderr

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | bytes | None = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        impersonate: str | None = None,
    ) -> tuple[int, dict[str, Any]]:
        """One call, as it comes: status code and document."""
        headers = {"Authorization": f"Bearer {self.token}", "Accept": accept, "Content-Type": content_type}
        if impersonate is not None:
            headers["Impersonate-User"] = impersonate
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        call = urllib.request.Request(self.url + path, data=data, method=method, headers=headers)  # noqa: S310
        context = ssl.create_default_context(cafile=str(self.certificate))
        try:
            with urllib.request.urlopen(call, context=context, timeout=30) as answer:  # noqa: S310 - loopback
                return answer.status, _document(answer.read())
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, _document(refused.read())

    def apply(
        self, path: str, document: Mapping[str, Any] | bytes, *, manager: str = "tests", query: str = ""
    ) -> tuple[int, dict[str, Any]]:
        """Server-side apply of a document, or of YAML text."""
        return self.request(
            "PATCH",
            f"{path}?fieldManager={manager}&force=true{query}",
            document,
            content_type="application/apply-patch+yaml",
        )

    def _spawn(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        binary = find_binary(name)
        if binary is None:
            msg = f"{name} is not built; run make apiserver"
            raise ApiServerFailed(msg)
        log = self.folder / f"{name}.log"
        with log.open("ab") as out:
            # A session of its own: Ctrl-C ends the test first, and the test ends this.
            return _LONG_LIVED.submit(
                subprocess.Popen,
                [*_with_us(), str(binary), *arguments],
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ).result()

    def _write_identities(self) -> None:
        tokens = self.folder / "tokens.csv"
        tokens.write_text(f"{self.token},admin,admin,system:masters\n")
        tokens.chmod(0o600)
        _write_keys(self.folder / "sa.key", self.folder / "sa.pub")

    def _await_ready(self) -> None:
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            for process, name in ((self._etcd, ETCD), (self._server, API_SERVER)):
                if process is not None and process.poll() is not None:
                    raise ApiServerFailed(f"{name} ended with {process.returncode}: {self._tail(name)}")
            if self._is_ready():
                self._write_kubeconfig()
                return
            time.sleep(_PROBE_S)
        raise ApiServerFailed(f"{API_SERVER} was not ready in {_START_S} s: {self._tail(API_SERVER)}")

    def _is_ready(self) -> bool:
        if not self.certificate.exists():
            return False
        with contextlib.suppress(OSError, ValueError):
            code, _ = self.request("GET", "/api/v1/namespaces/default")
            ready, _ = self.request("GET", "/readyz", accept="*/*")
            return code == ready == 200
        return False

    def _write_kubeconfig(self) -> None:
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [
                {
                    "name": "test",
                    "cluster": {"server": self.url, "certificate-authority": str(self.certificate)},
                }
            ],
            "users": [{"name": "admin", "user": {"token": self.token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        }
        self.kubeconfig.write_text(json.dumps(document, indent=1))
        self.kubeconfig.chmod(0o600)

    def _tail(self, name: str) -> str:
        log = self.folder / f"{name}.log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-15:]) if log.exists() else ""


@contextlib.contextmanager
def running_apiserver(
    folder: Path, *, feature_gates: Mapping[str, bool] | None = None
) -> Iterator[ApiServer]:
    """An API server for as long as the block runs."""
    server = ApiServer(folder, feature_gates or {})
    try:
        server.start()
        yield server
    finally:
        server.stop()


def install_crds(server: ApiServer, folder: Path) -> None:
    """Applies every CustomResourceDefinition of a folder and waits until its kind can be used.

    Raises:
        ApiServerFailed: one was refused, or its kind did not come up.
    """
    for path in sorted(folder.glob("*.yaml")):
        # JSON is YAML, and the server reads YAML: the file goes as it is.
        name = path.stem.removeprefix("superinfer.dev_")
        code, answer = server.apply(
            f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}.superinfer.dev",
            path.read_bytes(),
        )
        if code not in (200, 201):
            raise ApiServerFailed(f"{path.name} was refused: {answer.get('message', answer)}")
        deadline = time.monotonic() + _START_S
        while server.request("GET", f"/apis/superinfer.dev/v1alpha1/{name}")[0] != 200:
            if time.monotonic() > deadline:
                raise ApiServerFailed(f"{name} cannot be listed")
            time.sleep(_PROBE_S)


def apiserver_missing() -> list[str]:
    """Binaries that have to be built first."""
    return missing(API_SERVER, ETCD)


def _with_us() -> list[str]:
    """Makes a process end when this one is killed and can clean nothing up; where the system has the tool."""
    tool = shutil.which("setpriv")
    return [tool, "--pdeathsig", "TERM", "--"] if tool is not None else []


def _document(raw: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(raw)
    except ValueError:
        return {"text": raw.decode(errors="replace")}
    return parsed if isinstance(parsed, dict) else {"value": parsed}


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _end(process: subprocess.Popen[bytes] | None) -> None:
    if process is None or process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _write_keys(private: Path, public: Path) -> None:
    """The key service account tokens are signed with."""
    for arguments in (
        ["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", str(private)],
        ["pkey", "-in", str(private), "-pubout", "-out", str(public)],
    ):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)  # noqa: S603, S607
