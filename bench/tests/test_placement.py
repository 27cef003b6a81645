"""The placement benchmark: inputs are read or refused by name, and no policy gives a slice twice."""

from pathlib import Path

import pytest

from superinfer_bench.placement.aims import aims
from superinfer_bench.placement.baselines import best_fit
from superinfer_bench.placement.fill import POLICIES, Filled, Simulated, fill, stream
from superinfer_bench.placement.jobs import TraceUnusable, openb, serving_mix, share_of_gpu, shared_cluster
from superinfer_bench.placement.scale import measure
from superinfer_core.placement.fit import free_slices
from superinfer_core.placement.hardware import FREE

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,96000,393216,8,G2\nn1,16000,65536,2,T4\nn2,16000,65536,0,\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    "p0,4000,8192,1,460,,LS,Running,0,9,0\n"
    "p1,4000,8192,1,1000,G2|T4,LS,Running,0,9,0\n"
    "p2,32000,8192,8,1000,G2,LS,Running,0,9,0\n"
    "p3,4000,8192,0,0,,LS,Running,0,9,0\n"
)


def _trace(folder: Path, nodes: str = NODES, pods: str = PODS) -> Path:
    (folder / "openb_node_list_gpu_node.csv").write_text(nodes)
    (folder / "openb_pod_list_default.csv").write_text(pods)
    return folder


def test_openb_files_become_a_cluster_and_its_jobs(tmp_path: Path) -> None:
    (given,) = openb(_trace(tmp_path))
    assert given.slices == 80
    assert [job.chiplet.profile for job in given.jobs] == ["4g.40gb", None, None]
    assert [job.chiplet.count for job in given.jobs] == [1, 1, 8]
    assert given.jobs[1].models == {"G2", "T4"}


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_fills_an_openb_cluster(tmp_path: Path, policy: str) -> None:
    (given,) = openb(_trace(tmp_path))
    filled = fill(given, policy, 1)
    assert 0 < filled.allocated_gpu_ratio <= 1
    assert filled.refused > 0 or filled.arrived < 100


@pytest.mark.parametrize(
    ("nodes", "pods", "told"),
    [
        ("sn,gpu\n", PODS, "has no column cpu_milli, memory_mib, model"),
        (NODES, PODS.replace("460", "half"), "gpu_milli is 'half', not a number"),
    ],
    ids=["column missing", "not a number"],
)
def test_a_trace_that_cannot_be_read_says_where(tmp_path: Path, nodes: str, pods: str, told: str) -> None:
    with pytest.raises(TraceUnusable, match=told):
        openb(_trace(tmp_path, nodes, pods))


def test_a_directory_without_a_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceUnusable, match="needs openb_node_list"):
        openb(tmp_path)


@pytest.mark.parametrize(
    ("milli", "profile"), [(100, "1g.10gb"), (286, "3g.40gb"), (500, "4g.40gb"), (800, None)]
)
def test_a_share_becomes_the_smallest_profile_that_is_as_large(milli: int, profile: str | None) -> None:
    assert share_of_gpu(milli).profile == profile


@pytest.mark.parametrize("make", [serving_mix, shared_cluster])
def test_what_left_is_free_again(make: object) -> None:
    given = make(4, 1)  # type: ignore[operator]
    cluster = Simulated(given, best_fit)
    placed = [
        n for n, arrival in zip(range(40), stream(given, 1), strict=False) if cluster.place(n, arrival.job)
    ]
    for number in placed:
        cluster.leave(number)
    assert all(state == FREE for node in cluster.nodes for state in node.states)
    assert (
        sum(free_slices(node.kind, s) for node in cluster.nodes if node.kind for s in node.states)
        == given.slices
    )


def test_the_same_seed_gives_the_same_result() -> None:
    given = shared_cluster(6, 3)
    assert fill(given, "superinfer", 3) == fill(given, "superinfer", 3)


def test_plans_and_changes_are_timed_on_a_cluster_that_runs() -> None:
    timing = measure(48, 30, 1, lambda _: None)
    assert timing.executors > 48
    assert 0 < timing.change_ms["p50"] <= timing.change_ms["p99"] <= timing.change_ms["max"]


def test_aims_are_not_met_by_what_was_not_measured() -> None:
    filled = [
        Filled("superinfer", "mix-1", 0.95, 1, 10, 0.5, 0.9),
        Filled("fgd", "mix-1", 0.94, 1, 10, 0.5, 0.9),
    ]
    met = {aim.name: aim.met for aim in aims(None, filled)}
    assert met == {
        "10,000 nodes: full plan": False,
        "10,000 nodes: one change, p99": False,
        "mix: allocation, mean over inputs, at least FGD's": True,
    }
