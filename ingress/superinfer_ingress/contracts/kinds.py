"""Which documents of a file are contracts, and which only live beside them.

Promises: a contract whose kind or apiVersion is mistyped still counts as a contract, so that it is refused
aloud and not left out. Pure.
"""

import difflib
from collections.abc import Mapping
from typing import Any, Final

from superinfer_core.api.v1alpha1.chipletpool import CHIPLETPOOL_KIND
from superinfer_core.api.v1alpha1.meta import API_VERSION
from superinfer_core.api.v1alpha1.nodetopology import NODETOPOLOGY_KIND
from superinfer_core.api.v1alpha1.slocontract import SLOCONTRACT_KIND

_GROUP: Final = API_VERSION.partition("/")[0]
_OTHER_KINDS: Final = frozenset({CHIPLETPOOL_KIND, NODETOPOLOGY_KIND})
_ALIKE: Final = 0.75


def of_another_kind(document: Mapping[str, Any]) -> bool:
    """Whether a document says that it is something else than a contract: a Secret, say, or a pool."""
    version, kind = document.get("apiVersion"), document.get("kind")
    if not isinstance(version, str) or not isinstance(kind, str) or not kind:
        return False
    if version.partition("/")[0] == _GROUP:
        return kind in _OTHER_KINDS
    return not _like_a_contract(kind)


def _like_a_contract(kind: str) -> bool:
    short = kind[: 2 * len(SLOCONTRACT_KIND)]
    return difflib.SequenceMatcher(None, short.lower(), SLOCONTRACT_KIND.lower()).ratio() >= _ALIKE
