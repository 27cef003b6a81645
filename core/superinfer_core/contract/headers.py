"""The SLO headers of one request, read into durations.

Promises: a header that cannot be a promise (0, negative, text, NaN, a number with a unit, overflow) raises
`InvalidSlo` with its name, its value and the fix; it is never taken as "most urgent". Headers without any
SLO field cost a few dictionary look-ups. `headers` has lower-case names. Pure; safe from any thread.

Choices the design leaves open:
- A canonical name and its `x-llm-d-slo-*` alias may both be there if they agree; two different values are an
  error, because whichever we took, somebody would get less than they asked for.
- A relative latency and an absolute deadline may both be there: both hold, so the tighter counts.
- `x-slo-sent-at` without `x-slo-deadline` says nothing and is ignored once it is well-formed.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from superinfer_core.contract.problems import InvalidSlo
from superinfer_core.slo import MAX_TARGET_MS

CONTRACT_ID: Final = "x-slo-contract-id"
MAX_LATENCY: Final = "x-slo-max-latency-ms"
DEADLINE: Final = "x-slo-deadline"
SENT_AT: Final = "x-slo-sent-at"
TTFT: Final = "x-slo-ttft-ms"
TPOT: Final = "x-slo-tpot-ms"
LLM_D_TTFT: Final = "x-llm-d-slo-ttft-ms"
LLM_D_TPOT: Final = "x-llm-d-slo-tpot-ms"

SLO_HEADERS: Final = frozenset(
    {CONTRACT_ID, MAX_LATENCY, DEADLINE, SENT_AT, TTFT, TPOT, LLM_D_TTFT, LLM_D_TPOT}
)

_MILLISECONDS: Final = re.compile(r"[0-9]{1,7}(\.[0-9]{1,6})?", re.ASCII)
_INSTANT: Final = re.compile(r"[0-9]{1,15}(\.[0-9]{1,6})?", re.ASCII)
_CONTRACT_ID: Final = re.compile(
    r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?/)?[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class HeaderSlo:
    """What the headers of one request ask for; None where they say nothing."""

    contract_id: str | None = None
    ttft_ms: float | None = None
    itl_ms: float | None = None
    e2e_ms: float | None = None


NO_HEADERS: Final = HeaderSlo()


def parse_slo_headers(headers: Mapping[str, str], now_unix_ms: float) -> HeaderSlo:
    """Read the SLO headers of a request.

    Args:
        headers: by lower-case name.
        now_unix_ms: wall clock, used only for `x-slo-deadline` without `x-slo-sent-at`.

    Raises:
        InvalidSlo: a header is there and cannot be a promise.
    """
    get = headers.get
    contract_id = get(CONTRACT_ID)
    max_latency, deadline = get(MAX_LATENCY), get(DEADLINE)
    ttft = _either(get, TTFT, LLM_D_TTFT)
    itl = _either(get, TPOT, LLM_D_TPOT)
    if contract_id is None and max_latency is None and deadline is None and ttft is None and itl is None:
        if get(SENT_AT) is not None:
            _instant(SENT_AT, headers[SENT_AT])
        return NO_HEADERS
    if contract_id is not None:
        contract_id = _contract_id(contract_id)
    e2e = None if max_latency is None else _milliseconds(MAX_LATENCY, max_latency)
    if deadline is not None:
        left = _time_left_ms(deadline, get(SENT_AT), now_unix_ms)
        e2e = left if e2e is None else min(e2e, left)
    return HeaderSlo(contract_id=contract_id, ttft_ms=ttft, itl_ms=itl, e2e_ms=e2e)


def split_contract_id(contract_id: str) -> tuple[str | None, str]:
    """(namespace or None, serviceID) of a checked `x-slo-contract-id`."""
    namespace, slash, service_id = contract_id.rpartition("/")
    return (namespace if slash else None), service_id


def _contract_id(value: str) -> str:
    text = value.strip(" \t")
    if len(text) > 127 or not _CONTRACT_ID.fullmatch(text):
        raise InvalidSlo(
            CONTRACT_ID,
            value,
            "write a serviceID (lower-case letters, digits and dashes, up to 63) or namespace/serviceID",
        )
    return text


def _milliseconds(name: str, value: str) -> float:
    """A positive duration up to an hour. Plain decimals only: `float()` would take nan, inf, 1e9 and 1_0."""
    text = value.strip(" \t") if len(value) <= 64 else value
    if _MILLISECONDS.fullmatch(text):
        number = float(text)
        if 0 < number <= MAX_TARGET_MS:
            return number
    raise InvalidSlo(
        name, value, f"write milliseconds as a plain number above 0 and at most {MAX_TARGET_MS}, e.g. 300"
    )


def _instant(name: str, value: str) -> float:
    text = value.strip(" \t") if len(value) <= 64 else value
    if _INSTANT.fullmatch(text):
        number = float(text)
        if number > 0:
            return number
    raise InvalidSlo(name, value, "write milliseconds since 1970-01-01 UTC as a plain number")


def _either(get: Callable[[str], str | None], canonical: str, alias: str) -> float | None:
    first, second = get(canonical), get(alias)
    if first is None and second is None:
        return None
    if second is None:
        return _milliseconds(canonical, first or "")
    if first is None:
        return _milliseconds(alias, second)
    ours, theirs = _milliseconds(canonical, first), _milliseconds(alias, second)
    if ours != theirs:
        raise InvalidSlo(
            canonical, first, f"send only one of {canonical} and {alias}, or the same value in both"
        )
    return ours


def _time_left_ms(deadline: str, sent_at: str | None, now_unix_ms: float) -> float:
    due = _instant(DEADLINE, deadline)
    since = now_unix_ms if sent_at is None else _instant(SENT_AT, sent_at)
    left = due - since
    if 0 < left <= MAX_TARGET_MS:
        return left
    reference = "now" if sent_at is None else SENT_AT
    problem = f"is not after {reference}" if left <= 0 else f"is more than an hour after {reference}"
    raise InvalidSlo(
        DEADLINE, deadline, f"it {problem}; send {MAX_LATENCY} (relative), or {SENT_AT} beside the deadline"
    )
