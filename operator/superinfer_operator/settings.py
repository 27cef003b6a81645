"""What an installation decides about the operator. Frozen; parsed once from the command line."""

from dataclasses import dataclass, field

from superinfer_core.placement import PlannerSettings
from superinfer_core.pods.settings import PodSettings
from superinfer_operator.reconciling.loop import Pace


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """Settings of one operator.

    Attributes:
        namespace: of the release: its Secrets live there.
        instance: this process, in events.
        pods: images and defaults of executor pods.
        planner: what placement may be told.
        pace: of the reconcile loop.
        writes_at_once: requests to the API server that may be under way together.
        manage_certificates: issue and rotate certificates; off where somebody else does.
        candidate: stands for election under this name, for the replicas of an operator; "" leads alone.
        secret_namespaces: where Secrets may be read and written; None everywhere.
        repack: move running executors, a few at a time, to make room for those that have none.
        follow_mig_advice: tell idle nodes' MIG managers the layouts that would make room, one at a time.
        force_after_s: a pool that is being deleted is let go so long after its drain time, whatever is left.
    """

    namespace: str
    instance: str = "superinfer-operator"
    pods: PodSettings = field(default_factory=PodSettings)
    planner: PlannerSettings = field(default_factory=PlannerSettings)
    pace: Pace = field(default_factory=Pace)
    writes_at_once: int = 16
    manage_certificates: bool = True
    candidate: str = ""
    secret_namespaces: frozenset[str] | None = None
    follow_mig_advice: bool = False
    repack: bool = False
    force_after_s: float = 120.0
