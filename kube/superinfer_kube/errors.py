"""What can go wrong with a call to the API server, by what a caller can do about it.

The message is the server's own: it names the object, the field and the reason. `KubeError` is the root;
`Unavailable` alone is worth trying again unchanged.
"""

from collections.abc import Mapping
from typing import Any, Final


class KubeConfigError(Exception):
    """There is no usable way to a cluster: neither a service account nor a kubeconfig."""


class KubeError(Exception):
    """A call failed."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "", what: str = "") -> None:
        super().__init__(f"{what}: {message}" if what else message)
        self.message = message
        """The server's words."""
        self.status = status
        """HTTP status; 0 where there was no answer."""
        self.reason = reason
        """The server's reason, e.g. AlreadyExists."""
        self.what = what
        """What was asked for, e.g. "apply slocontracts shop/checkout"."""


class NotFound(KubeError):
    """The object, its namespace or its kind does not exist."""


class Conflict(KubeError):
    """Somebody else changed or owns it: read again and decide anew."""


class AlreadyExists(Conflict):
    """An object of that name is there already."""


class Gone(KubeError):
    """The resource version is too old to go on from; list again."""


class Forbidden(KubeError):
    """The credentials are missing, expired, or may not do this."""


class Invalid(KubeError):
    """The server refuses the object; the message names the fields."""


class Unavailable(KubeError):
    """No answer, or one that says to try again later."""

    def __init__(
        self, message: str, *, status: int = 0, reason: str = "", what: str = "", retry_after_s: float = 0.0
    ) -> None:
        super().__init__(message, status=status, reason=reason, what=what)
        self.retry_after_s = retry_after_s
        """What the server asked for; 0 where it did not."""


def refuses_object(error: KubeError) -> bool:
    """Whether the server will not take an object as long as people leave things as they are.

    A right or a field that is missing, a quota, a policy, or a webhook that has to be asked and is away.
    """
    if isinstance(error, Forbidden | Invalid):
        return error.status != _UNAUTHENTICATED
    return error.reason == "InternalError" and "webhook" in error.message


_UNAUTHENTICATED: Final = 401
_BY_STATUS: Final[Mapping[int, type[KubeError]]] = {
    400: Invalid,
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    413: Invalid,
    415: Invalid,
    422: Invalid,
}
_TRY_LATER: Final = frozenset({408, 425, 429})


def error_from_status(
    status: int, document: Mapping[str, Any] | None, *, what: str, retry_after: str | None = None
) -> KubeError:
    """The error of an answer: `document` is its Status object, None where the body was something else."""
    document = document or {}
    message = str(document.get("message") or f"the API server answered {status}")
    reason = str(document.get("reason") or "")
    if status in _TRY_LATER or status >= 500:
        return Unavailable(
            message, status=status, reason=reason, what=what, retry_after_s=_seconds(retry_after)
        )
    kind = _BY_STATUS.get(status, KubeError)
    if reason == "AlreadyExists":
        kind = AlreadyExists
    elif reason in ("Expired", "Gone"):
        kind = Gone
    return kind(message, status=status, reason=reason, what=what)


def _seconds(text: str | None) -> float:
    return float(text) if text is not None and text.isdigit() else 0.0
