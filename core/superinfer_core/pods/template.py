"""A pool's podTemplate over the pod SuperInfer generates.

Promise: `merge_template` gives a new document and changes neither input; maps merge key by key, lists of
named things merge by their name (volumeMounts by mountPath), tolerations add up, every other value replaces
the generated one, and null removes it. `template_problems` names, with field and fix, everything a template
may not touch: what pins a pod to its chiplet, tells it apart, or lets it drain. Pure.
"""

import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from superinfer_core.api.v1alpha1 import labels
from superinfer_core.api.v1alpha1.meta import GROUP
from superinfer_core.contract.problems import FieldProblem
from superinfer_core.pods.paths import CODE_PATH, RUN_PATH
from superinfer_core.words import shown

_KEYED_LISTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "containers": "name",
        "initContainers": "name",
        "volumes": "name",
        "env": "name",
        "ports": "name",
        "imagePullSecrets": "name",
        "resourceClaims": "name",
        "claims": "name",
        "volumeMounts": "mountPath",
        "hostAliases": "ip",
    }
)
_ADDED_UP: Final = frozenset({"tolerations"})

_OWN_LABEL_PREFIX: Final = f"{GROUP}/"
_OWN_LABELS: Final = frozenset(
    {labels.APP_NAME_LABEL, labels.APP_COMPONENT_LABEL, labels.APP_MANAGED_BY_LABEL}
)
_RESERVED_SPEC: Final[Mapping[str, str]] = MappingProxyType(
    {
        "nodeName": "remove it: the plan chooses the node; narrow it with spec.placement.nodeSelector",
        "restartPolicy": "remove it: containers of an executor are always restarted",
        "terminationGracePeriodSeconds": "remove it and write spec.drainSeconds",
        "hostname": "remove it: pods are told apart by their names",
        "subdomain": "remove it: pods are told apart by their names",
        "schedulingGates": "remove it: a gated pod would hold its chiplet and never start",
        "automountServiceAccountToken": "remove it: executors need no API access",
        "shareProcessNamespace": "remove it: an engine must not see the sidecar's keys",
        "ephemeralContainers": "remove it and use kubectl debug",
    }
)
_EFFECTS: Final = (None, "", "NoSchedule", "PreferNoSchedule", "NoExecute")
_RESERVED_MOUNTS: Final = (RUN_PATH, "/etc/superinfer", CODE_PATH)
_SPEC_MAPS: Final = ("affinity", "nodeSelector", "securityContext", "overhead", "resources", "dnsConfig")
_CONTAINER_MAPS: Final = ("resources", "securityContext", "readinessProbe", "livenessProbe", "startupProbe")
_NEEDED: Final = ("containers", "volumes", "affinity")
"""What null would take away, a pod cannot be without."""

_GENERATED_CONTAINERS: Final = (labels.EXECUTOR_CONTAINER, labels.SIDECAR_CONTAINER)


def merge_template(generated: Mapping[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
    """The template over the generated document."""
    return _merged_map(generated, template)


def template_problems(
    template: Mapping[str, Any], *, path: str = "spec.podTemplate"
) -> tuple[FieldProblem, ...]:
    """Everything in a template that cannot be taken; empty where it is fine."""
    problems = [
        FieldProblem(f"{path}.{key}", "", "is not part of a pod template", "write it under metadata or spec")
        for key in template
        if key not in ("metadata", "spec")
    ]
    problems += _metadata_problems(template.get("metadata"), f"{path}.metadata")
    spec = template.get("spec")
    if spec is None:
        return tuple(problems)
    if not isinstance(spec, Mapping):
        return (*problems, _not_a_map(f"{path}.spec", spec))
    problems += _spec_problems(spec, f"{path}.spec")
    return tuple(problems)


def _merged_map(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = {key: copy.deepcopy(value) for key, value in below.items()}
    for key, value in above.items():
        if value is None:
            merged.pop(key, None)
            continue
        merged[key] = _merged_value(key, merged.get(key), value)
    return merged


def _merged_value(key: str, below: Any, above: Any) -> Any:
    if isinstance(above, Mapping):
        return _merged_map(below if isinstance(below, Mapping) else {}, above)
    if isinstance(above, list) and isinstance(below, list):
        if key in _KEYED_LISTS:
            return _merged_list(below, above, _KEYED_LISTS[key])
        if key in _ADDED_UP:
            return below + [copy.deepcopy(item) for item in above if item not in below]
    return copy.deepcopy(above)


def _merged_list(below: list[Any], above: list[Any], name: str) -> list[Any]:
    items = {_key_of(item, name): item for item in below}
    for item in above:
        key = _key_of(item, name)
        known = items.get(key)
        # An env entry has one source: a template's valueFrom must not stand beside the generated value.
        if isinstance(known, Mapping) and isinstance(item, Mapping) and name in item:
            whole = "valueFrom" in item or "valueFrom" in known
            items[key] = copy.deepcopy(dict(item)) if whole else _merged_map(known, item)
        else:
            items[key] = copy.deepcopy(item)
    return list(items.values())


def _key_of(item: Any, name: str) -> str:
    if isinstance(item, Mapping) and name in item:
        return str(item[name])
    # Without its name (ports may leave it out) an item is itself, so it is added once.
    return repr(item)


def _metadata_problems(metadata: Any, path: str) -> list[FieldProblem]:
    if metadata is None:
        return []
    if not isinstance(metadata, Mapping):
        return [_not_a_map(path, metadata)]
    problems = []
    for part, values in metadata.items():
        if part not in ("labels", "annotations"):
            problems.append(
                FieldProblem(f"{path}.{part}", "", "cannot be set", "only labels and annotations can")
            )
            continue
        if not isinstance(values, Mapping):
            problems.append(_not_a_map(f"{path}.{part}", values))
            continue
        problems += [
            FieldProblem(f"{path}.{part}[{key}]", shown(value), "is SuperInfer's own", "choose another key")
            for key, value in values.items()
            if str(key).startswith(_OWN_LABEL_PREFIX) or key in _OWN_LABELS
        ]
        problems += [
            FieldProblem(f"{path}.{part}[{key}]", shown(value), "is not text", "put it in quotes")
            for key, value in values.items()
            if value is not None and not isinstance(value, str)
        ]
    return problems


def _spec_problems(spec: Mapping[str, Any], path: str) -> list[FieldProblem]:
    problems = [
        FieldProblem(f"{path}.{field}", shown(spec[field]), "cannot be set here", fix)
        for field, fix in _RESERVED_SPEC.items()
        if field in spec
    ]
    problems += [
        FieldProblem(f"{path}.{field}", "null", "cannot be removed", "leave it out")
        for field in _NEEDED
        if field in spec and spec[field] is None
    ]
    problems += _map_problems(spec, path, _SPEC_MAPS)
    problems += _resources_problems(spec.get("resources"), f"{path}.resources")
    problems += _tolerations_problems(spec.get("tolerations"), f"{path}.tolerations")
    affinity = spec.get("affinity")
    if isinstance(affinity, Mapping) and "nodeAffinity" in affinity:
        problems.append(
            FieldProblem(
                f"{path}.affinity.nodeAffinity",
                "",
                "cannot be set here: it pins the executor to its chiplet",
                "write spec.placement.nodeSelector",
            )
        )
    for field, name in _KEYED_LISTS.items():
        if field in spec:
            problems += _list_problems(spec[field], f"{path}.{field}", name)
    for field in ("containers", "initContainers"):
        containers = spec.get(field)
        if isinstance(containers, list):
            problems += _containers_problems(containers, f"{path}.{field}")
    return problems


def _containers_problems(containers: list[Any], path: str) -> list[FieldProblem]:
    problems = []
    for container in containers:
        if not isinstance(container, Mapping):
            continue
        here = f"{path}[{container.get('name', '?')}]"
        for field, name in _KEYED_LISTS.items():
            if field in container:
                problems += _list_problems(container[field], f"{here}.{field}", name)
        problems += _map_problems(container, here, _CONTAINER_MAPS)
        problems += _resources_problems(container.get("resources"), f"{here}.resources")
        if container.get("name") in _GENERATED_CONTAINERS and "lifecycle" in container:
            problems.append(
                FieldProblem(f"{here}.lifecycle", "", "cannot be set", "remove it: draining depends on it")
            )
        mounts = container.get("volumeMounts")
        problems += [
            FieldProblem(
                f"{here}.volumeMounts", shown(mount["mountPath"]), "is SuperInfer's own", "mount elsewhere"
            )
            for mount in (mounts if isinstance(mounts, list) else [])
            if isinstance(mount, Mapping) and _reserved_mount(str(mount.get("mountPath", "")))
        ]
    return problems


def _map_problems(found: Mapping[str, Any], path: str, fields: tuple[str, ...]) -> list[FieldProblem]:
    return [
        _not_a_map(f"{path}.{field}", found[field])
        for field in fields
        if found.get(field) is not None and not isinstance(found[field], Mapping)
    ]


def _resources_problems(resources: Any, path: str) -> list[FieldProblem]:
    if not isinstance(resources, Mapping):
        return []
    problems = _map_problems(resources, path, ("requests", "limits"))
    if "claims" in resources:
        problems += _list_problems(resources["claims"], f"{path}.claims", "name")
    return problems


def _tolerations_problems(tolerations: Any, path: str) -> list[FieldProblem]:
    if tolerations is None:
        return []
    if not isinstance(tolerations, list):
        return [FieldProblem(path, shown(tolerations), "is not a list", "write a list")]
    problems = []
    for at, toleration in enumerate(tolerations):
        if not isinstance(toleration, Mapping):
            problems.append(_not_a_map(f"{path}[{at}]", toleration))
        elif toleration.get("effect") not in _EFFECTS:
            problems.append(
                FieldProblem(
                    f"{path}[{at}].effect",
                    shown(toleration["effect"]),
                    "is no effect of a taint",
                    "write NoSchedule, PreferNoSchedule or NoExecute, or leave it out for all",
                )
            )
    return problems


def _reserved_mount(path: str) -> bool:
    return any(path.rstrip("/") == own or path.startswith(f"{own}/") for own in _RESERVED_MOUNTS)


def _list_problems(items: Any, path: str, name: str) -> list[FieldProblem]:
    if items is None:
        return []
    if not isinstance(items, list):
        return [FieldProblem(path, shown(items), "is not a list", "write a list")]
    return [
        FieldProblem(f"{path}[{at}]", shown(item), f"has no {name}", f"give every item a {name}")
        for at, item in enumerate(items)
        # Ports may go without a name, as in any pod.
        if not isinstance(item, Mapping) or (not item.get(name) and not path.endswith(".ports"))
    ]


def _not_a_map(path: str, value: Any) -> FieldProblem:
    return FieldProblem(path, shown(value), "is not a mapping", "write fields under it")
