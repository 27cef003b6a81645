"""Engines and sidecars that die, executors that fall silent, an ingress that shuts down."""

import concurrent.futures
import shutil
import signal
import subprocess

import pytest


def reads(ingress, tokens, **more):
    """A whole streamed answer."""
    return ingress.chat(tokens, stream=True, **more)


def test_a_stream_that_nobody_takes_up_ends_with_an_event(rig, kit):
    executor = rig.executor(step_ms=10, die_after_steps=30)
    ingress = rig.ingress([executor], [kit.contract("gold", availability="99")], resume={"within": 0.5})
    answer = reads(ingress, 2000, headers=kit.under("gold"))
    assert answer.status_code == 200
    assert b"[DONE]" not in answer.content
    assert b'"code":"engine_failed"' in answer.content
    ingress.idle()
    assert ingress.attainment("shop/gold")["availability"]["missed"] == 1


def test_a_plain_request_that_nobody_takes_up_is_a_502(rig):
    executor = rig.executor(step_ms=10, die_after_steps=10)
    ingress = rig.ingress([executor], resume={"within": 0.5})
    answer = ingress.chat(2000)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "engine_failed")
    ingress.idle()


@pytest.mark.parametrize("stream", [True, False])
def test_the_only_sidecar_killed_under_a_request_is_a_well_formed_error(rig, kit, stream):
    executor = rig.executor(step_ms=10)
    ingress = rig.ingress([executor], resume={"within": 0.5})
    with concurrent.futures.ThreadPoolExecutor() as pool:
        running = pool.submit(ingress.chat, 2000, stream=stream)
        kit.until(lambda: ingress.metric("superinfer_ledger_tokens") > 0, "the first token")
        executor.sidecar.signal(signal.SIGKILL)
        answer = running.result()
    if stream:
        assert answer.status_code == 200
        assert answer.content.rstrip().endswith(b"}")
        assert b"engine_failed" in answer.content.splitlines()[-2]
    else:
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "engine_failed")
    ingress.idle()
    again = ingress.chat(1)
    assert (again.status_code, again.json()["error"]["code"]) == (503, "no_executors")


def test_an_ingress_finds_its_executor_again(rig, kit):
    executor = rig.executor()
    ingress = rig.ingress([executor])
    executor.sidecar.stop()
    kit.until(lambda: ingress.client.get("/readyz").status_code == 503, "the loss to be seen")
    socket = executor.address.removesuffix(".grpc").removeprefix("unix:") + ".sock"
    rig._start(
        "sidecar-again",
        "superinfer_sidecar",
        *("--listen", executor.address, "--engine-socket", socket, "--executor-name", executor.name),
        *("--metrics-port", "-1"),
    )
    kit.until(lambda: ingress.client.get("/readyz").status_code == 200, "the executor to be found")
    assert ingress.chat(1).status_code == 200


def test_a_sidecar_that_falls_silent_is_given_up(rig, kit):
    executor = rig.executor(step_ms=10)
    ingress = rig.ingress([executor], staleAfterMs=300, deadAfterMs=600, resume={"within": 0.5})
    with concurrent.futures.ThreadPoolExecutor() as pool:
        running = pool.submit(ingress.chat, 2000, stream=True)
        kit.until(lambda: ingress.metric("superinfer_ledger_tokens") > 0, "the first token")
        executor.sidecar.signal(signal.SIGSTOP)
        try:
            assert b"engine_failed" in running.result(timeout=20).content
            answer = ingress.chat(1)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_executors")
        finally:
            executor.sidecar.signal(signal.SIGCONT)
    kit.until(lambda: ingress.chat(1).status_code == 200, "the executor to come back")


def test_new_work_goes_to_the_executor_that_is_left(rig, kit):
    one, two = rig.executor(), rig.executor()
    ingress = rig.ingress([one, two])
    kit.until(lambda: ingress.metric("superinfer_executor_serving") == 2, "both executors")
    one.sidecar.signal(signal.SIGKILL)
    kit.until(lambda: ingress.metric("superinfer_executor_serving") == 1, "the loss to be seen")
    assert {ingress.chat(1).headers["x-superinfer-executor"] for _ in range(5)} == {two.name}


def test_load_spreads_over_equal_executors(rig, kit):
    one, two = rig.executor(step_ms=10, max_num_seqs=2), rig.executor(step_ms=10, max_num_seqs=2)
    ingress = rig.ingress([one, two])
    kit.until(lambda: ingress.metric("superinfer_executor_serving") == 2, "both executors")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: ingress.chat(20), range(8)))
    assert {answer.status_code for answer in answers} == {200}
    names = [answer.headers["x-superinfer-executor"] for answer in answers]
    assert min(names.count(one.name), names.count(two.name)) >= 2


def test_shutting_down_finishes_streams_and_refuses_new_work(rig, kit):
    executor = rig.executor(step_ms=10)
    ingress = rig.ingress([executor])
    with concurrent.futures.ThreadPoolExecutor() as pool:
        running = pool.submit(ingress.chat, 300, stream=True)
        kit.until(lambda: ingress.metric("superinfer_ledger_tokens") > 0, "the first token")
        ingress.process.signal(signal.SIGTERM)
        kit.until(lambda: ingress.client.get("/readyz").status_code == 503, "draining")
        refused = ingress.chat(1)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
        assert refused.headers["retry-after"]
        assert ingress.client.get("/healthz").status_code == 200
        assert running.result().content.endswith(b"data: [DONE]\n\n")
    assert ingress.process.child.wait(10) == 0


def test_when_the_grace_is_over_a_stream_ends_with_an_event(rig, kit):
    executor = rig.executor(step_ms=10)
    ingress = rig.ingress([executor], shutdownGrace=0.3)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        running = pool.submit(ingress.chat, 5000, stream=True)
        kit.until(lambda: ingress.metric("superinfer_ledger_tokens") > 0, "the first token")
        ingress.process.signal(signal.SIGTERM)
        assert b'"code":"shutting_down"' in running.result().content
    assert ingress.process.child.wait(10) == 0


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificates with openssl")
def test_prompts_travel_to_a_sidecar_under_mutual_tls(rig, kit):
    directory = rig.directory

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)

    openssl(
        *(
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ),
        *("-subj", "/CN=both sides", "-addext", "subjectAltName=IP:127.0.0.1"),
        *("-keyout", "key.pem", "-out", "cert.pem"),
    )
    key, cert = str(directory / "key.pem"), str(directory / "cert.pem")
    socket = directory / "engine.sock"
    rig.engine(socket)
    sidecar = rig._start(
        "sidecar-tls",
        "superinfer_sidecar",
        *("--listen", "127.0.0.1:0", "--engine-socket", str(socket), "--executor-name", "far"),
        *("--metrics-port", "-1", "--tls-cert", cert, "--tls-key", key, "--tls-ca", cert),
    )
    executor = kit.Executor("far", f"127.0.0.1:{sidecar.wait_ready()['port']}")
    ingress = rig.ingress([executor], tls={"ca": cert, "cert": cert, "key": key})
    assert ingress.chat(2).status_code == 200
    plain = rig.ingress([executor], wait=False)
    assert plain.chat(2).status_code == 503


@pytest.mark.parametrize(
    ("text", "names"),
    [
        pytest.param("port: 99999999", "port", id="a port that is none"),
        pytest.param("prot: 8000", "prot", id="a typing mistake"),
        pytest.param(
            "executors: [{name: a, address: 'x:1'}, {name: a, address: 'y:1'}]", "twice", id="a name twice"
        ),
        pytest.param(
            "executors: [{name: a, address: '10.0.0.9:7000'}]", "insecure", id="prompts in the clear"
        ),
        pytest.param("port: [", "ingress.yaml", id="not YAML"),
    ],
)
def test_a_wrong_setting_is_named_and_nothing_starts(tmp_path, capfd, text, names):
    from superinfer_ingress.__main__ import main

    path = tmp_path / "ingress.yaml"
    path.write_text(text)
    assert main(["--config", str(path)]) == 2
    assert names in capfd.readouterr().err
