"""What the connector is told: through vLLM's `--kv-transfer-config`, since vLLM constructs it itself.

Pure. Imports nothing of vLLM: the executor's command line makes the settings before vLLM is there.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from superinfer_core.slo import BEST_EFFORT_TIER_RANK, Tier
from superinfer_proto.slab import ENGINE_SLAB, STORE_SLAB

CONNECTOR_NAME: Final = "CheckpointConnector"
CONNECTOR_MODULE: Final = "superinfer_executor.checkpoint.connector"
_MIB: Final = 1 << 20


class CheckpointSettingsInvalid(ValueError):
    """Settings nobody can use: names the field, its value and the fix."""


@dataclass(frozen=True, slots=True)
class CheckpointSettings:
    """Checkpoints of one engine.

    Attributes:
        directory: in shared memory, of this executor alone.
        memory_mib: of the engine's slab.
        step_mib: most that one engine step saves; the rest waits for the next steps.
        ranks: tier ranks whose requests are saved; None for all, best effort too.
        retain_s: how long blocks stay after their request finished.
        orphan_s: how long they stay when it was cut off (its sidecar or its ingress went away).
    """

    directory: str
    memory_mib: int = 512
    step_mib: int = 32
    ranks: tuple[int, ...] | None = None
    retain_s: float = 0.0
    orphan_s: float = 30.0

    def __post_init__(self) -> None:
        if not self.directory.startswith("/"):
            raise CheckpointSettingsInvalid(f"directory={self.directory!r}: write an absolute path")
        for name, least in (("memory_mib", 1), ("step_mib", 1), ("retain_s", 0), ("orphan_s", 0)):
            value = getattr(self, name)
            if not value >= least:
                raise CheckpointSettingsInvalid(f"{name}={value}: write at least {least}")

    @property
    def engine_slab(self) -> Path:
        """Where the engine's increments go."""
        return Path(self.directory, ENGINE_SLAB)

    @property
    def store_slab(self) -> Path:
        """Where blocks restored by the sidecar are."""
        return Path(self.directory, STORE_SLAB)

    @property
    def memory_bytes(self) -> int:
        """Of the engine's slab."""
        return self.memory_mib * _MIB

    @property
    def step_bytes(self) -> int:
        """Most that one step saves."""
        return self.step_mib * _MIB

    def covers(self, rank: int) -> bool:
        """Whether a request of this tier rank is saved."""
        return self.ranks is None or rank in self.ranks

    def kv_transfer_config(self) -> str:
        """The value of `--kv-transfer-config`."""
        return json.dumps(
            {
                "kv_connector": CONNECTOR_NAME,
                "kv_connector_module_path": CONNECTOR_MODULE,
                "kv_role": "kv_both",
                "kv_load_failure_policy": "recompute",
                "kv_connector_extra_config": asdict(self),
            }
        )

    @classmethod
    def from_extra_config(cls, given: Mapping[str, Any]) -> "CheckpointSettings":
        """The settings that `kv_transfer_config` wrote."""
        ranks = given.get("ranks")
        return cls(**{**given, "ranks": None if ranks is None else tuple(ranks)})


def ranks_of(tiers: str) -> tuple[int, ...] | None:
    """Ranks of a list such as "gold,silver"; "all" for every request."""
    names = [name.strip().lower() for name in tiers.split(",") if name.strip()]
    if names == ["all"]:
        return None
    known = {tier.value.lower(): tier.rank for tier in Tier} | {"besteffort": BEST_EFFORT_TIER_RANK}
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        fix = f"write all, or some of {', '.join(known)}"
        raise CheckpointSettingsInvalid(f"tiers={tiers!r}: {fix}")
    return tuple(sorted({known[name] for name in names}))
