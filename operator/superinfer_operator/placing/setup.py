"""What a pool comes to: its files, the revision of its pods, its demand, or why it is not accepted. Pure."""

import hashlib
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from superinfer_core.api.v1alpha1.chipletpool import ChipletPool, ChipletShape, EngineType, Interconnect
from superinfer_core.api.v1alpha1.pool_status import PoolReason
from superinfer_core.placement import ChipletDemand, PoolDemand
from superinfer_core.placement.demand import DEFAULT_SPREAD
from superinfer_core.placement.memory import MemoryNeed, need_of_pool
from superinfer_core.placement.node import TaintEffect, Toleration
from superinfer_core.placement.pool_shapes import PoolShapes
from superinfer_core.placement.shape_options import ShapeKey, shape_of
from superinfer_core.placement.shapes import WHOLE_GPU
from superinfer_core.pods.engine_container import engine_image
from superinfer_core.pods.executor_pod import (
    PoolFiles,
    Seat,
    build_executor_pod,
    revision_of,
    template_document,
)
from superinfer_core.pods.quantity import pod_requests
from superinfer_core.pods.settings import PodSettings
from superinfer_core.pods.template import template_problems
from superinfer_core.pools.replicas import replicas_of
from superinfer_core.pools.standing import PoolRefusal
from superinfer_core.prediction.profile import Profile, ProfileInvalid
from superinfer_operator.watching.objects import TextRecord
from superinfer_operator.watching.pools import PoolRecord

PROFILE_ITEM: Final = "profile.json"
POLICY_ITEM: Final = "policy.yaml"
_OTHER_PROFILE: Final = re.compile(r"profile\.(gpu|[1-7]g\.[0-9]+gb(?:\.me)?)\.json")

Texts = Mapping[tuple[str, str], TextRecord]


_NO_FILES: Final = PoolFiles()


@dataclass(frozen=True, slots=True)
class PoolSetup:
    """A pool made ready for placement.

    Attributes:
        record: as it is stored.
        files: what its references come to.
        revision: of its pods; "" where it is not accepted.
        demand: for placement; None where it is not accepted.
        profile: measured on its chiplet, None without one.
        profiles: the same and those of other shapes from the same ConfigMap, by shape.
        refusal: why it is not accepted.
        missing: ConfigMaps (namespace, name) it refers to that are not watched: absent, or without the label.
        need: GPU memory of one chiplet; None where the pool does not say.
        shapes: that keep the promises made on it; None where nobody looked.
    """

    record: PoolRecord
    files: PoolFiles = _NO_FILES
    revision: str = ""
    demand: PoolDemand | None = None
    profile: Profile | None = None
    profiles: Mapping[ShapeKey, Profile] = field(default_factory=dict)
    refusal: PoolRefusal | None = None
    missing: tuple[tuple[str, str], ...] = ()
    need: MemoryNeed | None = None
    shapes: PoolShapes | None = None

    @property
    def key(self) -> str:
        """namespace/name."""
        return self.record.key

    def needing(self, need: MemoryNeed | None) -> "PoolSetup":
        """The same with another need of memory."""
        if self.demand is None or need == self.need:
            return self
        wanted = need.chiplet_mib if need is not None else None
        chiplet = replace(self.demand.chiplet, memory_mib=wanted)
        return replace(self, need=need, demand=replace(self.demand, chiplet=chiplet))


def set_up(record: PoolRecord, texts: Texts, settings: PodSettings) -> PoolSetup:
    """What a pool comes to."""
    pool = record.pool
    if pool is None:
        lines = "; ".join(problem.describe() for problem in record.problems[:5])
        return PoolSetup(record, refusal=PoolRefusal(PoolReason.INVALID_SPEC, lines))
    if (refusal := _refused(pool, settings)) is not None:
        return PoolSetup(record, refusal=refusal)
    files, profile, problem, missing = _files(pool, texts)
    if problem is not None:
        return PoolSetup(record, refusal=problem, missing=missing)
    revision = revision_of(pool, files, settings)
    demand = _demand(record, pool, files, settings, revision)
    need = need_of_pool(pool.spec, at_once=None, gpus=demand.chiplet.count)
    bare = PoolSetup(
        record=record,
        files=files,
        revision=revision,
        demand=demand,
        profile=profile,
        profiles=_profiles(demand, profile, texts.get((record.namespace, _profile_map(pool)))),
    )
    return bare.needing(need)


def _refused(pool: ChipletPool, settings: PodSettings) -> PoolRefusal | None:
    problems = template_problems(template_document(pool))
    if problems:
        return PoolRefusal(PoolReason.INVALID_SPEC, "; ".join(problem.describe() for problem in problems[:5]))
    namespace, covered = pool.metadata.namespace or "", settings.tls_namespaces
    if settings.tls and covered is not None and namespace not in covered:
        return PoolRefusal(
            PoolReason.NAMESPACE_NOT_COVERED,
            f"the operator may keep Secrets in {', '.join(sorted(covered)[:20])} only, and executors need a "
            f"certificate; add {namespace} to the installation's secrets.namespaces, or move the pool",
        )
    if not engine_image(pool, settings):
        return PoolRefusal(
            PoolReason.INVALID_SPEC,
            "spec.engine.image is not set and the installation has no default image for vLLM; name one",
        )
    if pool.spec.engine.type is EngineType.VLLM and pool.spec.model.source is None:
        return PoolRefusal(
            PoolReason.INVALID_SPEC,
            "spec.model.source is not set; name the directory of the weights, e.g. source: {path: /models/x}",
        )
    return None


def _files(
    pool: ChipletPool, texts: Texts
) -> tuple[PoolFiles, Profile | None, PoolRefusal | None, tuple[tuple[str, str], ...]]:
    namespace = pool.metadata.namespace or ""
    found: dict[str, tuple[str, str] | None] = {}
    digest = hashlib.sha256()
    profile = None
    for name, reference, item in (
        ("profileRef", pool.spec.profile_ref, PROFILE_ITEM),
        ("policyRef", pool.spec.policy_ref, POLICY_ITEM),
    ):
        found[name] = None
        if reference is None:
            continue
        record = texts.get((namespace, reference.name))
        if record is None:
            message = (
                f"spec.{name}: there is no ConfigMap {reference.name} in namespace {namespace}; create it"
            )
            missing = ((namespace, reference.name),)
            return PoolFiles(), None, PoolRefusal(PoolReason.REFERENCE_NOT_FOUND, message), missing
        chosen = _item(pool, record, item)
        if chosen is None:
            message = f"spec.{name}: ConfigMap {reference.name} has no item {item}; it has: "
            message += ", ".join(sorted(record.items)[:10]) or "nothing"
            return PoolFiles(), None, PoolRefusal(PoolReason.REFERENCE_NOT_FOUND, message), ()
        found[name] = (reference.name, chosen)
        digest.update(f"{name}\0{record.items[chosen]}\0".encode())
        if name == "profileRef":
            try:
                profile = Profile.load_json(record.items[chosen])
            except ProfileInvalid as invalid:
                message = f"spec.profileRef: item {chosen} of ConfigMap {reference.name}: {invalid}"
                return PoolFiles(), None, PoolRefusal(PoolReason.INVALID_SPEC, message[:1024]), ()
    has_files = any(found.values())
    files = PoolFiles(found["profileRef"], found["policyRef"], digest.hexdigest()[:16] if has_files else "")
    return files, profile, None, ()


def _item(pool: ChipletPool, record: TextRecord, item: str) -> str | None:
    """The item for this pool's chiplet (`profile.3g.71gb.json`), else the one for all."""
    chiplet = (pool.spec.chiplet.profile or pool.spec.chiplet.shape.value.lower()).replace("+", ".")
    stem, _, suffix = item.rpartition(".")
    return next((name for name in (f"{stem}.{chiplet}.{suffix}", item) if name in record.items), None)


def _profile_map(pool: ChipletPool) -> str:
    return pool.spec.profile_ref.name if pool.spec.profile_ref is not None else ""


def _profiles(
    demand: PoolDemand, own: Profile | None, record: TextRecord | None
) -> Mapping[ShapeKey, Profile]:
    """The profiles of a ConfigMap by shape; of another shape than the pool's only where they can be read.

    `profile.gpu.json` is of one GPU, or of as many as the pool's chiplets have.
    """
    if own is None or record is None:
        return {}
    found = {}
    for name, text in record.items.items():
        shape = _OTHER_PROFILE.fullmatch(name)
        if shape is None:
            continue
        key = (WHOLE_GPU if shape[1] == "gpu" else shape[1].replace(".me", "+me"), 1)
        if key[0] == shape_of(demand.chiplet)[0]:
            continue
        with suppress(ProfileInvalid):
            found[key] = Profile.load_json(text)
    if demand.chiplet.shape is not ChipletShape.CPU:
        found[shape_of(demand.chiplet)] = own
    return found


def _demand(
    record: PoolRecord, pool: ChipletPool, files: PoolFiles, settings: PodSettings, revision: str
) -> PoolDemand:
    spec = pool.spec
    pod = build_executor_pod(pool, Seat(0, 0, ""), files, settings, revision=revision)
    chiplet = ChipletDemand(
        shape=spec.chiplet.shape,
        profile=spec.chiplet.profile,
        count=spec.chiplet.count or 1 if spec.chiplet.shape is ChipletShape.GPU else 1,
        isolation=spec.isolation,
        interconnect=spec.chiplet.interconnect or Interconnect.ANY,
    )
    requests = pod_requests(pod["spec"])
    if chiplet.resource is not None:
        requests.pop(chiplet.resource, None)
    return PoolDemand(
        key=record.key,
        uid=record.uid,
        replicas=0 if record.deleting else replicas_of(spec).wanted,
        chiplet=chiplet,
        revision=revision,
        allocation=spec.placement.allocation,
        spread=tuple(spec.placement.spread) if spec.placement.spread is not None else DEFAULT_SPREAD,
        node_selector=dict(spec.placement.node_selector or {}) | _template_selector(pod),
        tolerations=tuple(_toleration(t) for t in pod["spec"].get("tolerations") or ()),
        requests={**requests, "pods": 1},
    )


def _template_selector(pod: Mapping[str, Any]) -> dict[str, str]:
    return dict(pod["spec"].get("nodeSelector") or {})


def _toleration(stated: Mapping[str, Any]) -> Toleration:
    effect = stated.get("effect")
    return Toleration(
        key=stated.get("key"),
        operator=stated.get("operator") or "Equal",
        value=stated.get("value"),
        effect=TaintEffect(effect) if effect else None,
    )
