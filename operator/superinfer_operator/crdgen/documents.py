"""CustomResourceDefinitions as documents and as files.

`write` and `stale` touch the file system; everything else is pure.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import yaml
from typing_extensions import override

from superinfer_core.api.v1alpha1.meta import GROUP, VERSION
from superinfer_operator.crdgen.kinds import CATEGORY, KINDS, Column, Kind
from superinfer_operator.crdgen.schema import Schema, structural_schema

HEADER: Final = "# Generated from superinfer_core.api.v1alpha1 by `make gen`; do not edit.\n"

_API_VERSION: Final = {
    "type": "string",
    "description": "Version of this representation of the object: superinfer.dev/v1alpha1.",
    "maxLength": 253,
}


class _Plain(yaml.SafeDumper):
    """Writes what is there twice twice: an anchor in a generated file only hides it."""

    @override
    def ignore_aliases(self, data: Any) -> bool:
        return True


def definition(kind: Kind) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind."""
    subresources: dict[str, Any] = {"status": {}}
    if kind.scale is not None:
        subresources["scale"] = {
            "specReplicasPath": kind.scale.spec_replicas,
            "statusReplicasPath": kind.scale.status_replicas,
            "labelSelectorPath": kind.scale.selector,
        }
    version: dict[str, Any] = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": object_schema(kind)},
        "subresources": subresources,
        "additionalPrinterColumns": [_column(column) for column in kind.columns],
    }
    if kind.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in kind.selectable]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.plural}.{GROUP}",
            "labels": {"app.kubernetes.io/name": "superinfer", "app.kubernetes.io/part-of": "superinfer"},
        },
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.singular,
                "shortNames": [kind.short_name],
                "categories": [CATEGORY],
            },
            "scope": kind.scope.value,
            "versions": [version],
        },
    }


def object_schema(kind: Kind) -> Schema:
    """The schema of the whole object; what the API server checks itself is only named."""
    schema = structural_schema(kind.model)
    properties = schema["properties"]
    properties["apiVersion"] = dict(_API_VERSION)
    properties["kind"] = {"type": "string", "description": f"Always {kind.name}.", "maxLength": 63}
    properties["metadata"] = {"type": "object"}
    return schema


def text(kind: Kind) -> str:
    """The file of a kind."""
    return HEADER + _yaml(definition(kind))


def chart_text(kind: Kind) -> str:
    """The same as a template of the chart: optional, and kept on uninstallation, as contracts go with it.

    Helm installs what is in its own `crds/` folder once and never upgrades it; a template is upgraded.
    """
    document = definition(kind)
    metadata = document.pop("metadata")
    body = _yaml(document)
    if "{{" in body:
        msg = f"{kind.name}: its schema would be taken for a template"
        raise ValueError(msg)
    apiversion_and_kind, _, spec = body.partition("spec:\n")
    labels = "\n".join(f"    {name}: {value}" for name, value in sorted(metadata["labels"].items()))
    return (
        f"{HEADER}{{{{- if .Values.crds.enabled }}}}\n{apiversion_and_kind}metadata:\n"
        f"  name: {metadata['name']}\n  labels:\n{labels}\n"
        "  {{- if .Values.crds.keep }}\n  annotations:\n    helm.sh/resource-policy: keep\n  {{- end }}\n"
        f"spec:\n{spec}{{{{- end }}}}\n"
    )


def _yaml(document: dict[str, Any]) -> str:
    body: str = yaml.dump(
        document,
        Dumper=_Plain,
        sort_keys=True,
        default_flow_style=False,
        allow_unicode=True,
        width=110,
    )
    return body


def file_name(kind: Kind) -> str:
    """As controller-gen names them."""
    return f"{GROUP}_{kind.plural}.yaml"


def write(folder: Path, text_of: Callable[[Kind], str] = text) -> list[Path]:
    """Writes one file per kind and says which."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for kind in KINDS:
        path = folder / file_name(kind)
        path.write_text(text_of(kind), encoding="utf-8")
        written.append(path)
    return written


def stale(folder: Path, text_of: Callable[[Kind], str] = text) -> list[str]:
    """Files that differ from what the models say, are missing, or belong to no kind."""
    wanted = {file_name(kind): text_of(kind) for kind in KINDS}
    present = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.yaml"))}
    return sorted(name for name in wanted.keys() | present.keys() if wanted.get(name) != present.get(name))


def _column(column: Column) -> dict[str, Any]:
    out: dict[str, Any] = {
        "name": column.name,
        "type": column.type,
        "jsonPath": column.path,
        "description": column.description,
    }
    return out | ({"priority": column.priority} if column.priority else {})
