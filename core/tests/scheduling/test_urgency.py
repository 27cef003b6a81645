"""Urgency never overflows, never falls when slack falls, and its profiles are data."""

from importlib import resources

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from superinfer_core.scheduling.urgency import MAX_BUCKET, UrgencyProfile, UrgencyProfileInvalid

PROFILES = {
    p["name"]: UrgencyProfile.from_mapping(p)
    for p in yaml.safe_load(
        resources.files("superinfer_core.scheduling").joinpath("slack_decay_profile.yaml").read_text()
    )["profiles"]
}
anything = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True), st.sampled_from([10**400, -(10**400), 1e308, -1e308, 0])
)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
@given(slack=anything, target=anything)
def test_any_slack_has_a_bounded_urgency(profile: UrgencyProfile, slack: float, target: float) -> None:
    assert profile.min_urgency <= profile.urgency(slack, target) <= profile.max_urgency
    assert 0 <= profile.bucket(slack, target) <= MAX_BUCKET


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
@given(a=st.floats(-1e12, 1e12), b=st.floats(-1e12, 1e12), target=st.floats(1, 1e6))
def test_less_slack_is_never_less_urgent(profile: UrgencyProfile, a: float, b: float, target: float) -> None:
    less, more = min(a, b), max(a, b)
    assert profile.urgency(less, target) >= profile.urgency(more, target)
    assert profile.bucket(less, target) <= profile.bucket(more, target)


def test_a_plain_exponential_would_overflow_where_ours_does_not() -> None:
    import math

    with pytest.raises(OverflowError):
        math.exp(-5 * -60_000)
    assert PROFILES["exponential"].urgency(-60_000, 1.0) == 100


@pytest.mark.parametrize(("slack", "urgency"), [(300, 0.5), (200, 0.5), (150, 1.0), (99, 2.0), (-5, 2.0)])
def test_the_first_users_form_counts_as_they_wrote_it(slack: float, urgency: float) -> None:
    assert PROFILES["first-users"].urgency(slack, 1000) == urgency


def test_the_packaged_default_is_what_policies_use() -> None:
    assert PROFILES["default"] == UrgencyProfile()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("k", float("nan")),
        ("k", 10**400),
        ("k", "steep"),
        ("form", "Round"),
        ("scale", 3),
        ("maxUrgency", -1),
        ("segments", [{"above": 1, "urgency": 1}, {"above": 2, "urgency": 2}]),
        ("segments", "many"),
        ("colour", "red"),
    ],
)
def test_a_bad_profile_names_the_field(field: str, value: object) -> None:
    with pytest.raises(UrgencyProfileInvalid) as e:
        UrgencyProfile.from_mapping({field: value})
    assert e.value.field == field
