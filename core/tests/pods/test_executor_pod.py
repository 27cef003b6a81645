"""The executor pod: what a kubelet, a scheduler and an ingress need of it."""

import json

import pytest

from superinfer_core.api.v1alpha1.chipletpool import ChipletPool
from superinfer_core.pods.beside import disruption_budget, executors_service
from superinfer_core.pods.executor_pod import PoolFiles, Seat, build_executor_pod, revision_of
from superinfer_core.pods.settings import PodSettings

SETTINGS = PodSettings(
    engine_image="vllm:1", stub_image="stub:1", code_image="code:1", sidecar_image="side:1"
)


def pool(**spec):
    made = {"model": {"name": "m", "source": {"path": "/models/m"}}, "chiplet": {"shape": "CPU"}} | spec
    return ChipletPool.model_validate(
        {"metadata": {"name": "p", "namespace": "shop", "uid": "u1"}, "spec": made}
    )


GPU = {"shape": "GPU", "count": 2}
NO_FILES = PoolFiles()
SEAT = Seat(slot=1, incarnation=3, node="n7", chiplet={"node": "n7", "count": 2})


def build(a_pool=None, seat=SEAT, files=NO_FILES, settings=SETTINGS):
    return build_executor_pod(a_pool or pool(), seat, files, settings, revision="abc")


def container(pod, name):
    return next(c for c in pod["spec"]["containers"] if c["name"] == name)


def argument(args, flag):
    return args[args.index(flag) + 1]


def test_identity_names_the_pool_the_slot_and_the_incarnation():
    metadata = build()["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("p-1-3", "shop")
    assert metadata["labels"] == {
        "app.kubernetes.io/name": "superinfer",
        "app.kubernetes.io/component": "executor",
        "app.kubernetes.io/managed-by": "superinfer-operator",
        "superinfer.dev/pool": "p",
        "superinfer.dev/executor": "p-1-3",
        "superinfer.dev/slot": "1",
        "superinfer.dev/incarnation": "3",
        "superinfer.dev/revision": "abc",
    }
    owner = metadata["ownerReferences"][0]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("ChipletPool", "u1", True)
    assert json.loads(metadata["annotations"]["superinfer.dev/chiplet"])["node"] == "n7"


def test_it_is_pinned_through_the_scheduler_so_that_taints_and_devices_are_still_checked():
    spec = build()["spec"]
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert terms["nodeSelectorTerms"] == [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n7"]}]}
    ]
    assert "nodeName" not in spec


def test_it_asks_for_exactly_its_chiplet_whatever_the_template_says():
    template = {
        "spec": {"containers": [{"name": "executor", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}
    }
    seat = Seat(slot=0, incarnation=1, node="n", resource="nvidia.com/gpu", count=2)
    pod = build(pool(chiplet=GPU, podTemplate=template), seat)
    resources = container(pod, "executor")["resources"]
    assert resources["limits"]["nvidia.com/gpu"] == "2"
    assert resources["requests"]["nvidia.com/gpu"] == "2"
    assert "nvidia.com/gpu" not in json.dumps(container(pod, "sidecar"))


def test_it_satisfies_pod_security_restricted():
    pod = build()
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for one in (*pod["spec"]["containers"], *pod["spec"]["initContainers"]):
        assert one["securityContext"]["allowPrivilegeEscalation"] is False, one["name"]
        assert one["securityContext"]["capabilities"] == {"drop": ["ALL"]}, one["name"]
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert not [v for v in pod["spec"]["volumes"] if "hostPath" in v]


def test_a_stock_vllm_image_gets_our_code_from_an_init_container():
    pod = build(pool(engine={"type": "VLLM", "image": "vllm/vllm-openai:x", "maxModelLen": 2048}))
    executor, init = container(pod, "executor"), pod["spec"]["initContainers"][0]
    assert (executor["image"], init["image"]) == ("vllm/vllm-openai:x", "code:1")
    assert executor["command"] == ["python3", "-m", "superinfer_executor"]
    path = next(e["value"] for e in executor["env"] if e["name"] == "PYTHONPATH")
    shared = {m["mountPath"]: m["name"] for m in executor["volumeMounts"]}
    assert shared[path] == init["volumeMounts"][0]["name"]
    assert init["args"] == [init["volumeMounts"][0]["mountPath"]]
    args = executor["args"]
    assert argument(args, "--model") == "/models/m"
    assert args.index("--max-model-len") > args.index("--"), "an engine's argument, not the executor's"


def test_whole_gpus_of_one_executor_are_one_tensor_parallel_group():
    args = container(build(pool(chiplet=GPU)), "executor")["args"]
    assert argument(args, "--tensor-parallel-size") == "2"
    assert "--tensor-parallel-size" not in container(build(), "executor")["args"]


def test_a_stub_needs_neither_model_nor_our_code_injected():
    pod = build(pool(model={"name": "m"}, engine={"type": "Stub", "args": ["--step-ms", "5"]}))
    executor = container(pod, "executor")
    assert executor["image"] == "stub:1"
    assert executor["args"][0] == "stub"
    assert executor["args"][-2:] == ["--step-ms", "5"]
    assert "initContainers" not in pod["spec"]


def test_both_containers_share_the_socket_and_memory_but_not_their_scratch():
    pod = build(pool(checkpoint={}))
    mounts = {
        name: {m["mountPath"]: m["name"] for m in container(pod, name)["volumeMounts"]}
        for name in ("executor", "sidecar")
    }
    for path in ("/run/superinfer", "/dev/shm"):
        assert mounts["executor"][path] == mounts["sidecar"][path]
    assert mounts["executor"]["/tmp"] != mounts["sidecar"]["/tmp"]
    socket = argument(container(pod, "sidecar")["args"], "--engine-socket")
    assert argument(container(pod, "executor")["args"], "--socket") == socket


def test_keys_are_the_sidecars_alone():
    pod = build()
    assert "tls" in [m["name"] for m in container(pod, "sidecar")["volumeMounts"]]
    assert "tls" not in [m["name"] for m in container(pod, "executor")["volumeMounts"]]
    assert argument(container(pod, "sidecar")["args"], "--tls-pool-name") == "p.shop.pool.superinfer.dev"


def test_without_certificates_the_sidecar_is_told_so_explicitly():
    pod = build(settings=PodSettings(tls=False))
    assert "--insecure" in container(pod, "sidecar")["args"]
    assert "tls" not in [v["name"] for v in pod["spec"]["volumes"]]


def test_files_are_mounted_where_the_arguments_name_them():
    files = PoolFiles(profile=("profiles", "profile.3g.71gb.json"), policy=("policies", "policy.yaml"))
    pod = build(files=files)
    volume = next(v for v in pod["spec"]["volumes"] if v["name"] == "profile")
    assert volume["configMap"] == {
        "name": "profiles",
        "items": [{"key": "profile.3g.71gb.json", "path": "profile.json"}],
    }
    for name in ("executor", "sidecar"):
        path = argument(container(pod, name)["args"], "--profile")
        assert path.rpartition("/")[0] in [m["mountPath"] for m in container(pod, name)["volumeMounts"]]


def test_checkpoints_have_one_directory_in_memory_that_is_large_enough():
    checkpoint = {"memoryMiB": 4096, "tiers": ["Gold", "Silver"], "peers": "OtherNode", "intervalMs": 20}
    pod = build(pool(checkpoint=checkpoint))
    engine, sidecar = container(pod, "executor")["args"], container(pod, "sidecar")["args"]
    folder = argument(engine, "--checkpoint-dir")
    assert folder == argument(sidecar, "--checkpoint-dir")
    assert folder.startswith("/dev/shm/")
    assert argument(engine, "--checkpoint-tiers") == "gold,silver"
    assert argument(sidecar, "--checkpoint-peers") == "OtherNode"
    mib = int(argument(engine, "--checkpoint-memory-mib")) + int(argument(sidecar, "--checkpoint-store-mib"))
    assert mib == 4096
    shm = next(v for v in pod["spec"]["volumes"] if v["name"] == "shm")["emptyDir"]
    assert int(shm["sizeLimit"].removesuffix("Mi")) >= mib + 64


def test_a_stub_has_nothing_to_checkpoint():
    pod = build(pool(engine={"type": "Stub"}, checkpoint={}))
    assert not [arg for arg in container(pod, "sidecar")["args"] if arg.startswith("--checkpoint")]


@pytest.mark.parametrize(
    ("spec", "shm_mib", "mounted_by"),
    [
        pytest.param({}, 1024, ["executor"], id="an engine without checkpoints"),
        pytest.param(
            {"checkpoint": {"memoryMiB": 512}}, 1536, ["executor", "sidecar"], id="with checkpoints"
        ),
        pytest.param({"engine": {"type": "Stub"}}, None, [], id="a stub"),
        pytest.param(
            {"engine": {"type": "Stub"}, "checkpoint": {}}, None, [], id="a stub that says checkpoint"
        ),
    ],
)
def test_shared_memory_is_as_large_as_what_is_used_and_no_larger(spec, shm_mib, mounted_by):
    pod = build(pool(**spec))
    shm = next((v["emptyDir"] for v in pod["spec"]["volumes"] if v["name"] == "shm"), None)
    assert shm == (None if shm_mib is None else {"medium": "Memory", "sizeLimit": f"{shm_mib}Mi"})
    mounting = [c["name"] for c in pod["spec"]["containers"] for m in c["volumeMounts"] if m["name"] == "shm"]
    assert mounting == mounted_by


@pytest.mark.parametrize("drain_s", [1, 60, 3600])
def test_everything_that_waits_ends_within_the_grace(drain_s):
    pod = build(pool(drainSeconds=drain_s))
    grace_s = pod["spec"]["terminationGracePeriodSeconds"]
    assert grace_s == drain_s
    wait = container(pod, "executor")["lifecycle"]["preStop"]["exec"]["command"]
    for args, flag in (
        (container(pod, "sidecar")["args"], "--grace-s"),
        (container(pod, "executor")["args"], "--grace-s"),
        (wait, "--timeout-s"),
    ):
        assert 1 <= int(argument(args, flag)) <= grace_s


def test_no_gpu_is_visible_to_what_has_none():
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in container(build(), "executor")["env"]
    on_gpu = build(pool(chiplet=GPU))
    assert "NVIDIA_VISIBLE_DEVICES" not in [e["name"] for e in container(on_gpu, "executor")["env"]]
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in container(on_gpu, "sidecar")["env"]


class TestRevision:
    """A revision changes with what a pod is made from, and with nothing else."""

    def test_it_is_the_same_for_the_same(self):
        assert revision_of(pool(), PoolFiles(), SETTINGS) == revision_of(pool(), PoolFiles(), SETTINGS)

    @pytest.mark.parametrize(
        "change",
        [
            pytest.param({"engine": {"type": "VLLM", "image": "vllm:2"}}, id="image"),
            pytest.param({"engine": {"type": "VLLM", "args": ["--x"]}}, id="engine arguments"),
            pytest.param({"model": {"name": "m", "source": {"path": "/models/n"}}}, id="model"),
            pytest.param({"podTemplate": {"metadata": {"labels": {"a": "b"}}}}, id="template"),
            pytest.param({"drainSeconds": 61}, id="drain time"),
        ],
    )
    def test_it_changes_with_what_pods_are_made_from(self, change):
        assert revision_of(pool(**change), PoolFiles(), SETTINGS) != revision_of(
            pool(), PoolFiles(), SETTINGS
        )

    @pytest.mark.parametrize(
        "change",
        [
            pytest.param({"replicas": 5}, id="replicas"),
            pytest.param({"allowedNamespaces": ["x"]}, id="who may use it"),
            pytest.param({"placement": {"spread": ["Zone"]}}, id="spreading"),
            pytest.param({"autoscaling": {"maxReplicas": 9}}, id="bounds"),
        ],
    )
    def test_it_does_not_change_with_the_rest(self, change):
        assert revision_of(pool(**change), PoolFiles(), SETTINGS) == revision_of(
            pool(), PoolFiles(), SETTINGS
        )

    def test_it_changes_with_the_text_of_its_files(self):
        before = PoolFiles(policy=("c", "policy.yaml"), digest="1")
        after = PoolFiles(policy=("c", "policy.yaml"), digest="2")
        assert revision_of(pool(), before, SETTINGS) != revision_of(pool(), after, SETTINGS)


def test_the_service_selects_executors_of_the_pool_and_lists_only_those_that_serve():
    service = executors_service(pool())
    labels = build()["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert service["spec"]["publishNotReadyAddresses"] is False
    assert service["spec"]["clusterIP"] == "None"
    ports = {p["name"]: p["containerPort"] for p in container(build(), "sidecar")["ports"]}
    assert {p["name"]: p["port"] for p in service["spec"]["ports"]} == ports


def test_a_node_drain_takes_one_executor_at_a_time():
    budget = disruption_budget(pool())
    assert budget["spec"]["maxUnavailable"] == 1
    assert budget["spec"]["selector"]["matchLabels"].items() <= build()["metadata"]["labels"].items()
