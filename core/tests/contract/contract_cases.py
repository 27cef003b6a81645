"""Short ways to say a set of contracts and what became of it."""

from typing import Any

from superinfer_core.api.v1alpha1.slocontract import SLOContractSpec
from superinfer_core.contract.conflicts import PoolFacts, Unloaded
from superinfer_core.contract.inheritance import StoredContract
from superinfer_core.contract.problems import ProblemKind
from superinfer_core.contract.resolution import Resolution
from superinfer_core.slo import Isolation, Metric

POOL = PoolFacts(
    "shop",
    "small",
    allowed_namespaces=frozenset({"guest"}),
    max_chiplets=2,
    product="NVIDIA-H200",
    memory_mib=16_000,
    isolation=Isolation.INSTANCE,
    unloaded=Unloaded(ttft_ms=40.2, itl_ms=8, e2e_ms=100),
)


def contract(name: str, age: int = 0, namespace: str = "shop", uid: str = "", **spec: Any) -> StoredContract:
    """A stored contract; a greater age is newer. `ttft` is short for a TTFT P99 objective."""
    if (ttft := spec.pop("ttft", None)) is not None:
        spec["objectives"] = [{"metric": "TTFT", "percentile": 99, "targetMs": ttft}]
    for reference in ("parentRef", "fallbackRef", "poolRef"):
        if reference in spec:
            spec[reference] = {"name": spec[reference]}
    return StoredContract(
        namespace=namespace,
        name=name,
        spec=SLOContractSpec.model_validate(spec),
        created=f"2026-01-01T00:00:{age:02}Z",
        uid=uid or name,
    )


def kinds(resolution: Resolution) -> dict[str, list[ProblemKind]]:
    return {key: [problem.kind for problem in problems] for key, problems in resolution.problems.items()}


def ttft(resolution: Resolution, key: str) -> int | None:
    return resolution.effective[key].deadline_target_ms(Metric.TTFT)
