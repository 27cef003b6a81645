"""What contracts may count on from a pool, out of its spec, its profile and where it runs. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

from superinfer_core.api.v1alpha1 import labels
from superinfer_core.api.v1alpha1.chipletpool import ChipletShape
from superinfer_core.contract.conflicts import PoolFacts, Unloaded
from superinfer_core.placement import Node
from superinfer_core.placement.geometry import product_named
from superinfer_core.pools.replicas import most_executors
from superinfer_core.prediction.profile import Profile
from superinfer_operator.placing.setup import PoolSetup
from superinfer_operator.watching.pods import ExecutorPod

SHORTEST_PROMPT_TOKENS: Final = 1
_QUANTILE: Final = 0.99


def pool_facts(setup: PoolSetup, pods: Iterable[ExecutorPod], nodes: Mapping[str, Node]) -> PoolFacts | None:
    """The facts; None of a pool that cannot be read or is being deleted."""
    pool = setup.record.pool
    if pool is None or setup.record.deleting:
        return None
    spec = pool.spec
    product = _product(spec.placement.node_selector or {}, pods, nodes)
    return PoolFacts(
        namespace=setup.record.namespace,
        name=setup.record.name,
        allowed_namespaces=frozenset(spec.allowed_namespaces or ()),
        isolation=spec.isolation,
        max_chiplets=most_executors(spec),
        product=product,
        memory_mib=_memory_mib(setup, product),
        unloaded=_unloaded(setup.profile) if setup.profile is not None else None,
        created=str(setup.record.metadata.get("creationTimestamp") or ""),
        uid=setup.record.uid,
    )


def _product(
    selector: Mapping[str, str], pods: Iterable[ExecutorPod], nodes: Mapping[str, Node]
) -> str | None:
    """The GPU product, where there is only one it can be."""
    if labels.GPU_PRODUCT_LABEL in selector:
        return selector[labels.GPU_PRODUCT_LABEL]
    hosts = [nodes[pod.node] for pod in pods if pod.node in nodes]
    products = {node.labels.get(labels.GPU_PRODUCT_LABEL) for node in hosts}
    return products.pop() if len(products) == 1 else None


def _memory_mib(setup: PoolSetup, product: str | None) -> int | None:
    assert setup.record.pool is not None
    chiplet = setup.record.pool.spec.chiplet
    if chiplet.shape is ChipletShape.CPU:
        return None
    known = product_named(product) if product is not None else None
    if known is None:
        return None
    if chiplet.shape is ChipletShape.GPU:
        return known.memory_mib * (chiplet.count or 1)
    sizes = (p.memory_mib for p in known.mig_profiles if p.name == chiplet.profile)
    return next(sizes, None)


def _unloaded(profile: Profile) -> Unloaded:
    """The best an idle chiplet does: the shortest prompt, one sequence, at the quantile promises use."""
    steps, factor = profile.steps, profile.factor(_QUANTILE)
    ttft_ms = steps.prefill_ms(SHORTEST_PROMPT_TOKENS, chunk_tokens=profile.max_step_tokens) * factor
    itl_ms = steps.step_ms(decode_seqs=1) * factor
    return Unloaded(ttft_ms=round(ttft_ms, 1), itl_ms=round(itl_ms, 1), e2e_ms=round(ttft_ms, 1))
