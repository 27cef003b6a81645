"""Shapes of a contract: the front holds exactly what nothing else beats."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from placement_cases import gpu

from superinfer_core.placement.geometry import PRODUCTS
from superinfer_core.placement.shapes import ShapeOption, Traffic, estimated, offers, whole_gpu
from superinfer_core.prediction.step_model import StepModel
from superinfer_core.slo import Metric, Objective

H100 = PRODUCTS["NVIDIA H100 80GB HBM3"]
STEPS = StepModel(5.0, 0.1, 0.0, 0.05, 0.0)
GPU = ShapeOption("GPU", gpu(), 1.0, STEPS, 1.2, 2048, 64, measured=True, domains=3)
TARGETS = (Objective(Metric.TTFT, 99, 200), Objective(Metric.ITL, 99, 30))


def _smaller(name: str, domains: int = 3) -> ShapeOption:
    profile = H100.profile(name)
    assert profile is not None
    return estimated(GPU, whole_gpu(H100), profile, domains=domains)


def test_a_smaller_shape_is_cheaper_and_slower() -> None:
    whole, half = offers(TARGETS, Traffic(), [GPU])[0], offers(TARGETS, Traffic(), [_smaller("3g.40gb")])[0]
    assert half.gpus < whole.gpus
    assert half.margin < whole.margin
    assert not half.option.measured


def test_a_shape_that_misses_a_target_is_not_offered_and_says_which() -> None:
    tight = (Objective(Metric.ITL, 99, 8),)
    (whole, small) = offers(tight, Traffic(), [_smaller("1g.10gb"), GPU])
    assert whole.option.name == "GPU"
    assert whole.on_front
    assert (small.feasible, small.tightest) == (False, Metric.ITL)
    assert small.reason.startswith("ITL takes")


def test_a_shape_no_node_can_hold_is_not_offered() -> None:
    (one,) = offers(TARGETS, Traffic(), [replace(GPU, domains=0)])
    assert not one.feasible
    assert one.reason == "no node could hold one now"


def test_more_traffic_needs_more_executors_and_loses_less_with_one_node() -> None:
    few = offers(TARGETS, Traffic(requests_per_second=5), [GPU])[0]
    many = offers(TARGETS, Traffic(requests_per_second=100), [GPU])[0]
    assert many.executors > few.executors
    assert many.loss_share < few.loss_share


def test_two_gpus_are_faster_than_one_but_not_twice() -> None:
    two = estimated(GPU, whole_gpu(H100), whole_gpu(H100), domains=1, count=2)
    assert two.name == "2xGPU"
    assert STEPS.base_ms / 2 < two.steps.base_ms < STEPS.base_ms


@pytest.mark.parametrize("name", [profile.name for profile in H100.mig_profiles if "+" not in profile.name])
def test_estimating_there_and_back_changes_nothing(name: str) -> None:
    profile = H100.profile(name)
    assert profile is not None
    there = _smaller(name)
    back = estimated(there, profile, whole_gpu(H100), domains=3)
    assert back.steps.coefficients == pytest.approx(STEPS.coefficients)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.floats(0.1, 8), st.floats(1, 100), st.integers(0, 4)), min_size=1, max_size=8),
    st.sampled_from((None, 1.0, 50.0)),
)
def test_the_front_is_what_nothing_beats(rows: list[tuple[float, float, int]], rps: float | None) -> None:
    options = [
        replace(GPU, name=f"s{n}", gpus=gpus, steps=StepModel(base, 0.1), domains=domains)
        for n, (gpus, base, domains) in enumerate(rows)
    ]
    made = offers(TARGETS, Traffic(requests_per_second=rps), options)
    assert len(made) == len(options)
    feasible = [one for one in made if one.feasible]
    for one in made:
        figures = (one.gpus, -one.margin, one.loss_share)
        beaten = any(
            (o.gpus, -o.margin, o.loss_share) != figures
            and o.gpus <= one.gpus
            and o.margin >= one.margin
            and o.loss_share <= one.loss_share
            for o in feasible
        )
        assert one.on_front == (one.feasible and not beaten)
    assert not feasible or any(one.on_front for one in made)
