"""Certificates decide who may do what, and are replaced while the sidecar runs."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import grpc.aio
import pytest

from superinfer_core.api.v1alpha1.labels import INGRESS_TLS_NAME, executor_tls_name
from superinfer_operator.certificates import Terms, next_authority, next_leaf
from superinfer_proto.v1 import sidecar_pb2_grpc
from superinfer_sidecar.__main__ import main
from superinfer_sidecar.peers import Peers
from superinfer_sidecar.settings import SidecarSettings, TlsFiles, parse_settings

POOL = executor_tls_name("smollm", "ml")
OTHER_POOL = executor_tls_name("other", "ml")


@dataclass
class Office:
    """An authority and the files it made."""

    folder: Path
    authority: dict[str, bytes] | None = None

    def issue(self, name: str, *, years: int = 0) -> TlsFiles:
        """The files of one name, new ones if asked for a later time."""
        now = datetime.now(UTC) + timedelta(days=365 * years)
        authority = next_authority(self.authority, now, Terms())
        self.authority = authority.items
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        held = {path.name: path.read_bytes() for path in folder.iterdir()} or None
        for item, content in next_leaf(held, authority, name, now, Terms()).items():
            (folder / item).write_bytes(content)
        return TlsFiles(folder / "tls.crt", folder / "tls.key", folder / "ca.crt")


@pytest.fixture
def office(tmp_path):
    (tmp_path / "office").mkdir()
    return Office(tmp_path / "office")


def channel_of(files, target, name):
    credentials = grpc.ssl_channel_credentials(
        files.ca.read_bytes(), files.key.read_bytes(), files.cert.read_bytes()
    )
    return grpc.aio.secure_channel(target, credentials, options=(("grpc.ssl_target_name_override", name),))


async def greeting(channel):
    """Name of the executor that greets, or the status that refuses."""
    async with channel:
        call = sidecar_pb2_grpc.SidecarStub(channel).Serve()
        try:
            message = await call.read()
        except grpc.aio.AioRpcError as refused:
            return refused.code(), refused.details()
        if message is grpc.aio.EOF:
            return await call.code(), await call.details()
        call.cancel()
        return message.info.executor, ""


@pytest.mark.parametrize(
    ("name", "served"),
    [
        pytest.param(INGRESS_TLS_NAME, True, id="the ingress"),
        pytest.param(POOL, False, id="a sidecar of the same pool"),
        pytest.param(OTHER_POOL, False, id="a sidecar of another pool"),
    ],
)
async def test_only_the_ingress_submits_work(site, office, name, served):
    sidecar = await site.start_sidecar(listen="127.0.0.1:0", tls=office.issue(POOL), tls_pool_name=POOL)
    answer, why = await greeting(channel_of(office.issue(name), f"127.0.0.1:{sidecar.port}", POOL))
    if served:
        assert answer == "e0"
    else:
        assert answer is grpc.StatusCode.PERMISSION_DENIED
        assert INGRESS_TLS_NAME in why
        assert name in why


async def test_a_peer_of_another_authority_or_without_a_certificate_gets_no_connection(
    site, office, tmp_path
):
    sidecar = await site.start_sidecar(listen="127.0.0.1:0", tls=office.issue(POOL), tls_pool_name=POOL)
    target = f"127.0.0.1:{sidecar.port}"
    (tmp_path / "foreign").mkdir()
    foreign = Office(tmp_path / "foreign").issue(INGRESS_TLS_NAME)
    ours = (tmp_path / "office" / POOL / "ca.crt").read_bytes()
    named = (("grpc.ssl_target_name_override", POOL),)
    for credentials in (
        grpc.ssl_channel_credentials(ours),
        grpc.ssl_channel_credentials(ours, foreign.key.read_bytes(), foreign.cert.read_bytes()),
    ):
        answer, _ = await greeting(grpc.aio.secure_channel(target, credentials, options=named))
        assert answer is grpc.StatusCode.UNAVAILABLE
    answer, _ = await greeting(grpc.aio.insecure_channel(target))
    assert answer is grpc.StatusCode.UNAVAILABLE


async def test_certificates_are_replaced_while_it_runs(site, office):
    """Years later every file is another one: the old authority is gone, nobody restarted anything."""
    sidecar = await site.start_sidecar(listen="127.0.0.1:0", tls=office.issue(POOL), tls_pool_name=POOL)
    target = f"127.0.0.1:{sidecar.port}"
    before = office.issue(INGRESS_TLS_NAME)
    old = (before.cert.read_bytes(), before.key.read_bytes(), before.ca.read_bytes())
    assert (await greeting(channel_of(before, target, POOL)))[0] == "e0"
    office.authority = None
    for path in (*(office.folder / POOL).iterdir(), *(office.folder / INGRESS_TLS_NAME).iterdir()):
        path.unlink()
    office.issue(POOL)
    renewed = office.issue(INGRESS_TLS_NAME)
    assert (await greeting(channel_of(renewed, target, POOL)))[0] == "e0"
    outdated = grpc.ssl_channel_credentials(renewed.ca.read_bytes(), old[1], old[0])
    named = (("grpc.ssl_target_name_override", POOL),)
    answer, _ = await greeting(grpc.aio.secure_channel(target, outdated, options=named))
    assert answer is grpc.StatusCode.UNAVAILABLE


async def test_files_that_are_being_replaced_leave_the_last_good_ones_in_use(site, office):
    files = office.issue(POOL)
    sidecar = await site.start_sidecar(listen="127.0.0.1:0", tls=files, tls_pool_name=POOL)
    ingress = office.issue(INGRESS_TLS_NAME)
    files.key.unlink()
    answer, _ = await greeting(channel_of(ingress, f"127.0.0.1:{sidecar.port}", POOL))
    assert answer == "e0"


def test_without_certificates_no_channel_leaves_this_machine():
    peers = Peers(SidecarSettings("127.0.0.1:0", Path("engine.sock"), "e0"))
    with pytest.raises(PermissionError, match="mutual TLS"):
        peers.open_channel("192.0.2.7:7443")


def test_a_pool_name_without_certificates_is_refused(capsys):
    command = ["--listen", "127.0.0.1:0", "--engine-socket", "x", "--executor-name", "e0"]
    with pytest.raises(SystemExit):
        parse_settings([*command, "--tls-pool-name", POOL])
    assert "--tls-cert" in capsys.readouterr().err


def test_certificates_that_are_not_there_are_said_so(tmp_path, capfd):
    command = ["--listen", "127.0.0.1:0", "--engine-socket", str(tmp_path / "x"), "--executor-name", "e0"]
    missing = [f"--tls-{item}={tmp_path / 'nothing'}" for item in ("cert", "key", "ca")]
    assert main([*command, *missing]) == 2
    assert "nothing" in capfd.readouterr().err
