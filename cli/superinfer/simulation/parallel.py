"""A fleet spread over processes: executors in groups, each with its share of the requests.

Promise: deterministic for a seed and a number of groups. Requests are dealt to groups in turn, as an even
front balancer does; routing among the executors of one group is the ingress' own.
"""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any

from superinfer.simulation.fleet import Fleet, FleetSettings, Run
from superinfer.simulation.summary import summarise
from superinfer.simulation.workload import Job
from superinfer_core.scheduling.policy import SchedulingPolicy


def simulate_fleet(
    jobs: list[Job],
    policy: SchedulingPolicy,
    settings: FleetSettings,
    processes: int,
    told: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Figures of the whole fleet; see summary.py. `told` hears how many have arrived, in one process."""
    groups = max(1, min(processes, settings.executors))
    if groups == 1:
        return summarise([Fleet(jobs, policy, settings).run(told)])
    parts = []
    for g in range(groups):
        share = settings.executors // groups + (g < settings.executors % groups)
        parts.append((jobs[g::groups], policy, replace(settings, executors=share, seed=settings.seed + g)))
    with ProcessPoolExecutor(groups) as pool:
        return summarise(list(pool.map(_one, *zip(*parts, strict=True))))


def _one(jobs: list[Job], policy: SchedulingPolicy, settings: FleetSettings) -> Run:
    return Fleet(jobs, policy, settings).run()
