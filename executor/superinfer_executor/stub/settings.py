"""What a stub can be told: its limits, its step times and the faults it should show."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path


@dataclass(frozen=True, slots=True)
class StubSettings:
    """Settings of one stub engine; times of zero mean "as fast as it goes".

    A step takes step_ms + seq_ms for every decoding sequence + prefill_ms_per_token for every prompt token.
    `eos_after` is where generation stops by itself unless the request says ignore_eos (0: never).
    Faults count engine steps from the start of the process; 0, or no text, switches a fault off.
    """

    socket: Path
    served_model_name: str = "stub"
    step_ms: float = 0.0
    seq_ms: float = 0.0
    prefill_ms_per_token: float = 0.0
    render_ms: float = 0.0
    max_num_seqs: int = 256
    max_model_len: int = 8192
    max_num_batched_tokens: int = 8192
    kv_total_tokens: int = 1 << 20
    eos_after: int = 64
    grace_s: float = 30.0
    die_after_steps: int = 0
    die_on: str = ""
    hang_after_steps: int = 0
    slow_after_steps: int = 0
    slow_factor: float = 10.0

    def __post_init__(self) -> None:
        """Refuse values no engine could have."""
        for name in ("max_num_seqs", "max_model_len", "max_num_batched_tokens", "kv_total_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("step_ms", "seq_ms", "prefill_ms_per_token", "render_ms", "grace_s", "slow_factor"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")

    def step_duration_ms(self, *, decode_seqs: int, prefill_tokens: int) -> float:
        """How long a healthy step with this work takes."""
        return self.step_ms + self.seq_ms * decode_seqs + self.prefill_ms_per_token * prefill_tokens


_HELP = {
    "socket": "Unix socket to serve on",
    "served_model_name": "model name in every answer",
    "step_ms": "fixed part of a step",
    "seq_ms": "part of a step per decoding sequence",
    "prefill_ms_per_token": "part of a step per prompt token",
    "render_ms": "time to render one batch of bodies",
    "max_num_seqs": "places in the batch",
    "max_model_len": "longest prompt plus output",
    "max_num_batched_tokens": "tokens one step may compute",
    "kv_total_tokens": "tokens of KV announced",
    "eos_after": "tokens after which generation stops by itself, 0 for never",
    "grace_s": "time to finish running requests after SIGTERM",
    "die_after_steps": "fault: SIGKILL itself after this many steps",
    "die_on": "fault: SIGKILL itself when it is given a request whose body has this text in it",
    "hang_after_steps": "fault: stop stepping after this many steps",
    "slow_after_steps": "fault: multiply step times by --slow-factor after this many steps",
    "slow_factor": "see --slow-after-steps",
}


def parse_settings(argv: Sequence[str]) -> StubSettings:
    """Settings from a command line; a bad one exits with status 2 and says which flag."""
    parser = argparse.ArgumentParser(
        prog="superinfer_executor stub", description="An engine stub: no model, configurable step times."
    )
    for field in fields(StubSettings):
        flag = "--" + field.name.replace("_", "-")
        kind = Path if field.name == "socket" else type(field.default)
        required = field.name == "socket"
        default = None if required else field.default
        parser.add_argument(flag, type=kind, required=required, default=default, help=_HELP[field.name])
    try:
        return StubSettings(**vars(parser.parse_args(argv)))
    except ValueError as error:
        parser.error(str(error))
