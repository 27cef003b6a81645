"""What a sidecar process can be told on its command line; everything has a bound."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from superinfer_core.failover.hang import HangPolicy
from superinfer_sidecar.checkpoint.settings import (
    CheckpointSettings,
    add_checkpoint_options,
    read_checkpoint_options,
)

_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Certificate, key and the authority that peers must be signed by (mutual TLS)."""

    cert: Path
    key: Path
    ca: Path


@dataclass(frozen=True, slots=True)
class SidecarSettings:
    """Settings of one sidecar.

    Attributes:
        listen: "host:port" or "unix:/path".
        engine_socket: the engine's Unix socket; it may not exist yet.
        executor_name: the name ingresses know this executor by.
        profile, policy: files of the predictor's profile and the scheduling policy, or None for defaults.
        metrics_host, metrics_port: of /metrics, /livez and /readyz; port 0 for a free one, negative for none.
        enforce: admission refuses what cannot be kept; False admits everything (baselines).
        refuse_unmeasured: refuse promises while predictions rest on no measurement (fail closed).
        learn_overhead: add what first tokens usually take beyond their steps to their prediction.
        pass_through: hand everything to the engine at once, in order of arrival (baselines).
        max_queued, max_queued_bytes: bound of what waits here, by count and by bytes of bodies.
        stream_buffer_bytes: output an ingress may leave unread before its requests are cancelled.
        hang: how long an engine with work may say nothing, net of the time it had no CPU.
        end_hung_engine: kill the process of an engine that hangs, where it can be seen.
        grace_s: time for running requests after SIGTERM.
        drained_file: written once nothing runs here any more and the sidecar ends; removed at its start.
        tls_pool_name: the name of this pool's sidecars in certificates; with it, names decide who may do
            what.
        checkpoint: where the engine saves KV blocks and what becomes of them; None for none.
    """

    listen: str
    engine_socket: Path
    executor_name: str
    profile: Path | None = None
    policy: Path | None = None
    metrics_port: int = -1
    metrics_host: str = "127.0.0.1"
    enforce: bool = True
    refuse_unmeasured: bool = False
    learn_overhead: bool = True
    pass_through: bool = False
    max_queued: int = 1024
    max_queued_bytes: int = 64 * _MIB
    stream_buffer_bytes: int = 8 * _MIB
    hang: HangPolicy = field(default_factory=HangPolicy)
    end_hung_engine: bool = True
    grace_s: float = 30.0
    drained_file: Path | None = None
    tls_pool_name: str = ""
    tls: TlsFiles | None = None
    insecure: bool = False
    checkpoint: CheckpointSettings | None = None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="superinfer_sidecar", description="SuperInfer's sidecar.")
    add = parser.add_argument
    add("--listen", required=True, help="host:port or unix:/path to serve ingresses on")
    add("--engine-socket", type=Path, required=True, help="Unix socket of the engine")
    add("--executor-name", required=True, help="name of this executor")
    add("--profile", type=Path, help="profile of `superinfer profile` (JSON)")
    add("--policy", type=Path, help="scheduling policy (YAML)")
    add("--metrics-port", type=int, default=-1, help="port of /metrics, 0 for a free one, negative for none")
    add("--metrics-host", default="127.0.0.1", help="address of /metrics, /livez and /readyz")
    add("--admission", choices=("enforce", "skip"), default="enforce", help="skip admits everything")
    add(
        "--unmeasured",
        choices=("admit", "refuse"),
        default="admit",
        help="promises without a profile, until enough steps were seen",
    )
    add("--learn-overhead", choices=("on", "off"), default="on", help="correct predicted first tokens")
    add("--order", choices=("slack", "fcfs"), default="slack", help="fcfs hands all to the engine at once")
    add("--max-queued", type=int, default=1024, help="requests that may wait")
    add("--max-queued-mib", type=float, default=64.0, help="bytes of bodies that may wait")
    add(
        "--stream-buffer-mib", type=float, default=8.0, help="unread output after which an ingress is cut off"
    )
    add(
        "--hang-ms", type=float, default=2000.0, help="an engine that had been working and says nothing hangs"
    )
    add("--hang-factor", type=float, default=4.0, help="likewise, times the longest step predicted")
    add("--stall-s", type=float, default=15.0, help="likewise, while nothing it was given has moved yet")
    add("--hung-engine", choices=("kill", "leave"), default="kill", help="what becomes of its process")
    add("--grace-s", type=float, default=30.0, help="time for running requests after SIGTERM")
    add("--drained-file", type=Path, help="written when SIGTERM has been dealt with; the engine may end then")
    add_checkpoint_options(parser)
    add("--tls-pool-name", default="", help="DNS name in the certificates of this pool's sidecars")
    add("--tls-cert", type=Path, help="certificate (PEM)")
    add("--tls-key", type=Path, help="key (PEM)")
    add("--tls-ca", type=Path, help="authority that peers must be signed by (PEM)")
    add("--insecure", action="store_true", help="serve peers that are not loopback without TLS")
    return parser


def parse_settings(argv: Sequence[str]) -> SidecarSettings:
    """Settings from a command line; a bad one exits with status 2 and says what to change."""
    parser = _parser()
    given = parser.parse_args(argv)
    files = (given.tls_cert, given.tls_key, given.tls_ca)
    if any(files) and not all(files):
        parser.error("--tls-cert, --tls-key and --tls-ca go together")
    if given.tls_pool_name and not all(files):
        parser.error("--tls-pool-name needs --tls-cert, --tls-key and --tls-ca")
    if given.max_queued < 1 or not given.max_queued_mib > 0 or not given.stream_buffer_mib > 0:
        parser.error("--max-queued, --max-queued-mib and --stream-buffer-mib must be positive")
    if not (given.hang_ms > 0 and given.hang_factor > 0 and given.stall_s > 0):
        parser.error("--hang-ms, --hang-factor and --stall-s must be positive")
    if not given.listen.startswith("unix:") and not given.listen.rpartition(":")[2].isdigit():
        parser.error(f"--listen must be host:port or unix:/path, got {given.listen!r}")
    return SidecarSettings(
        listen=given.listen,
        engine_socket=given.engine_socket,
        executor_name=given.executor_name,
        profile=given.profile,
        policy=given.policy,
        metrics_port=given.metrics_port,
        metrics_host=given.metrics_host,
        enforce=given.admission == "enforce",
        refuse_unmeasured=given.unmeasured == "refuse",
        learn_overhead=given.learn_overhead == "on",
        pass_through=given.order == "fcfs",
        max_queued=given.max_queued,
        max_queued_bytes=int(given.max_queued_mib * _MIB),
        stream_buffer_bytes=int(given.stream_buffer_mib * _MIB),
        hang=HangPolicy(floor_ms=given.hang_ms, factor=given.hang_factor, waiting_ms=given.stall_s * 1000.0),
        end_hung_engine=given.hung_engine == "kill",
        grace_s=given.grace_s,
        drained_file=given.drained_file,
        tls_pool_name=given.tls_pool_name,
        tls=TlsFiles(*files) if all(files) else None,
        insecure=given.insecure,
        checkpoint=read_checkpoint_options(parser, given),
    )
