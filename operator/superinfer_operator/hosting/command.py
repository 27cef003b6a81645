"""The command line of `python -m superinfer_operator run`; every flag may come from the environment."""

import argparse
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from superinfer_core.placement import PlannerSettings
from superinfer_core.pods.settings import PodSettings
from superinfer_operator.reconciling.loop import Pace
from superinfer_operator.settings import OperatorSettings

_PREFIX: Final = "SUPERINFER_OPERATOR_"
EXAMPLES: Final = """examples:
  python -m superinfer_operator run --namespace superinfer-system --tls on
  KUBECONFIG=~/.kube/config python -m superinfer_operator run --namespace default --tls off
"""


@dataclass(frozen=True, slots=True)
class RunCommand:
    """Everything `run` was told."""

    settings: OperatorSettings
    kubeconfig: Path | None
    host: str
    port: int
    log_level: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `run`."""
    pods = PodSettings()
    planner = PlannerSettings()

    def flag(name: str, default: str, words: str, choices: Sequence[str] | None = None) -> None:
        variable = _PREFIX + name.upper().replace("-", "_")
        parser.add_argument(
            f"--{name}",
            default=os.environ.get(variable, default),
            choices=choices,
            help=f"{words} (default {default or 'none'}; ${variable})",
        )

    flag("namespace", os.environ.get("POD_NAMESPACE", ""), "namespace of the release, for its Secrets")
    flag("engine-image", pods.engine_image, "image of pools with engine VLLM that name none")
    flag("stub-image", pods.stub_image, "image of pools with engine Stub that name none")
    flag("code-image", pods.code_image, "image that carries SuperInfer into stock vLLM images; - for none")
    flag("sidecar-image", pods.sidecar_image, "image of the sidecars")
    flag("pull-policy", pods.pull_policy, "imagePullPolicy", ("IfNotPresent", "Always", "Never"))
    flag("pull-secrets", "", "image pull secrets of executor pods, with commas between them")
    flag("priority-class", "", "priorityClassName of executor pods")
    flag("tls", "on", "mutual TLS between ingresses and sidecars", ("on", "off"))
    flag("certificates", "on", "issue the certificates; off where somebody else does", ("on", "off"))
    flag("secret-namespaces", "", "namespaces of pools and keys, with commas between them; none: all of them")
    flag("elect", "on", "elect one of several operators; off where there is never another", ("on", "off"))
    flag("repack", "off", "move running executors to make room for those that have none", ("on", "off"))
    flag(
        "mig-config",
        "off",
        "lay idle nodes out as advised (needs NVIDIA's MIG manager)",
        ("on", "off"),
    )
    flag("node-grace-s", f"{planner.node_grace_s:g}", "how long a node that is not ready keeps its executors")
    flag("hold-down-s", f"{planner.hold_down_s:g}", "how long what has recovered gets nothing new")
    flag("writes-at-once", "16", "requests to the API server under way together")
    flag("host", "0.0.0.0", "address of /livez, /readyz and /metrics")  # noqa: S104
    flag("port", "8080", "port of them; 0 for a free one")
    flag("log-level", "INFO", "how much is logged", ("DEBUG", "INFO", "WARNING", "ERROR"))
    parser.add_argument("--kubeconfig", type=Path, help="file to use instead of the pod's service account")


def run_command(args: argparse.Namespace) -> RunCommand:
    """What the flags come to.

    Raises:
        ValueError: a flag cannot be used; names it.
    """
    if not args.namespace:
        msg = "--namespace: is not set; name the namespace of the release, or set POD_NAMESPACE"
        raise ValueError(msg)
    places = _names(args.secret_namespaces)
    covered = frozenset((args.namespace, *places)) if places else None
    pods = PodSettings(
        engine_image=args.engine_image,
        stub_image=args.stub_image,
        code_image="" if args.code_image == "-" else args.code_image,
        sidecar_image=args.sidecar_image,
        pull_policy=args.pull_policy,
        pull_secrets=_names(args.pull_secrets),
        priority_class=args.priority_class,
        tls=args.tls == "on",
        tls_namespaces=covered if args.certificates == "on" else None,
    )
    planner = PlannerSettings(
        node_grace_s=_number("node-grace-s", args.node_grace_s),
        hold_down_s=_number("hold-down-s", args.hold_down_s),
    )
    instance = os.environ.get("POD_NAME", "superinfer-operator")
    settings = OperatorSettings(
        namespace=args.namespace,
        instance=instance,
        pods=pods,
        planner=planner,
        pace=Pace(),
        writes_at_once=max(1, int(_number("writes-at-once", args.writes_at_once))),
        manage_certificates=args.certificates == "on",
        candidate=_candidate(instance) if args.elect == "on" else "",
        secret_namespaces=covered,
        follow_mig_advice=args.mig_config == "on",
        repack=args.repack == "on",
    )
    port = int(_number("port", args.port))
    return RunCommand(settings, args.kubeconfig, args.host, port, args.log_level)


def _candidate(instance: str) -> str:
    """A pod is one process at a time, which may go on with its lease; outside of one nobody knows."""
    return f"{instance}_{os.environ.get('POD_UID') or secrets.token_hex(8)}"


def _names(text: str) -> tuple[str, ...]:
    return tuple(stripped for name in text.split(",") if (stripped := name.strip()))


def _number(flag: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        msg = f"--{flag}: {text[:80]!r} is not usable; write a number that is not negative"
        raise ValueError(msg)
    return value
