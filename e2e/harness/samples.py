"""The objects the cases work with: MOCK hardware, pools, contracts and keys, as plain documents.

Every worker is the same MOCK node: one H200 cut into two MIG instances of 3g.71gb, and one whole H200. No GPU
is behind them: the pool with the real engine runs vLLM on the CPU, every other pool runs the engine stub.
"""

from __future__ import annotations

import json
from typing import Any, Final

from e2e.cluster import layout
from e2e.cluster.nodes import worker_names
from e2e.harness.objects import Object

API: Final = "superinfer.dev/v1alpha1"
MIG_PROFILE: Final = "3g.71gb"
MIG_RESOURCE: Final = f"nvidia.com/mig-{MIG_PROFILE}"
MIG_PER_NODE: Final = 2
KEY: Final = "sk-e2e-0123456789abcdef0123456789abcdef"  # of a test cluster that is thrown away


def namespace(name: str) -> Object:
    """A namespace that enforces the strictest pod security."""
    labels = {"superinfer.dev/e2e": "true", "pod-security.kubernetes.io/enforce": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def real_engine_namespace(name: str) -> Object:
    """A namespace whose pods may mount the node's packages and model (hostPath), which restricted forbids."""
    document = namespace(name)
    document["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = "privileged"
    return document


def mock_nodes() -> dict[str, str]:
    """Descriptions of the workers' MOCK hardware, by ConfigMap item."""
    instances = [{"profile": MIG_PROFILE, "start": start} for start in (0, 4)]
    description = {
        "format": "superinfer-gpumock/v1",
        "product": "NVIDIA H200",
        "gpus": [{"mig": {"enabled": True, "instances": instances}}, {}],
    }
    return {f"{name}.json": json.dumps(description) for name in worker_names()}


def api_keys(name: str, namespace: str) -> Object:
    """A Secret with one API key."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "labels": {"superinfer.dev/api-keys": "true"}},
        "stringData": {"e2e": KEY},
    }


def contract(name: str, namespace: str, **spec: Any) -> Object:
    """A contract that any known key may use."""
    whole = {"access": {"mode": "AnyKey"}, **spec}
    return {
        "apiVersion": API,
        "kind": "SLOContract",
        "metadata": {"name": name, "namespace": namespace},
        "spec": whole,
    }


def within(ttft_ms: int, **spec: Any) -> dict[str, Any]:
    """A spec with one objective on the first token."""
    return {"objectives": [{"metric": "TTFT", "percentile": 99, "targetMs": ttft_ms}], **spec}


def profile(name: str, namespace: str) -> Object:
    """A ConfigMap with a profile such as `superinfer profile` writes."""
    text = {
        "version": 1,
        "model": "any",
        "engine": "stub",
        "machine": "MOCK",
        "dtype": "bfloat16",
        "step_model": {
            "base_ms": 8.0,
            "per_decode_seq_ms": 0.3,
            "per_decode_context_token_ms": 0.0005,
            "per_prefill_token_ms": 0.2,
            "per_prefill_context_token2_ms": 0.00001,
        },
        "residuals": [{"quantile": 0.5, "factor": 1.0}, {"quantile": 0.99, "factor": 1.3}],
        "max_num_seqs": 8,
        "max_step_tokens": 2048,
        "max_model_len": 2048,
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": {"profile.json": json.dumps(text)},
    }


def stub_pool(name: str, namespace: str, *, replicas: int, step_ms: float = 20.0, **spec: Any) -> Object:
    """A pool of engine stubs on MIG instances of the MOCK devices."""
    engine = {
        "type": "Stub",
        "image": "superinfer/executor-stub:dev",
        "maxNumSeqs": 8,
        "maxModelLen": 2048,
        "args": ["--step-ms", str(step_ms)],
    }
    requests = {"cpu": "20m", "memory": "96Mi"}
    whole: dict[str, Any] = {
        "model": {"name": name},
        "engine": engine,
        "chiplet": {"shape": "MIG", "profile": MIG_PROFILE},
        "replicas": replicas,
        "drainSeconds": 20,
        "podTemplate": {"spec": {"containers": [_sized("executor", requests), _sized("sidecar", requests)]}},
    }
    return {
        "apiVersion": API,
        "kind": "ChipletPool",
        "metadata": {"name": name, "namespace": namespace},
        "spec": _merged(whole, spec),
    }


def vllm_pool(name: str, namespace: str, *, model: str = "smollm2", **spec: Any) -> Object:
    """Executors with the real vLLM on the CPU of a worker; one with SmolLM2-135M unless told otherwise.

    Packages and model come from the node (hostPath), which got them from this machine.
    """
    executor = {
        "name": "executor",
        "resources": {"requests": {"cpu": "500m", "memory": "2Gi"}, "limits": {"memory": "6Gi"}},
        "volumeMounts": [
            {"name": "packages", "mountPath": "/opt/vllm/site-packages", "readOnly": True},
            {"name": "models", "mountPath": "/models", "readOnly": True},
        ],
    }
    volumes = [
        {"name": "packages", "hostPath": {"path": layout.NODE_SITE_PACKAGES, "type": "Directory"}},
        {"name": "models", "hostPath": {"path": layout.NODE_MODELS, "type": "Directory"}},
    ]
    engine = {
        "type": "VLLM",
        "image": "superinfer/vllm-mounted:dev",
        "maxNumSeqs": 4,
        "maxModelLen": 1024,
        "args": ["--enforce-eager"],
        "env": _vllm_env(threads=2),
    }
    whole: dict[str, Any] = {
        "model": {"name": model, "source": {"path": f"/models/{model}"}},
        "engine": engine,
        "chiplet": {"shape": "MIG", "profile": MIG_PROFILE},
        "replicas": 1,
        "drainSeconds": 20,
        "podTemplate": {"spec": {"containers": [executor], "volumes": volumes}},
    }
    return {
        "apiVersion": API,
        "kind": "ChipletPool",
        "metadata": {"name": name, "namespace": namespace},
        "spec": _merged(whole, spec),
    }


def tiny_vllm_pool(name: str, namespace: str, *, replicas: int) -> Object:
    """The real vLLM with a tiny model of random weights, on whole MOCK GPUs, its KV copied to another node.

    Float32, so that an answer does not depend on which others share its batch.
    """
    document = vllm_pool(
        name,
        namespace,
        model="tiny",
        engine={
            "maxNumSeqs": 32,
            "maxModelLen": 2048,
            "args": ["--enforce-eager", "--dtype", "float32", "--block-size", "32"],
            "env": _vllm_env(threads=1),
        },
        checkpoint={"memoryMiB": 256},
        replicas=replicas,
    )
    document["spec"]["chiplet"] = {"shape": "GPU", "count": 1}
    return document


def _vllm_env(*, threads: int) -> list[dict[str, str]]:
    variables = {
        "OMP_NUM_THREADS": str(threads),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    return [{"name": name, "value": value} for name, value in variables.items()]


def _sized(container: str, requests: dict[str, str]) -> Object:
    return {"name": container, "resources": {"requests": requests, "limits": {"memory": "256Mi"}}}


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in over.items():
        both = isinstance(value, dict) and isinstance(merged.get(name), dict)
        merged[name] = _merged(merged[name], value) if both else value
    return merged
