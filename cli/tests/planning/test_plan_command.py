"""`superinfer plan`: plans from what kubectl prints, explains refusals, answers what-if, shows trade-offs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

Run = Callable[..., Any]

POOL = {
    "apiVersion": "superinfer.dev/v1alpha1",
    "kind": "ChipletPool",
    "metadata": {"name": "chat", "namespace": "models"},
    "spec": {
        "model": {"name": "m", "source": {"path": "/models/m"}},
        "engine": {"type": "VLLM", "image": "vllm/vllm-openai:latest"},
        "chiplet": {"shape": "MIG", "profile": "3g.71gb"},
        "replicas": 2,
        "allowedNamespaces": ["shop"],
        "profileRef": {"name": "measured"},
    },
}
CONTRACT = {
    "apiVersion": "superinfer.dev/v1alpha1",
    "kind": "SLOContract",
    "metadata": {"name": "checkout", "namespace": "shop"},
    "spec": {
        "poolRef": {"name": "chat", "namespace": "models"},
        "objectives": [
            {"metric": "TTFT", "percentile": 99, "targetMs": 400},
            {"metric": "ITL", "percentile": 99, "targetMs": 40},
        ],
    },
}
PROFILE = {
    "model": "m",
    "engine": "vllm",
    "machine": "h200",
    "dtype": "bfloat16",
    "step_model": {"base_ms": 8.0, "per_decode_seq_ms": 0.05, "per_prefill_token_ms": 0.1},
    "residuals": [{"quantile": 0.99, "factor": 1.2}],
    "max_num_seqs": 32,
    "max_step_tokens": 2048,
}


def _node(name: str, **allocatable: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": "NVIDIA-H200"}},
        "status": {
            "allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110"}
            | {f"nvidia.com/{key.replace('_', '-').replace('--', '.')}": n for key, n in allocatable.items()},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _topology(name: str, layout: tuple[tuple[str, int, int], ...]) -> dict[str, Any]:
    instances = [
        {"uuid": f"MIG-{name}-{n}", "profile": profile, "giID": n + 1, "start": start, "size": size}
        for n, (profile, start, size) in enumerate(layout)
    ]
    gpu = {
        "uuid": f"GPU-{name}", "index": 0, "product": "NVIDIA-H200", "memoryMiB": 143771,
        "migEnabled": bool(layout),
        "health": {"state": "Healthy"}, "instances": instances,
    }  # fmt: skip
    return {
        "apiVersion": "superinfer.dev/v1alpha1",
        "kind": "NodeTopology",
        "metadata": {"name": name},
        "status": {"gpus": [gpu]},
    }


def _write(folder: Path, *documents: dict[str, Any]) -> str:
    file = folder / "cluster.yaml"
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": list(documents)}))
    return str(file)


def test_what_kubectl_prints_is_planned_to_the_device(superinfer: Run, tmp_path: Path) -> None:
    layout = (("3g.71gb", 0, 4), ("2g.35gb", 4, 2))
    nodes = [_node(name, mig_3g__71gb="1", mig_2g__35gb="1") for name in ("a", "b")]
    file = _write(tmp_path, POOL, *nodes, _topology("a", layout), _topology("b", layout))
    done = superinfer("plan", "-f", file, "-o", "json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert answer["complete"]
    assert [(one["node"], one["devices"]) for one in answer["create"]] == [
        ("a", ["MIG-a-0"]),
        ("b", ["MIG-b-0"]),
    ]
    assert [one["peer"] for one in answer["create"]] == [1, 0]


def test_running_executors_are_kept_and_hold_their_devices(superinfer: Run, tmp_path: Path) -> None:
    chiplet = {"node": "a", "resource": "nvidia.com/mig-3g.71gb", "count": 1}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "chat-0-3",
            "namespace": "models",
            "labels": {
                "app.kubernetes.io/managed-by": "superinfer-operator",
                "superinfer.dev/pool": "chat",
                "superinfer.dev/slot": "0",
                "superinfer.dev/incarnation": "3",
                "superinfer.dev/revision": "of-the-cluster",
            },
            "annotations": {"superinfer.dev/chiplet": json.dumps(chiplet)},
        },
        "spec": {"containers": [], "nodeName": "a"},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    nodes = [_node(name, mig_3g__71gb="1") for name in ("a", "b")]
    done = superinfer("plan", "-f", _write(tmp_path, POOL, pod, *nodes), "-o", "json")
    answer = json.loads(done.stdout)
    assert [one["executor"] for one in answer["keep"]] == ["models/chat-0-3"]
    assert [(one["slot"], one["node"]) for one in answer["create"]] == [(1, "b")]


def test_a_refusal_is_explained_for_people_with_advice(superinfer: Run, tmp_path: Path) -> None:
    file = _write(tmp_path, POOL, _node("a", mig_7g__141gb="1"), _topology("a", (("7g.141gb", 0, 8),)))
    done = superinfer("plan", "-f", file)
    assert done.exit_code == 1
    assert "models/chat: MIGLayout: 0/1 nodes can take 2 more executors" in done.stdout
    assert "MIGLayout: a: without 3g.71gb in the MIG layout" in done.stdout
    assert "advice: node a: nvidia.com/mig.config = all-3g.71gb" in done.stdout


def test_what_if_asks_for_other_replicas(superinfer: Run, tmp_path: Path) -> None:
    file = _write(tmp_path, POOL, _node("a", mig_3g__71gb="2"))
    assert superinfer("plan", "-f", file).exit_code == 0
    done = superinfer("plan", "-f", file, "--replicas", "models/chat=3", "-o", "json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["unplaced"][0]["count"] == 1


def test_shapes_of_a_contract_are_traded_off(superinfer: Run, tmp_path: Path) -> None:
    layout = (("3g.71gb", 0, 4), ("2g.35gb", 4, 2), ("1g.18gb", 6, 1))
    nodes = [_node(n, mig_3g__71gb="1", mig_2g__35gb="1", mig_1g__18gb="1") for n in ("a", "b", "c")]
    file = _write(tmp_path, POOL, CONTRACT, *nodes, *(_topology(n, layout) for n in ("a", "b", "c")))
    (tmp_path / "profile.json").write_text(json.dumps(PROFILE))
    done = superinfer(
        "plan", "-f", file, "--profile", f"3g.71gb={tmp_path / 'profile.json'}", "--rps", "20", "-o", "json"
    )
    shapes = {one["shape"]: one for one in json.loads(done.stdout)["shapes"]["shop/checkout"]}
    assert shapes["NVIDIA-H200 3g.71gb"]["measured"]
    assert shapes["NVIDIA-H200 3g.71gb"]["on_front"]
    # A smaller instance is slower, so more of them are needed.
    assert not shapes["NVIDIA-H200 2g.35gb"]["measured"]
    assert shapes["NVIDIA-H200 2g.35gb"]["executors"] > shapes["NVIDIA-H200 3g.71gb"]["executors"]
    assert shapes["NVIDIA-H200 7g.141gb"]["reason"] == "no node could hold one now"
    assert not shapes["NVIDIA-H200 7g.141gb"]["on_front"]


def test_moves_that_would_make_room_are_told_and_nothing_else(superinfer: Run, tmp_path: Path) -> None:
    file = _write(tmp_path, POOL, _node("a", mig_3g__71gb="1"))
    done = superinfer("plan", "-f", file, "--repack")
    assert done.exit_code == 1
    assert "repacking: no moves are worth it" in done.stdout


BAD = [
    ("no such file", ["-f", "missing.yaml"], "missing.yaml: No such file"),
    ("not a number", ["-f", "POOL", "--replicas", "models/chat=x"], "write POOL=NUMBER"),
    ("no such pool", ["-f", "POOL", "--replicas", "models/other=1"], "Pools: models/chat"),
    ("no such profile", ["-f", "POOL", "--profile", "3g.71gb"], "write SHAPE=FILE"),
]


@pytest.mark.parametrize(("arguments", "told"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_input_names_the_fix(superinfer: Run, tmp_path: Path, arguments: list[str], told: str) -> None:
    file = _write(tmp_path, POOL)
    done = superinfer("plan", *(file if one == "POOL" else one for one in arguments))
    assert done.exit_code == 2
    assert told in done.output


def test_a_pool_that_is_not_accepted_is_named(superinfer: Run, tmp_path: Path) -> None:
    broken = {**POOL, "spec": {**POOL["spec"], "chiplet": {"shape": "MIG"}}}
    done = superinfer("plan", "-f", _write(tmp_path, broken, _node("a")))
    assert done.exit_code == 1
    assert "models/chat: not accepted" in done.stdout


def test_people_read_what_is_not_checked_and_why_no_shapes_are_told(superinfer: Run, tmp_path: Path) -> None:
    layout = (("3g.71gb", 0, 4), ("3g.71gb", 4, 4))
    file = _write(tmp_path, POOL, CONTRACT, _node("a", mig_3g__71gb="2"), _topology("a", layout))
    told = superinfer("plan", "-f", file).stdout
    assert "models/chat: memory NotStated: spec.model.memory is not set" in told
    assert "models/chat: shapes: ConfigMap measured of spec.profileRef is not among the files" in told


def test_people_read_the_shapes_the_pool_could_have(superinfer: Run, tmp_path: Path) -> None:
    profile = {
        "kind": "ConfigMap",
        "metadata": {"name": "measured", "namespace": "models"},
        "data": {"profile.json": json.dumps(PROFILE)},
    }
    layout = (("3g.71gb", 0, 4), ("3g.71gb", 4, 4))
    file = _write(tmp_path, POOL, CONTRACT, profile, _node("a", mig_3g__71gb="2"), _topology("a", layout))
    told = superinfer("plan", "-f", file).stdout
    assert "the pool's own 3g.71gb is among them" in told
    assert "NVIDIA-H200 3g.71gb" in told
    assert "Measured" in told
