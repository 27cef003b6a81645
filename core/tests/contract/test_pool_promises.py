"""What the contracts of a pool promise together: the tightest of each metric, and bounds they all state."""

import pytest

from superinfer_core.contract.effective import EffectiveContract, Quota
from superinfer_core.contract.pool_promises import promises_by_pool
from superinfer_core.slo import Metric, Objective, Tier

TTFT, ITL = Metric.TTFT, Metric.ITL


def contract(name: str, *objectives: Objective, pool: str | None = "ns/p", **quota) -> EffectiveContract:
    return EffectiveContract("ns", name, Tier.GOLD, 0, objectives, pool=pool, quota=Quota(**quota))


def test_the_tightest_target_of_each_metric_counts() -> None:
    found = promises_by_pool(
        [
            contract("a", Objective(TTFT, 99, 300), Objective(ITL, 95, 40)),
            contract("b", Objective(TTFT, 95, 200), Objective(ITL, 99, 40)),
        ]
    )["ns/p"]
    assert found.objectives == (Objective(TTFT, 95, 200), Objective(ITL, 99, 40))
    assert found.contracts == 2


@pytest.mark.parametrize(
    ("quotas", "at_once", "rate"),
    [
        ([{"concurrency": 4}, {"concurrency": 8}], 12, None),
        ([{"concurrency": 4}, {}], None, None),
        ([{"requests_per_second": 5.0}, {"requests_per_second": 2.5, "concurrency": 1}], None, 7.5),
    ],
    ids=["all state it", "one does not", "each bound by itself"],
)
def test_a_bound_holds_only_where_every_contract_states_it(quotas, at_once, rate) -> None:
    made = [contract(f"c{n}", Objective(TTFT, 99, 300), **quota) for n, quota in enumerate(quotas)]
    found = promises_by_pool(made)["ns/p"]
    assert (found.at_once, found.requests_per_second) == (at_once, rate)


def test_contracts_of_other_pools_and_of_none_are_not_counted() -> None:
    objective = Objective(TTFT, 99, 300)
    contracts = [contract("a", objective, pool="ns/other"), contract("b", objective, pool=None)]
    assert list(promises_by_pool(contracts)) == ["ns/other"]
