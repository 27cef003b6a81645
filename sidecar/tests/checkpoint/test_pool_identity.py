"""Only sidecars of the same pool push, ask or fetch: no certificate, another pool and the ingress cannot."""

from datetime import UTC, datetime

import grpc
import grpc.aio
import pytest

from superinfer_core.api.v1alpha1.labels import INGRESS_TLS_NAME, executor_tls_name
from superinfer_core.checkpoint.peers import Peer
from superinfer_operator.certificates import Terms, next_authority, next_leaf
from superinfer_proto.v1 import checkpoint_pb2, checkpoint_pb2_grpc
from superinfer_sidecar.settings import TlsFiles

POOL = executor_tls_name("smollm", "ml")
OTHER_POOL = executor_tls_name("other", "ml")


@pytest.fixture
def issue(tmp_path):
    """Certificates of one authority."""
    now = datetime.now(UTC)
    authority = next_authority(None, now, Terms())

    def make(name):
        folder = tmp_path / f"tls-{name}"
        folder.mkdir(exist_ok=True)
        for item, content in next_leaf(None, authority, name, now, Terms()).items():
            (folder / item).write_bytes(content)
        return TlsFiles(folder / "tls.crt", folder / "tls.key", folder / "ca.crt")

    return make


def client(address, files=None, *, ca=None):
    options = (("grpc.ssl_target_name_override", POOL),)
    if files is not None:
        credentials = grpc.ssl_channel_credentials(
            files.ca.read_bytes(), files.key.read_bytes(), files.cert.read_bytes()
        )
        return grpc.aio.secure_channel(address, credentials, options=options)
    if ca is not None:
        return grpc.aio.secure_channel(
            address, grpc.ssl_channel_credentials(ca.read_bytes()), options=options
        )
    return grpc.aio.insecure_channel(address)


async def outcomes(channel, tools, block_hash):
    """What each of the three calls is answered with: OK, or a status."""
    stub = checkpoint_pb2_grpc.CheckpointStub(channel)
    stream = tools.stream_of("r", 0)
    found = []

    async def push():
        call = stub.Replicate()
        await call.write(checkpoint_pb2.ReplicateBatch(executor="x", session=1, layout=tools.layout))
        await call.read()
        call.cancel()

    async def locate():
        await stub.Locate(checkpoint_pb2.LocateRequest(layout=tools.layout, streams=[stream]))

    async def fetch():
        request = checkpoint_pb2.FetchRequest(layout=tools.layout)
        request.wanted.add(stream=stream)
        blocks = [each.block_hash async for batch in stub.Fetch(request) for each in batch.increments]
        assert blocks == [block_hash]

    async with channel:
        for call in (push, locate, fetch):
            try:
                await call()
                found.append("OK")
            except grpc.aio.AioRpcError as error:
                found.append(error.code().name)
    return found


async def secured(pool, issue, name="a"):
    sidecar = {"listen": "127.0.0.1:0", "tls": issue(POOL), "tls_pool_name": POOL}
    executor = await pool.start(name, sidecar=sidecar)
    return executor, f"127.0.0.1:{executor.sidecar.port}"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param(POOL, ["OK"] * 3, id="a sidecar of the pool"),
        pytest.param(OTHER_POOL, ["PERMISSION_DENIED"] * 3, id="a sidecar of another pool"),
        pytest.param(INGRESS_TLS_NAME, ["PERMISSION_DENIED"] * 3, id="the ingress"),
    ],
)
async def test_the_certificate_decides(pool, tools, issue, name, expected):
    executor, address = await secured(pool, issue)
    block_hash = executor.writer.save("r", 0)
    await tools.until(lambda: executor.unit.increments.has(block_hash), "the increment")
    assert await outcomes(client(address, issue(name)), tools, block_hash) == expected
    assert executor.counters.refused_peers == expected.count("PERMISSION_DENIED")


async def test_without_a_certificate_there_is_no_connection(pool, tools, issue):
    executor, address = await secured(pool, issue)
    block_hash = executor.writer.save("r", 0)
    for channel in (client(address), client(address, ca=issue(POOL).ca)):
        assert await outcomes(channel, tools, block_hash) == ["UNAVAILABLE"] * 3


async def test_sidecars_of_one_pool_copy_over_mutual_tls(pool, tools, issue):
    first, _ = await secured(pool, issue)
    second, address = await secured(pool, issue, "b")
    first.unit.replicator.peers([Peer("b", address)])
    hashes = [first.writer.save("r", number) for number in range(3)]
    await tools.until(lambda: all(second.unit.store.has(each) for each in hashes), "the copies")
