"""Engines that die and come back, ingresses that leave or do not read, drains, health, metrics, TLS."""

import asyncio
import contextlib
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from superinfer_proto.v1 import sidecar_pb2, sidecar_pb2_grpc
from superinfer_sidecar.load import LoadReporter
from superinfer_sidecar.peers import is_local

LONG = 5000
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def health_of(site: Any, name: str) -> int:
    async with grpc.aio.insecure_channel(f"unix:{site.folder}/sidecar.sock") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        return (await stub.Check(health_pb2.HealthCheckRequest(service=name))).status


async def page(port: int, path: str) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    return int(answer.split()[1]), answer.partition("\r\n\r\n")[2]


@pytest.mark.usefixtures("either_wire")
async def test_an_engine_killed_mid_request_and_restarted(site, submit_of, body_of, spawn, wait_until):
    flags = ("--socket", str(site.socket), "--step-ms", "2", "--max-num-seqs", "1")
    engine = spawn("superinfer_executor.stub", *flags)
    sidecar = await site.start_sidecar()
    await wait_until(lambda: sidecar.ready, "the engine")
    ingress = await site.connect()
    await ingress.send(submit_of("running", body=body_of(LONG)), submit_of("queued", body=body_of(5)))
    await ingress.decision("queued")
    await wait_until(lambda: ingress.tokens("running"), "the first token")
    engine.send_signal(signal.SIGKILL)

    final = await ingress.final("running")
    assert final.error.code == "engine_failed"
    assert final.error.message
    assert (final.request_id, final.attempt) == ("running", 1)
    # What waits is the ingress' to place again, elsewhere or here.
    assert (await ingress.final("queued")).error.code == "engine_failed"
    await wait_until(lambda: not ingress.loads[-1].serving, "a report that says so")
    assert ingress.loads[-1].generation == ""
    assert ingress.loads[-1].queued == 0
    await ingress.send(submit_of("meanwhile"))
    refusal = (await ingress.decision("meanwhile")).refusal
    assert refusal.error.code == "no_executors"
    assert refusal.retry_after_ms > 0

    again = spawn("superinfer_executor.stub", *flags)
    await wait_until(lambda: sidecar.ready, "the engine")
    await ingress.send(submit_of("queued", attempt=2, body=body_of(5)))
    assert (await ingress.final("queued", attempt=2)).usage.completion_tokens == 5
    assert ingress.infos[-1].engine.generation == again.ready["generation"] != engine.ready["generation"]
    await wait_until(lambda: ingress.loads[-1].serving, "a report that says so")
    assert len(sidecar.desk.book) == 0


async def test_health_follows_the_engine_while_alive_stays(site, wait_until):
    sidecar = await site.start_sidecar()
    assert await health_of(site, "") == NOT_SERVING
    assert await health_of(site, "alive") == SERVING
    await site.start_engine()
    await wait_until(lambda: sidecar.ready, "the engine")
    assert await health_of(site, "superinfer.v1.Sidecar") == SERVING
    assert await health_of(site, "ready") == SERVING
    await site.stop_engine()
    await wait_until(lambda: not sidecar.ready, "the loss to be seen")
    assert await health_of(site, "") == NOT_SERVING
    assert await health_of(site, "alive") == SERVING


async def test_reflection_names_the_services(site):
    await site.start_sidecar()
    async with grpc.aio.insecure_channel(f"unix:{site.folder}/sidecar.sock") as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        call = stub.ServerReflectionInfo()
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        answer = await call.read()
        call.cancel()
    names = {service.name for service in answer.list_services_response.service}
    assert {"superinfer.v1.Sidecar", "grpc.health.v1.Health"} <= names


async def test_load_reports_keep_coming_idle_or_not(site, submit_of, body_of, wait_until):
    await site.start_engine(step_ms=1.0, max_num_seqs=1)
    await site.start_sidecar()
    ingress = await site.connect()
    await wait_until(lambda: len(ingress.loads) >= 5, "reports of an idle executor")
    idle = ingress.loads[-1]
    assert (idle.serving, idle.queued, idle.dispatched, idle.back_pressure) == (True, 0, 0, 0.0)
    assert len(idle.step_model) == 5
    await ingress.send(*(submit_of(f"r{i}", body=body_of(LONG)) for i in range(3)))
    await wait_until(lambda: ingress.loads[-1].queued == 2, "a report of the queue")
    busy = ingress.loads[-1]
    assert (busy.dispatched, busy.running) == (1, 1)
    assert busy.queued_prefill_tokens > 0
    assert busy.backlog_ms > 0
    assert busy.back_pressure > 0
    sequences = [load.sequence for load in ingress.loads]
    assert sequences == sorted(set(sequences))


async def test_reports_carry_what_was_learned_of_lengths(site, submit_of, body_of):
    await site.start_engine()
    sidecar = await site.start_sidecar()
    ingress = await site.connect()
    for i in range(4):
        await ingress.send(submit_of(f"r{i}", body=body_of(10)))
        await ingress.final(f"r{i}")
    load = sidecar_pb2.FromSidecar.FromString(LoadReporter(sidecar.desk).make()).load
    assert [entry.contract for entry in load.contracts] == ["shop/gold"]
    assert 8 <= load.contracts[0].output_tokens_p50 <= 12


@pytest.mark.usefixtures("either_wire")
async def test_an_ingress_that_leaves_takes_its_requests_with_it(site, submit_of, body_of, wait_until):
    await site.start_engine(step_ms=1.0, max_num_seqs=2)
    sidecar = await site.start_sidecar()
    leaving, staying = await site.connect(), await site.connect()
    await leaving.send(*(submit_of(f"l{i}", body=body_of(LONG)) for i in range(4)))
    await staying.send(submit_of("stays", body=body_of(10)))
    await staying.decision("stays")
    await leaving.close()
    assert (await staying.final("stays")).usage.completion_tokens == 10
    await wait_until(lambda: len(sidecar.desk.book) == 0, "the book to empty")
    await staying.send(submit_of("after", body=body_of(3)))
    await staying.final("after")
    assert staying.frames[-2].facts.running + staying.frames[-2].facts.waiting <= 1


@pytest.mark.usefixtures("either_wire")
async def test_an_ingress_that_does_not_read_is_cut_off_alone(site, submit_of, body_of, wait_until):
    await site.start_engine(max_model_len=1 << 20)
    sidecar = await site.start_sidecar(stream_buffer_bytes=200_000)
    deaf = await site.connect(reading=False)
    good = await site.connect()
    await deaf.send(*(submit_of(f"deaf{i}", body=body_of(100_000)) for i in range(20)))
    await wait_until(lambda: sidecar.desk.counters.slow_ingresses == 1, "the slow ingress to be cut off")
    assert len(sidecar.desk.book) == 0
    await good.send(submit_of("good", body=body_of(30)))
    assert (await good.final("good")).usage.completion_tokens == 30
    await wait_until(lambda: len(sidecar.links) == 1, "its stream to end")


async def test_a_full_queue_says_saturated_and_when_to_come_back(site, submit_of, body_of):
    await site.start_engine(step_ms=2.0, max_num_seqs=1)
    await site.start_sidecar(max_queued=2)
    ingress = await site.connect()
    await ingress.send(submit_of("runs", body=body_of(LONG)))
    await ingress.decision("runs")
    await ingress.send(*(submit_of(f"r{i}", body=body_of(LONG)) for i in range(4)))
    codes = [(await ingress.decision(f"r{i}")).refusal.error.code for i in range(4)]
    assert codes == ["", "", "saturated", "saturated"]
    assert ingress.decisions["r3", 1].refusal.retry_after_ms >= 1000
    assert site.sidecar.desk.counters.refused["saturated"] == 2


async def test_a_full_queue_makes_sheddable_work_give_way(site, submit_of, slo_of, body_of):
    await site.start_engine(step_ms=2.0, max_num_seqs=1)
    await site.start_sidecar(max_queued=2)
    ingress = await site.connect()
    await ingress.send(submit_of("runs", body=body_of(LONG)))
    await ingress.decision("runs")
    cheap = slo_of("BRONZE", best_effort=True)
    await ingress.send(*(submit_of(f"cheap{i}", body=body_of(3), slo=cheap) for i in range(2)))
    await ingress.decision("cheap1")
    await ingress.send(submit_of("gold", body=body_of(3)))
    assert (await ingress.decision("gold")).admitted
    assert (await ingress.final("cheap1")).error.code == "shed"
    assert not ingress.outputs["cheap0"]


async def test_a_body_larger_than_the_whole_queue_sheds_nobody(site, submit_of, body_of):
    await site.start_engine()
    await site.start_sidecar(max_queued_bytes=1000)
    ingress = await site.connect()
    await ingress.send(submit_of("big", body=body_of(words="x" * 2000)))
    assert (await ingress.decision("big")).refusal.error.code == "too_large"


@pytest.mark.usefixtures("either_wire")
async def test_a_drain_refuses_new_work_and_finishes_the_old(site, submit_of, body_of, wait_until):
    await site.start_engine(step_ms=1.0, max_num_seqs=1)
    sidecar = await site.start_sidecar()
    ingress = await site.connect()
    await ingress.send(submit_of("runs", body=body_of(60)), submit_of("queued", body=body_of(3)))
    await ingress.decision("queued")
    draining = asyncio.create_task(sidecar.drain())
    await wait_until(lambda: ingress.loads[-1].draining, "a report that says so")
    assert await health_of(site, "") == NOT_SERVING
    await ingress.send(submit_of("new"))
    assert (await ingress.decision("new")).refusal.error.code == "shutting_down"
    await draining
    await wait_until(lambda: ingress.ended, "the stream to end")
    assert ingress.tokens("runs") == list(range(60))
    assert ingress.tokens("queued") == [0, 1, 2]
    site.sidecar = None


@pytest.mark.usefixtures("either_wire")
async def test_what_outlasts_the_grace_period_ends_with_an_error(site, submit_of, body_of, wait_until):
    await site.start_engine(step_ms=5.0)
    sidecar = await site.start_sidecar(grace_s=0.05)
    ingress = await site.connect()
    await ingress.send(submit_of("endless", body=body_of(LONG)))
    await ingress.decision("endless")
    await sidecar.drain()
    assert (await ingress.final("endless")).error.code == "shutting_down"
    await wait_until(lambda: ingress.ended, "the stream to end")
    site.sidecar = None


async def test_the_process_serves_and_ends_with_status_0_on_sigterm(site, spawn, submit_of, body_of):
    spawn("superinfer_executor.stub", "--socket", str(site.socket))
    address = f"unix:{site.folder}/sidecar.sock"
    where = ("--listen", address, "--engine-socket", str(site.socket), "--executor-name", "e0")
    process = spawn("superinfer_sidecar", *where, "--metrics-port", "0")
    ingress = await site.connect()
    while not ingress.loads[-1].serving:
        await asyncio.sleep(0.01)
    await ingress.send(submit_of("r", body=body_of(5)))
    await ingress.final("r")
    port = process.ready["metrics_port"]
    assert await page(port, "/readyz") == (200, "ready\n")
    status, text = await page(port, "/metrics")
    assert status == 200
    assert "superinfer_sidecar_finished_total 1.0" in text
    process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(process.wait, 20) == 0


async def test_metrics_count_what_happened_with_bounded_labels(site, submit_of, slo_of, body_of, wait_until):
    await site.start_engine(step_ms=0.1, max_num_seqs=64)
    sidecar = await site.start_sidecar(metrics_port=0)
    ingress = await site.connect()
    contracts = 120
    await ingress.send(
        *(submit_of(f"r{i}", slo=slo_of(contract=f"team/c{i}", ttft_target_ms=1e6)) for i in range(contracts))
    )
    await ingress.send(submit_of("bad", body=b"{}"))
    for i in range(contracts):
        await ingress.final(f"r{i}")
    status, text = await page(sidecar.metrics_port, "/metrics")
    assert status == 200
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(lines["superinfer_sidecar_admitted_total"]) == contracts
    assert float(lines['superinfer_sidecar_refused_total{reason="invalid_request"}']) == 1
    assert float(lines['superinfer_prediction_requests_total{metric="TTFT"}']) == contracts
    assert float(lines['superinfer_sidecar_engine_info{model="stub",type="stub",version="stub"}']) == 1
    slack = [
        name for name in lines if name.startswith("superinfer_slo_slack_time_ms_bucket") and "+Inf" in name
    ]
    assert len(slack) == 101
    assert float(lines['superinfer_slo_slack_time_ms_bucket{contract="other",le="+Inf"}']) == contracts - 100


@pytest.mark.parametrize(
    ("path", "status"), [("/livez", 200), ("/readyz", 503), ("/metrics", 200), ("/secret", 404)]
)
async def test_pages_without_an_engine(site, path, status):
    sidecar = await site.start_sidecar(metrics_port=0)
    assert (await page(sidecar.metrics_port, path))[0] == status


PEERS = {
    "a Unix socket": ("unix:", True),
    "loopback": ("ipv4:127.0.0.1:4321", True),
    "loopback, other number": ("ipv4:127.8.8.8:4321", True),
    "loopback, IPv6": ("ipv6:%5B::1%5D:4321", True),
    "loopback, mapped": ("ipv6:[::ffff:127.0.0.1]:4321", True),
    "another machine": ("ipv4:10.0.0.7:4321", False),
    "another machine, mapped": ("ipv6:[::ffff:10.0.0.7]:4321", False),
    "a name": ("dns:localhost:1", False),
    "nonsense": ("ipv4:nonsense", False),
}


@pytest.mark.parametrize(("peer", "local"), PEERS.values(), ids=PEERS.keys())
def test_who_counts_as_local(peer, local):
    assert is_local(peer) is local


def own_address() -> str:
    """An address of this machine that is not loopback; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        return str(probe.getsockname()[0])


@pytest.mark.parametrize(("insecure", "served"), [(False, False), (True, True)])
async def test_a_peer_of_another_machine_needs_tls_or_permission(site, insecure, served):
    address = own_address()
    sidecar = await site.start_sidecar(listen="0.0.0.0:0", insecure=insecure)
    async with grpc.aio.insecure_channel(f"{address}:{sidecar.port}") as channel:
        call = sidecar_pb2_grpc.SidecarStub(channel).Serve()
        if served:
            assert (await call.read()).info.executor == "e0"
            call.cancel()
        else:
            assert await call.code() == grpc.StatusCode.PERMISSION_DENIED


def make_certificates(folder: Path) -> None:
    """An authority, and a certificate of it for both sides."""
    run = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    ca = ["-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test authority", "-days", "2"]
    subprocess.run([*run, *ca], cwd=folder, check=True, capture_output=True)
    leaf = ["-keyout", "leaf.key", "-out", "leaf.pem", "-subj", "/CN=localhost", "-days", "2"]
    signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "subjectAltName=DNS:localhost"]
    signed += ["-addext", "basicConstraints=critical,CA:FALSE"]
    subprocess.run([*run, *leaf, *signed], cwd=folder, check=True, capture_output=True)


async def test_mutual_tls_lets_only_certified_peers_in(site, tmp_path):
    from superinfer_sidecar.settings import TlsFiles

    make_certificates(tmp_path)
    files = TlsFiles(tmp_path / "leaf.pem", tmp_path / "leaf.key", tmp_path / "ca.pem")
    sidecar = await site.start_sidecar(listen="127.0.0.1:0", tls=files)
    ca, key, cert = ((tmp_path / name).read_bytes() for name in ("ca.pem", "leaf.key", "leaf.pem"))
    target = f"localhost:{sidecar.port}"
    certified = grpc.ssl_channel_credentials(ca, key, cert)
    async with grpc.aio.secure_channel(target, certified) as channel:
        call = sidecar_pb2_grpc.SidecarStub(channel).Serve()
        assert (await call.read()).info.executor == "e0"
        call.cancel()
    for credentials in (grpc.ssl_channel_credentials(ca), None):
        channel = (
            grpc.aio.secure_channel(target, credentials) if credentials else grpc.aio.insecure_channel(target)
        )
        async with channel:
            with pytest.raises(grpc.RpcError):
                await sidecar_pb2_grpc.SidecarStub(channel).Serve().read()


async def read_to_the_end(call: Any) -> None:
    with contextlib.suppress(grpc.RpcError):
        while await call.read() is not grpc.aio.EOF:
            pass


async def test_a_stream_of_nonsense_ends_alone(site, submit_of, body_of):
    await site.start_engine(step_ms=1.0)
    await site.start_sidecar()
    good = await site.connect()
    await good.send(submit_of("good", body=body_of(30)))
    async with grpc.aio.insecure_channel(f"unix:{site.folder}/sidecar.sock") as channel:
        call = channel.stream_stream("/superinfer.v1.Sidecar/Serve")()
        await call.write(b"\xff\xff\xff not a message")
        reading = asyncio.create_task(read_to_the_end(call))
        assert await call.code() == grpc.StatusCode.INVALID_ARGUMENT
        await reading
    assert (await good.final("good")).usage.completion_tokens == 30


async def test_promises_without_any_measurement_can_be_refused(site, submit_of, slo_of, body_of):
    await site.start_engine(step_ms=1.0)
    await site.start_sidecar(refuse_unmeasured=True)
    ingress = await site.connect()
    await ingress.send(submit_of("too early"))
    assert (await ingress.decision("too early")).refusal.error.code == "slo_infeasible"
    await ingress.send(submit_of("learn", body=body_of(300), slo=slo_of(best_effort=True)))
    await ingress.final("learn")
    await ingress.send(submit_of("later"))
    assert (await ingress.decision("later")).admitted
