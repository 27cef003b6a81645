"""The checkpoint options of the executor's command line."""

import argparse

from superinfer_executor.checkpoint.settings import CheckpointSettings, ranks_of


def add_checkpoint_options(parser: argparse.ArgumentParser) -> None:
    """Options that all begin with --checkpoint."""
    add = parser.add_argument_group("checkpoints").add_argument
    add(
        "--checkpoint-dir",
        metavar="DIR",
        help="save filled KV blocks in this directory of shared memory, shared with the sidecar alone",
    )
    add("--checkpoint-memory-mib", type=int, default=512, help="memory for them (default 512)")
    add("--checkpoint-step-mib", type=int, default=32, help="most that one engine step saves (default 32)")
    add("--checkpoint-tiers", default="all", help="all (default), or some of gold,silver,bronze,besteffort")
    add("--checkpoint-retain-s", type=float, default=0.0, help="keep blocks of finished requests so long")
    add("--checkpoint-orphan-s", type=float, default=30.0, help="keep blocks of cut requests so long")


def read_checkpoint_options(found: argparse.Namespace) -> CheckpointSettings | None:
    """Settings, or None without a directory; raises CheckpointSettingsInvalid."""
    if found.checkpoint_dir is None:
        return None
    return CheckpointSettings(
        directory=found.checkpoint_dir,
        memory_mib=found.checkpoint_memory_mib,
        step_mib=found.checkpoint_step_mib,
        ranks=ranks_of(found.checkpoint_tiers),
        retain_s=found.checkpoint_retain_s,
        orphan_s=found.checkpoint_orphan_s,
    )
