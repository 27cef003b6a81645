"""A real API server takes the claims of executors, and gives them to nobody else."""

import pytest

from superinfer_core.placement import ExecutorPhase
from superinfer_kube.testing.apiserver import ApiServer
from superinfer_operator.pools.claims import resource_claim
from superinfer_operator.watching.pods import ExecutorPod

pytestmark = pytest.mark.apiserver


@pytest.mark.parametrize(
    ("shape", "devices"),
    [
        pytest.param("GPU", ["GPU-aaaaaaaa-0000-0000-0000-000000000000"], id="one GPU"),
        pytest.param(
            "GPU", [f"GPU-{n}aaaaaaa-0000-0000-0000-000000000000" for n in range(8)], id="eight GPUs"
        ),
        pytest.param("MIG", ["MIG-aaaaaaaa-0000-0000-0000-000000000000"], id="a MIG instance"),
    ],
)
def test_a_claim_is_taken(apiserver: ApiServer, namespace: str, shape: str, devices: list[str]) -> None:
    pod = ExecutorPod(
        namespace=namespace,
        name="p-0-1",
        uid="uid-1",
        pool=f"{namespace}/p",
        slot=0,
        incarnation=1,
        revision="r",
        chiplet={"shape": shape, "devices": devices},
        phase=ExecutorPhase.PENDING,
    )
    document = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **resource_claim(pod)}
    path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims?fieldValidation=Strict"
    code, answer = apiserver.request("POST", path, document)
    assert code == 201, answer
    assert len(answer["spec"]["devices"]["requests"]) == len(devices)
