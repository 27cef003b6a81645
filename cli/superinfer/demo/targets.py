"""Example contracts with targets this machine can keep: milliseconds of a GPU cannot hold on a CPU. Pure.

Every target is a factor times what the profile measured on an idle engine. The factors are generous, since a
laptop does other things too, and far from meaningless: all are broken by waiting in a queue of a few answers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

import yaml

from superinfer_core.prediction.profile import Profile
from superinfer_core.slo import Tier

NAMESPACE: Final = "demo"
CHAT_PROMPT_TOKENS: Final = 64
"""A short question with its chat template."""
LONG_ANSWER_TOKENS: Final = 128


@dataclass(frozen=True, slots=True)
class Factors:
    """How many times the unloaded time a contract allows; None where it promises nothing."""

    tier: Tier
    ttft: float | None = None
    itl: float | None = None
    e2e: float | None = None


FACTORS: Final[Mapping[str, Factors]] = {
    "gold": Factors(Tier.GOLD, ttft=6, itl=6),
    "reports": Factors(Tier.GOLD, ttft=120),
    "silver": Factors(Tier.SILVER, ttft=15, itl=10),
    "bronze": Factors(Tier.BRONZE, e2e=10),
}


@dataclass(frozen=True, slots=True)
class Target:
    """One objective of an example contract, in whole milliseconds."""

    metric: str
    percentile: int
    target_ms: int


def unloaded_ttft_ms(profile: Profile, prompt_tokens: int) -> float:
    """First token of a prompt on an idle engine: what was measured next to it, or the model."""
    modelled = profile.steps.prefill_ms(prompt_tokens, chunk_tokens=profile.max_step_tokens)
    near = [entry for entry in profile.unloaded_ttft if entry.prompt_tokens >= prompt_tokens]
    return max(modelled, min((entry.ttft_ms for entry in near), default=modelled))


def unloaded_itl_ms(profile: Profile) -> float:
    """A token in a full batch that does nothing else."""
    if not profile.unloaded_itl:
        return profile.steps.step_ms(decode_seqs=profile.max_num_seqs)
    return max(entry.itl_ms for entry in profile.unloaded_itl)


def targets(profile: Profile, contract: str, *, slowness: float = 1.0) -> tuple[Target, ...]:
    """Objectives of one example contract; `slowness` above 1 where the machine is slower now."""
    factors = FACTORS[contract]
    ttft_ms = unloaded_ttft_ms(profile, CHAT_PROMPT_TOKENS) * slowness
    itl_ms = unloaded_itl_ms(profile) * slowness
    e2e_ms = ttft_ms + LONG_ANSWER_TOKENS * itl_ms
    wanted = (
        ("TTFT", 95, factors.ttft, ttft_ms),
        ("ITL", 95, factors.itl, itl_ms),
        ("E2E", 95, factors.e2e, e2e_ms),
    )
    return tuple(
        Target(metric, percentile, _whole(factor * unloaded))
        for metric, percentile, factor, unloaded in wanted
        if factor is not None
    )


def contract_yaml(profile: Profile, contract: str, *, slowness: float = 1.0) -> str:
    """The contract as a user would write it."""
    spec: dict[str, Any] = {
        "tier": FACTORS[contract].tier.value,
        "objectives": [
            {"metric": t.metric, "percentile": t.percentile, "targetMs": t.target_ms}
            for t in targets(profile, contract, slowness=slowness)
        ],
        "window": "1h",
    }
    document = {
        "apiVersion": "superinfer.dev/v1alpha1",
        "kind": "SLOContract",
        "metadata": {"name": contract, "namespace": NAMESPACE},
        "spec": spec,
    }
    return yaml.safe_dump(document, sort_keys=False)


def _whole(target_ms: float) -> int:
    """Rounded up to a figure a person would write."""
    step = 10 if target_ms < 1000 else 100
    return ceil(target_ms / step) * step
