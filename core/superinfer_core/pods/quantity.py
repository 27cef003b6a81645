"""What pods ask of their node: Kubernetes quantities as whole numbers. Pure.

cpu is counted in millicores, memory and storage in bytes, everything else in units; fractions round up,
because half a byte that is asked for has to be there.
"""

import math
import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final

_SUFFIXES: Final[Mapping[str, Decimal]] = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}
_QUANTITY: Final = re.compile(r"^([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([numkMGTPE]|[KMGTPE]i)?$")


def quantity(text: str | float, *, per_unit: int = 1) -> int:
    """A quantity in whole parts of a unit: `quantity("250m", per_unit=1000)` is 250.

    Raises:
        ValueError: it is not a quantity.
    """
    match = _QUANTITY.match(str(text))
    if match is None:
        msg = f"not a quantity: {str(text)[:80]!r}"
        raise ValueError(msg)
    try:
        value = Decimal(match[1]) * _SUFFIXES[match[2] or ""] * per_unit
    except InvalidOperation:
        msg = f"not a quantity: {str(text)[:80]!r}"
        raise ValueError(msg) from None
    return math.ceil(value)


def amounts(resources: Mapping[str, Any]) -> dict[str, int]:
    """A map of resource names to quantities, as whole numbers; what cannot be read counts as nothing."""
    found = {}
    for name, text in resources.items():
        try:
            found[name] = quantity(text, per_unit=1000 if name == "cpu" else 1)
        except ValueError:
            continue
    return found


def pod_requests(spec: Mapping[str, Any]) -> dict[str, int]:
    """What a pod asks of its node, as the scheduler counts it.

    The sum over its containers, or what one init container asks if that is more; sidecars that start as init
    containers (restartPolicy Always) add to both. A pod that states its own total is taken by its word.
    """
    running: dict[str, int] = {}
    most: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        asked = _requests(container)
        if container.get("restartPolicy") == "Always":
            running = _added(running, asked)
            most = _highest(most, running)
        else:
            most = _highest(most, _added(running, asked))
    for container in spec.get("containers") or ():
        running = _added(running, _requests(container))
    total = _highest(most, running)
    total |= amounts((spec.get("resources") or {}).get("requests") or {})
    return _added(total, amounts(spec.get("overhead") or {}))


def _requests(container: Mapping[str, Any]) -> dict[str, int]:
    resources = container.get("resources") or {}
    # A limit without a request is a request: so the API server stores it for pods it defaults.
    return amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _added(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    return {name: left.get(name, 0) + right.get(name, 0) for name in {**left, **right}}


def _highest(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in {**left, **right}}
