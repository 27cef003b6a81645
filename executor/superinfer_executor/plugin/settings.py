"""What the scheduler is told through its environment: the profile it starts from and the policy it follows.

vLLM constructs the scheduler itself, in a process of its own, so files named by environment variables are
the only way in. Promise: a file that is named and cannot be used stops the engine at its start, saying why;
nothing named means defaults.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from superinfer_core.prediction.profile import Profile, ProfileInvalid
from superinfer_core.prediction.step_model import UNPROFILED, StepModel
from superinfer_core.scheduling.policy import PolicyInvalid, SchedulingPolicy
from superinfer_core.small_input import small_input

PROFILE_ENV: Final = "SUPERINFER_PROFILE"
POLICY_ENV: Final = "SUPERINFER_POLICY"


class PluginSettingsInvalid(RuntimeError):
    """The engine cannot start: a file named in the environment is missing or unusable."""


@dataclass(frozen=True, slots=True)
class PluginSettings:
    """The scheduler's start.

    Attributes:
        step_model: where online learning starts.
        profiled: False when `step_model` is the guess.
        policy: how to schedule.
    """

    step_model: StepModel = UNPROFILED
    profiled: bool = False
    policy: SchedulingPolicy = field(default_factory=SchedulingPolicy)


def read_settings(environment: Mapping[str, str] = os.environ) -> PluginSettings:
    """Settings of this process."""
    profile, policy = environment.get(PROFILE_ENV), environment.get(POLICY_ENV)
    return PluginSettings(
        step_model=_profile(Path(profile)).steps if profile else UNPROFILED,
        profiled=bool(profile),
        policy=_policy(Path(policy)) if policy else SchedulingPolicy(),
    )


def _profile(path: Path) -> Profile:
    try:
        return Profile.load_json(_text(path))
    except (OSError, UnicodeDecodeError, ProfileInvalid) as error:
        raise PluginSettingsInvalid(f"{PROFILE_ENV}={path}: {error}") from error


def _policy(path: Path) -> SchedulingPolicy:
    try:
        return SchedulingPolicy.from_yaml(_text(path))
    except (OSError, UnicodeDecodeError, PolicyInvalid) as error:
        raise PluginSettingsInvalid(f"{POLICY_ENV}={path}: {error}") from error


def _text(path: Path) -> str:
    with path.open("rb") as stream:
        return small_input(stream.read, str(path)).decode("utf-8")
