"""A contract as decisions take it: inheritance applied, names resolved, everything frozen."""

from dataclasses import dataclass, field

from superinfer_core.slo import AccessMode, Isolation, Metric, Objective, OnInfeasible, Rank, Tier


@dataclass(frozen=True, slots=True)
class Resources:
    """What a pool must offer; None is no demand."""

    min_chiplets: int | None = None
    product: str | None = None
    memory_mib: int | None = None
    isolation: Isolation | None = None


@dataclass(frozen=True, slots=True)
class Quota:
    """Limits of one contract; None is unlimited."""

    requests_per_second: float | None = None
    tokens_per_minute: int | None = None
    concurrency: int | None = None


@dataclass(frozen=True, slots=True)
class EffectiveContract:
    """One contract after inheritance.

    Attributes:
        namespace, service_id: its identity; `key` is "namespace/serviceID".
        pool: "namespace/name" of the chiplet pool, or None for the only pool there is.
        objectives: by (metric, percentile), sorted; never empty (the tier's preset fills in).
        availability: percent of served / (offered within quota) over the window, or None.
        window_s: what percentiles and availability are taken over.
        fallback: key of the contract a request falls back to.
        parent: key of the parent, or None.
    """

    namespace: str
    service_id: str
    tier: Tier
    priority: int
    objectives: tuple[Objective, ...]
    pool: str | None = None
    max_jitter_ms: int | None = None
    availability: float | None = None
    window_s: float = 3600.0
    on_infeasible: OnInfeasible = OnInfeasible.REJECT
    fallback: str | None = None
    parent: str | None = None
    quota: Quota = field(default_factory=Quota)
    access: AccessMode = AccessMode.OWN_KEYS
    api_key_secret: str | None = None
    resources: Resources = field(default_factory=Resources)

    @property
    def key(self) -> str:
        """The identity as text: namespace/serviceID."""
        return f"{self.namespace}/{self.service_id}"

    @property
    def rank(self) -> Rank:
        """Importance of its requests."""
        return Rank(self.tier.rank, -self.priority)

    def deadline_target_ms(self, metric: Metric) -> int | None:
        """Target of the metric's highest percentile: what one request is held to; None if not promised."""
        of_metric = [o for o in self.objectives if o.metric is metric]
        return max(of_metric, key=lambda o: o.percentile).target_ms if of_metric else None
