"""What `helm template` makes of the chart, as documents."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from superinfer_kube.testing.binaries import HELM, find_binary

REPOSITORY = Path(__file__).parents[2]
CHART = REPOSITORY / "charts" / "superinfer"
NAMESPACE = "superinfer-system"
EVERYTHING = (
    "nodeAgent.enabled=true",
    "monitoring.enabled=true",
    "monitoring.dashboards.enabled=true",
    "monitoring.rules.enabled=true",
    "ingress.kubernetesIngress.enabled=true",
    "ingress.kubernetesIngress.host=llm.example.com",
    "ingress.kubernetesIngress.tlsSecretName=llm",
    "ingress.httpRoute.enabled=true",
    "ingress.httpRoute.parentRefs[0].name=public",
    "ingress.autoscaling.enabled=true",
)

Document = dict[str, Any]


class Refused(Exception):
    """helm would not render it."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """The documents of one rendering."""

    documents: tuple[Document, ...]

    def one(self, kind: str, name: str) -> Document:
        (found,) = [d for d in self.documents if (d["kind"], d["metadata"]["name"]) == (kind, name)]
        return found

    def all(self, kind: str) -> list[Document]:
        return [d for d in self.documents if d["kind"] == kind]

    @property
    def names(self) -> set[str]:
        return {f"{d['kind']}/{d['metadata']['name']}" for d in self.documents}

    def pods(self) -> Iterator[tuple[str, Document]]:
        """Every pod template, by the kind and name of what makes it."""
        for document in self.documents:
            name = f"{document['kind']}/{document['metadata']['name']}"
            if document["kind"] in ("Deployment", "DaemonSet", "Job"):
                yield name, document["spec"]["template"]
            elif document["kind"] == "Pod":
                yield name, document


@dataclass(slots=True)
class Chart:
    """The chart of this checkout."""

    _cache: dict[tuple[str, ...], Rendered] = field(default_factory=dict)

    def render(self, *settings: str) -> Rendered:
        """With `--set` for each setting."""
        if settings not in self._cache:
            self._cache[settings] = Rendered(tuple(d for d in yaml.safe_load_all(self.text(*settings)) if d))
        return self._cache[settings]

    def text(self, *settings: str) -> str:
        flags = [flag for setting in settings for flag in ("--set", setting)]
        return helm("template", "superinfer", str(CHART), "-n", NAMESPACE, "--kube-version", "1.34.0", *flags)


def helm(*arguments: str) -> str:
    done = subprocess.run([str(find_binary(HELM)), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(done.stdout + done.stderr)
    return done.stdout


def container(pod: Document, name: str) -> Document:
    (found,) = [c for c in pod["spec"]["containers"] if c["name"] == name]
    return dict(found)
