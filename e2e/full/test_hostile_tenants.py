"""A tenant who is careless, or means harm: what goes wrong stays in its namespace, and is told there."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.conftest import SHOP, until_contract, until_ready
from e2e.harness import release, samples
from e2e.harness.objects import Object, apply, condition, delete, get, kubectl, pods_of, until
from e2e.harness.traffic import Door, Outcome, Traffic

POOL = "stubs"
TENANT = "tenant"
_ASK_A_STRANGER = """
import grpc, sys
tls = {name: open(f"/etc/superinfer/tls/{name}", "rb").read() for name in ("ca.crt", "tls.key", "tls.crt")}
credentials = grpc.ssl_channel_credentials(tls["ca.crt"], tls["tls.key"], tls["tls.crt"])
options = [("grpc.ssl_target_name_override", "stubs.shop.pool.superinfer.dev")]
channel = grpc.secure_channel(f"{sys.argv[1]}:7443", credentials, options)
for method in ("Sidecar/Serve", "Checkpoint/Fetch", "Checkpoint/Locate", "Checkpoint/Replicate"):
    try:
        list(channel.stream_stream(f"/superinfer.v1.{method}")(iter([b""]), timeout=10))
        print(method, "ANSWERED")
    except grpc.RpcError as error:
        print(method, error.code().name)
"""


@pytest.fixture
def tenant(stubs: str) -> Iterator[str]:
    """A namespace beside the shop's, as strict as that one."""
    apply(samples.namespace(TENANT))
    yield TENANT
    kubectl("delete", "namespace", TENANT, "--timeout=180s", timeout_s=200)


@pytest.fixture
def others(door: Door, gold: str, tenant: str) -> Iterator[Traffic]:
    """Requests of the shop, none of which may notice anything."""
    traffic = Traffic(door, model=POOL, contract=f"{SHOP}/{gold}", clients=2, max_tokens=20)
    with traffic.running():
        yield traffic
        began = time.monotonic()
        until(
            lambda: traffic.count(Outcome.SERVED, since=began),
            lambda seen: seen >= 3,
            within_s=60,
            what="it serves to the end",
        )
    assert traffic.failures() == []
    assert not traffic.codes()


def _pool(name: str, replicas: int = 1) -> Object:
    document = samples.stub_pool(name, TENANT, replicas=replicas)
    document["spec"]["chiplet"] = {"shape": "CPU"}
    return document


def _until_told(name: str, kind: str, words: str) -> None:
    until(
        lambda: condition(get("chippool", name, TENANT), kind),
        lambda seen: seen.get("status") == "False" and words in seen.get("message", ""),
        within_s=90,
        what=f"pool {name} has {kind}=False and says {words!r}",
    )


def _restarts() -> dict[str, int]:
    pods = [*release.pods("operator"), *release.pods("ingress")]
    return {pod["metadata"]["name"]: pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods}


def test_a_pool_nested_without_end_stops_nobody(others: Traffic, tmp_path: Path) -> None:
    """A podTemplate 5,000 levels deep: named in its pool; operator and ingress go on, and new ones start."""
    before = _restarts()
    document = json.dumps(_pool("deep"))
    nested = '{"a":' * 5_000 + "1" + "}" * 5_000
    text = document.replace('"podTemplate": {"spec": {', '"podTemplate": {"spec": {"x": ' + nested + ", ", 1)
    file = tmp_path / "deep.json"
    file.write_text(text)
    # kubectl's own reading gives up on it; the API server does not.
    path = f"/apis/superinfer.dev/v1alpha1/namespaces/{TENANT}/chipletpools"
    kubectl("create", "--raw", path, f"--filename={file}")
    until(
        lambda: kubectl("get", "--raw", f"{path}/deep"),
        lambda seen: "nested deeper than 64 levels" in seen,
        within_s=60,
        what="the pool says what is wrong with it",
    )
    apply(_pool("next"))
    until_ready("next", TENANT, executors=1)
    assert _restarts() == before
    kubectl("--namespace", release.NAMESPACE, "rollout", "restart", "deployment/superinfer-operator")
    kubectl("--namespace", release.NAMESPACE, "rollout", "restart", "deployment/superinfer-ingress")
    for name in ("operator", "ingress"):
        words = ("rollout", "status", f"deployment/superinfer-{name}", "--timeout=150s")
        kubectl("--namespace", release.NAMESPACE, *words, timeout_s=170)
    kubectl("scale", "chippool", "next", "--namespace", TENANT, "--replicas=2")
    until_ready("next", TENANT, executors=2)


def test_a_webhook_that_is_away_is_told(others: Traffic) -> None:
    """Pods of one namespace cannot be made while its webhook is away: the pool says so, others go on."""
    apply(_absent_webhook())
    try:
        # The API server takes a moment to hear of it.
        time.sleep(2)
        apply(_pool("hooked"))
        _until_told("hooked", "Ready", "policy.example.com")
        kubectl("scale", "chippool", POOL, "--namespace", SHOP, "--replicas=4")
        until_ready(POOL, SHOP, executors=4)
        kubectl("scale", "chippool", POOL, "--namespace", SHOP, "--replicas=3")
    finally:
        delete("validatingwebhookconfiguration", "away")
    until_ready("hooked", TENANT, executors=1)
    until_ready(POOL, SHOP, executors=3)


def _absent_webhook() -> Object:
    service = {"name": "nobody", "namespace": TENANT, "path": "/"}
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    hook = {
        "name": "policy.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "timeoutSeconds": 2,
        "clientConfig": {"service": service},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": TENANT}},
        "rules": [rule],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "away"},
        "webhooks": [hook],
    }


def test_a_quota_that_leaves_no_room_is_told(others: Traffic) -> None:
    """No Secret may be made in a namespace: its pool says so, and serves once there is room."""
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small", "namespace": TENANT},
        "spec": {"hard": {"count/secrets": "0"}},
    }
    apply(quota)
    until(
        lambda: get("resourcequota", "small", TENANT).get("status") or {},
        lambda seen: "hard" in seen,
        within_s=30,
        what="the quota holds",
    )
    apply(_pool("poor"))
    _until_told("poor", "Ready", "exceeded quota")
    delete("resourcequota", "small", TENANT)
    until_ready("poor", TENANT, executors=1)


def test_a_certificate_of_another_pool_opens_nothing(others: Traffic) -> None:
    """A tenant's own pool has a certificate of the same authority: other pools' sidecars refuse it."""
    apply(_pool("curious"))
    until_ready("curious", TENANT, executors=1)
    own = pods_of("curious", TENANT)[0]["metadata"]["name"]
    victim = pods_of(POOL, SHOP)[0]["status"]["podIP"]
    asked = ("exec", own, "--container=sidecar", "--", "python", "-c", _ASK_A_STRANGER, victim)
    answers = dict(line.split() for line in kubectl("--namespace", TENANT, *asked).splitlines())
    assert len(answers) == 4
    assert answers["Sidecar/Serve"] == "PERMISSION_DENIED"
    # The pool of stubs keeps no checkpoints; one that does denies these, too.
    assert set(answers.values()) <= {"PERMISSION_DENIED", "UNIMPLEMENTED"}, answers


def test_the_authority_is_lost(others: Traffic) -> None:
    """The Secret of the authority is deleted: requests go on, and what is made afterwards is served, too."""
    kubectl("--namespace", release.NAMESPACE, "delete", "secret", "superinfer-ca")
    until(
        lambda: kubectl("--namespace", release.NAMESPACE, "get", "secret", "superinfer-ca", "--output=name"),
        bool,
        within_s=60,
        what="there is an authority again",
    )
    kubectl("delete", "pod", pods_of(POOL, SHOP)[0]["metadata"]["name"], "--namespace", SHOP, "--wait=false")
    kubectl("scale", "chippool", POOL, "--namespace", SHOP, "--replicas=4")
    until_ready(POOL, SHOP, executors=4)
    kubectl("scale", "chippool", POOL, "--namespace", SHOP, "--replicas=3")
    until_ready(POOL, SHOP, executors=3)


def test_a_hundred_labels_of_other_tools(door: Door, stubs: str, gold: str) -> None:
    """A pool and a contract with a hundred labels each are served as ever."""
    words = [f"tool-{number}=x" for number in range(100)]
    kubectl("label", "chippool", POOL, "--namespace", SHOP, *words)
    kubectl("label", "slo", gold, "--namespace", SHOP, *words)
    try:
        until_contract(gold, SHOP, "Ready")
        traffic = Traffic(door, model=POOL, contract=f"{SHOP}/{gold}", clients=1, max_tokens=5)
        with traffic.running():
            until(
                lambda: traffic.count(Outcome.SERVED), lambda seen: seen >= 3, within_s=60, what="it serves"
            )
        assert traffic.failures() == []
        assert not traffic.codes()
    finally:
        kubectl("label", "chippool", POOL, "--namespace", SHOP, *(f"tool-{n}-" for n in range(100)))
