"""The status a pool gets from the round that does what a plan says. Pure.

What `superinfer plan` tells of a pool comes from here, so that it says what the operator would write: the
same builders of pods and of status, without anything in between that could say it differently.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from superinfer_core.pods.settings import PodSettings
from superinfer_operator.placing.parts import PlanPart
from superinfer_operator.placing.setup import PoolSetup
from superinfer_operator.pools.objects import highest_incarnations, pod_of
from superinfer_operator.pools.status import outcome_of, pool_status
from superinfer_operator.watching.pods import ExecutorPod, pod_facts


def foretold_status(
    setup: PoolSetup, pods: Sequence[ExecutorPod], part: PlanPart, settings: PodSettings, *, now: str
) -> dict[str, Any]:
    """The status, with executors that the plan creates as they are made and those it ends as they go.

    Args:
        setup: the pool.
        pods: its executors now.
        part: what the plan says of it.
        settings: of pods; none of them shows.
        now: RFC 3339, of conditions that change.
    """
    ended = {one.name for one in (*part.drain, *part.delete)}
    staying = [replace(pod, terminating=True) if pod.key in ended else pod for pod in pods]
    highest = highest_incarnations(setup.record, pods)
    for assignment in part.create:
        highest[assignment.slot] = highest.get(assignment.slot, 0) + 1
        document = pod_of(setup, assignment, highest[assignment.slot], settings)
        document["metadata"]["uid"] = ""
        made = pod_facts(document)
        assert isinstance(made, ExecutorPod)
        staying.append(made)
    staying.sort(key=lambda pod: pod.name)
    return pool_status(setup, staying, outcome_of(part), before=setup.record.status, now=now)
