"""What the sidecar is told of checkpoints; the executor's options of the same names mean the same."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from superinfer_core.checkpoint.peers import PeerPolicy

_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class CheckpointSettings:
    """Checkpoints of one executor.

    Attributes:
        directory: in shared memory, shared with the engine alone.
        memory_bytes: of the store, for copies of peers and for blocks that are restored here.
        interval_ms: how often new increments are looked for.
        replicas: copies on peers.
        budget_bytes_per_s: for copies that are sent, over all peers.
        policy: how far away copies go.
        retain_s: how long blocks stay after their request finished.
        orphan_s: how long they stay when it was cut off.
    """

    directory: Path
    memory_bytes: int = 512 * _MIB
    interval_ms: float = 50.0
    replicas: int = 1
    budget_bytes_per_s: float = 400e6
    policy: PeerPolicy = PeerPolicy.OTHER_NODE
    retain_s: float = 0.0
    orphan_s: float = 30.0


def add_checkpoint_options(parser: argparse.ArgumentParser) -> None:
    """Options that all begin with --checkpoint."""
    add = parser.add_argument_group("checkpoints").add_argument
    add(
        "--checkpoint-dir",
        type=Path,
        metavar="DIR",
        help="directory of shared memory that the engine saves KV blocks in; without it there are none",
    )
    add(
        "--checkpoint-store-mib", type=int, default=512, help="memory for copies of peers and restored blocks"
    )
    add("--checkpoint-interval-ms", type=float, default=50.0, help="how often new blocks are looked for")
    add("--checkpoint-replicas", type=int, default=1, help="copies on peers")
    add("--checkpoint-budget-mbps", type=float, default=400.0, help="megabytes per second for copies sent")
    add(
        "--checkpoint-peers",
        choices=[policy.value for policy in PeerPolicy],
        default=PeerPolicy.OTHER_NODE.value,
        help="how far away copies go",
    )
    add("--checkpoint-retain-s", type=float, default=0.0, help="keep blocks of finished requests so long")
    add("--checkpoint-orphan-s", type=float, default=30.0, help="keep blocks of cut requests so long")


def read_checkpoint_options(
    parser: argparse.ArgumentParser, found: argparse.Namespace
) -> CheckpointSettings | None:
    """Settings, or None without a directory; a bad value ends the parser with its own message."""
    if found.checkpoint_dir is None:
        return None
    for name, least in (("store_mib", 1), ("replicas", 0), ("retain_s", 0), ("orphan_s", 0)):
        if not getattr(found, f"checkpoint_{name}") >= least:
            parser.error(f"--checkpoint-{name.replace('_', '-')} must be at least {least}")
    for name in ("interval_ms", "budget_mbps"):
        if not getattr(found, f"checkpoint_{name}") > 0:
            parser.error(f"--checkpoint-{name.replace('_', '-')} must be above 0")
    return CheckpointSettings(
        directory=found.checkpoint_dir,
        memory_bytes=found.checkpoint_store_mib * _MIB,
        interval_ms=found.checkpoint_interval_ms,
        replicas=found.checkpoint_replicas,
        budget_bytes_per_s=found.checkpoint_budget_mbps * 1e6,
        policy=PeerPolicy(found.checkpoint_peers),
        retain_s=found.checkpoint_retain_s,
        orphan_s=found.checkpoint_orphan_s,
    )
