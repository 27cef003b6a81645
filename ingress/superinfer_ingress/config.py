"""Settings of one ingress process, read once from YAML.

Every field states its unit and why its default is what it is. Unknown keys are an error: a setting that
is silently ignored is worse than one that is missing. Nothing here changes after start.
"""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from superinfer_core.yaml_text import NotYaml, load_yaml
from superinfer_ingress.small_file import read_small_text

Milliseconds = Annotated[float, Field(gt=0, le=3_600_000)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]


class ConfigInvalid(Exception):
    """The configuration cannot be used; the message names every wrong field, its value and the file."""


class _Settings(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class TlsSettings(_Settings):
    """Mutual TLS towards sidecars."""

    ca: Path
    """Certificate authority that signed the sidecars' certificates (PEM)."""
    cert: Path
    """This ingress' certificate (PEM)."""
    key: Path
    """Its private key (PEM)."""


class ExecutorSettings(_Settings):
    """One sidecar to connect to."""

    name: str = Field(min_length=1, max_length=128)
    address: str = Field(min_length=1)
    """host:port or unix:/path."""
    pool: str = "default"
    """Name of the pool it serves; `namespace/name` or a bare name. What a contract's poolRef names."""
    fault_domain: tuple[str, ...] = ()
    """What fails together with it, outermost first (zone, node, GPU); checkpoints go elsewhere."""

    tls_name: str | None = None
    """Name its certificate must have; the host of its address where unset."""
    leaving: bool = False
    """It is being ended: what runs there may go on, nothing new is sent."""


class PoolSettings(_Settings):
    """What the ingress knows of one pool beyond its executors."""

    default_contract: str | None = None
    """namespace/serviceID used where a request names no contract and its key has not exactly one."""


class ResumeSettings(_Settings):
    """What happens to a request whose executor is lost."""

    attempts: int = Field(default=4, ge=0, le=100)
    """Engines in a row that may end while they have it and before they gave a token of it; with one more it
    is given up, since it may be what ends them. 0: never goes on elsewhere."""
    within: Seconds = 180.0
    """Seconds one interruption may last while no executor can take the request: long enough for an engine to
    start again. A late answer is worth more than a broken stream, so a deadline that has passed does not end
    that."""


class KubernetesSettings(_Settings):
    """Contracts, pools, executors and keys from a cluster's API server instead of files and lists."""

    namespace: str | None = None
    """Of this release: where its own Service, keys and counters are. The pod's own where unset."""
    service: str = "superinfer-ingress"
    """This ingress' own Service: its ready endpoints are the replicas that share the quotas."""
    keys_secret: str = "superinfer-api-keys"  # noqa: S105 - the name of a Secret
    """Secret with the digests of API keys, item keys.yaml; the only one that is read."""
    write_contracts: bool = True
    """Whether POST, PUT and DELETE of /v1/contracts change SLOContracts."""
    publish_attainment: Annotated[float, Field(ge=0, le=3600)] = 30.0
    """Seconds between two publications of this replica's window counts, where they changed; 0: never."""
    kubeconfig: Path | None = None
    """Outside a cluster: a kubeconfig. The pod's service account where unset."""


class LimitSettings(_Settings):
    """Bounds on what one client may cost. Exceeding one is a 4xx or a closed connection, never memory."""

    body_bytes: int = Field(default=8 * 1024 * 1024, ge=1024)
    header_bytes: int = Field(default=64 * 1024, ge=1024)
    header_count: int = Field(default=128, ge=8)
    header_read: Seconds = 10.0
    """Seconds from the first byte of a request to the end of its headers."""
    body_read: Seconds = 30.0
    """Seconds from the end of the headers to the end of the body."""
    client_buffer_bytes: int = Field(default=512 * 1024, ge=16 * 1024)
    """Output waiting for a client that reads too slowly; beyond it the request is cancelled."""
    json_depth: int = Field(default=128, ge=8, le=900)
    bytes_per_token: int = Field(default=64, ge=0)
    """No tokenizer makes one token out of more text than this: a text longer than maxModelLen times this
    cannot fit and is refused before anything is queued. 0 turns the bound off."""
    ledger_tokens: int = Field(default=16_000_000, ge=1000)
    """Delivered tokens kept for all running requests together; beyond it new ones are not resumable."""
    in_flight: int = Field(default=8192, ge=1)
    """Requests inside this ingress at once; one more is refused as saturated."""


class Config(_Settings):
    """The whole configuration file."""

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    name: str = "ingress"
    executors: tuple[ExecutorSettings, ...] = ()
    pools: dict[str, PoolSettings] = Field(default_factory=dict)
    contracts: Path | None = None
    """Directory of contract YAML; watched, and written by POST /v1/contracts."""
    keys: Path | None = None
    """YAML of hashed API keys; watched."""
    kubernetes: KubernetesSettings | None = None
    """Set in a cluster, in the place of executors, pools, contracts and keys."""
    auth: Literal["Required", "Open"] = "Required"
    without_contract: Literal["Reject", "BestEffort"] = "Reject"
    infeasible_status: Literal[425, 429, 503, 529] = 425
    admission: Literal["Enforce", "Skip"] = "Enforce"
    """Skip enqueues whatever the prediction says: for the baselines of the benchmark only."""
    stale_after_ms: Milliseconds = 100.0
    """A load report older than this: no new work for that executor (reports come every 50 ms)."""
    dead_after_ms: Milliseconds = 1000.0
    """No message for this long: the executor counts as lost, and its requests with it."""
    decision_timeout_ms: Milliseconds = 10_000.0
    """A sidecar that has not answered a submit by then is treated as having refused it."""
    shutdown_grace: Seconds = 30.0
    """Seconds running requests get after SIGTERM."""
    shutdown_delay: Annotated[float, Field(ge=0, le=600)] = 0.0
    """Seconds after SIGTERM during which new requests are still taken while /readyz already says no: until
    every load balancer has heard that this replica goes away."""
    ingress_replicas: int = Field(default=1, ge=1)
    """Ready replicas that share the quotas; this one takes its part of every rate."""
    resume: ResumeSettings = Field(default_factory=ResumeSettings)
    insecure: bool = False
    """Allow plain text to sidecars that are not on this machine."""
    tls: TlsSettings | None = None
    cache_salt_key_file: Path | None = None
    """Secret that keeps the KV blocks of namespaces apart; without it one is made for this process only."""
    access_log: Literal["Off", "Text", "Json"] = "Text"
    request_log: Path | None = None
    """JSON lines, one per finished request, for the demo and the benchmarks. Never holds a prompt."""
    metric_contracts: int = Field(default=200, ge=1)
    """Contracts with a metric label of their own; the rest share `other`."""
    limits: LimitSettings = Field(default_factory=LimitSettings)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [executor.name for executor in self.executors]
        duplicates = sorted({name for name in names if names.count(name) > 1})
        if duplicates:
            msg = f"executors: {', '.join(duplicates)} named twice; give every executor a name of its own"
            raise ValueError(msg)
        if self.kubernetes is not None:
            self._only_kubernetes()
        if self.dead_after_ms < self.stale_after_ms:
            msg = f"deadAfterMs: {self.dead_after_ms} is below staleAfterMs {self.stale_after_ms}; raise it"
            raise ValueError(msg)
        if self.tls is None and not self.insecure:
            for executor in self.executors:
                if not is_local(executor.address):
                    msg = (
                        f"executors: {executor.address} is not on this machine and prompts would travel in"
                        " the clear; set tls, or insecure: true"
                    )
                    raise ValueError(msg)
        return self

    def _only_kubernetes(self) -> None:
        doubled = [name for name in ("executors", "pools", "contracts", "keys") if getattr(self, name)]
        if doubled:
            msg = f"{', '.join(doubled)}: come from the API server with kubernetes; remove them"
            raise ValueError(msg)
        if self.tls is None and not self.insecure:
            msg = "tls: missing, and prompts would travel in the clear; set tls, or insecure: true"
            raise ValueError(msg)


def is_local(address: str) -> bool:
    """Whether an executor's address stays on this machine."""
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].strip("[]")
    return host in {"localhost", "::1"} or host.startswith("127.")


def load_config(path: Path) -> Config:
    """Read and check a configuration file.

    Raises:
        ConfigInvalid: it cannot be read, or a field is wrong.
    """
    try:
        document = load_yaml(read_small_text(path))
    except (OSError, UnicodeDecodeError, NotYaml) as error:
        msg = f"{path}: {error}"
        raise ConfigInvalid(msg) from error
    try:
        return Config.model_validate(document or {})
    except ValidationError as error:
        lines = [
            f"{path}: {'.'.join(str(part) for part in problem['loc']) or 'document'}: {problem['msg']}"
            for problem in error.errors(include_url=False)
        ]
        raise ConfigInvalid("\n".join(lines)) from error
