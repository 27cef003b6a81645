"""The promise of one request as it reaches the engine: flat keys in vLLM's `extra_args`.

Promise: parsing is total: it gives a usable value or an InvalidRequestSlo naming key, value and fix; nothing
is ever read as "most urgent" by mistake. Keys without the `slo_` prefix are other people's and left alone.
Imports nothing of vLLM, so the front end can refuse what the scheduler would have to distrust.

A stock `vllm serve` takes the same keys from the body's `vllm_xargs`: slo_ttft_ms, slo_itl_ms, slo_e2e_ms,
slo_rank.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from superinfer_core.slo import BEST_EFFORT_TIER_RANK, Rank, RequestSlo, Tier
from superinfer_core.values import InvalidValue, number, whole

PREFIX: Final = "slo_"
TTFT, ITL, E2E = "slo_ttft_ms", "slo_itl_ms", "slo_e2e_ms"
RANK: Final = "slo_rank"
PRIORITY: Final = "slo_priority"
MAX_JITTER: Final = "slo_max_jitter_ms"
BEST_EFFORT: Final = "slo_best_effort"
CONTRACT: Final = "slo_contract"
CONTRACT_HOLDS: Final = "slo_contract_holds"
BUDGET_LEFT: Final = "slo_budget_left"
ELAPSED: Final = "slo_elapsed_ms"
SINCE_FIRST_TOKEN: Final = "slo_since_first_token_ms"  # noqa: S105 - a key, not a secret
EXPECTED_OUTPUT_TOKENS: Final = "slo_expected_output_tokens"
RESUME_TOKEN_IDS: Final = "resume_token_ids"  # noqa: S105

MAX_MS: Final = 86_400_000.0
"""A day: longer promises are a slip of the unit."""
MAX_RANK: Final = 1_000
MAX_PRIORITY: Final = 2**31 - 1
MAX_TOKENS: Final = 100_000_000
MAX_NAME_CHARS: Final = 512

DEFAULT_RANK_WITH_TARGETS: Final = Tier.BRONZE.rank
"""A target without a rank: before best effort, never before work that says what it is."""

KEYS: Final = frozenset(
    {TTFT, ITL, E2E, RANK, PRIORITY, MAX_JITTER, BEST_EFFORT, CONTRACT, CONTRACT_HOLDS, BUDGET_LEFT}
    | {ELAPSED, SINCE_FIRST_TOKEN, EXPECTED_OUTPUT_TOKENS}
)


class InvalidRequestSlo(InvalidValue):
    """A promise that cannot be read."""


@dataclass(frozen=True, slots=True)
class EnginePromise:
    """What the scheduler knows of a request besides vLLM's own fields.

    Attributes:
        slo: the promise; best effort where no key was given.
        elapsed_ms: since the request arrived at the ingress, when it was handed to the engine.
        since_first_token_ms: since its first token was delivered (a resume), or None.
        expected_output_tokens: predicted total output, or None.
        resume_token_ids: tokens already delivered; they count as output.
    """

    slo: RequestSlo
    elapsed_ms: float = 0.0
    since_first_token_ms: float | None = None
    expected_output_tokens: int | None = None
    resume_token_ids: tuple[int, ...] = ()


NO_PROMISE: Final = EnginePromise(RequestSlo(contract="", rank=Rank(BEST_EFFORT_TIER_RANK), best_effort=True))


def parse_promise(extra_args: Mapping[str, Any] | None) -> EnginePromise:
    """Read the promise out of `SamplingParams.extra_args`; raises InvalidRequestSlo."""
    if not extra_args:
        return NO_PROMISE
    for key in extra_args:
        if isinstance(key, str) and key.startswith(PREFIX) and key not in KEYS:
            raise InvalidRequestSlo(
                key, extra_args[key], f"unknown key; use one of {', '.join(sorted(KEYS))}"
            )
    resume = resume_token_ids(extra_args)
    if not resume and not any(key in extra_args for key in KEYS):
        return NO_PROMISE
    return EnginePromise(
        slo=_slo(extra_args),
        elapsed_ms=_number(extra_args, ELAPSED, 0.0, MAX_MS) or 0.0,
        since_first_token_ms=_number(extra_args, SINCE_FIRST_TOKEN, 0.0, MAX_MS),
        expected_output_tokens=_whole(extra_args, EXPECTED_OUTPUT_TOKENS, 1, MAX_TOKENS),
        resume_token_ids=resume,
    )


def resume_token_ids(extra_args: Mapping[str, Any] | None) -> tuple[int, ...]:
    """The tokens delivered before, in order; raises InvalidRequestSlo."""
    return _token_ids(extra_args.get(RESUME_TOKEN_IDS)) if extra_args else ()


def promise_extra_args(promise: EnginePromise) -> dict[str, Any]:
    """The keys that `parse_promise` reads back as `promise`."""
    slo = promise.slo
    keys: dict[str, Any] = {
        RANK: slo.rank.tier_rank,
        PRIORITY: -slo.rank.negated_priority,
        TTFT: slo.ttft_ms,
        ITL: slo.itl_ms,
        E2E: slo.e2e_ms,
        MAX_JITTER: slo.max_jitter_ms,
        BEST_EFFORT: slo.best_effort,
        CONTRACT: slo.contract or None,
        CONTRACT_HOLDS: slo.contract_holds,
        BUDGET_LEFT: slo.budget_left,
        ELAPSED: promise.elapsed_ms,
        SINCE_FIRST_TOKEN: promise.since_first_token_ms,
        EXPECTED_OUTPUT_TOKENS: promise.expected_output_tokens,
        RESUME_TOKEN_IDS: list(promise.resume_token_ids) or None,
    }
    return {key: value for key, value in keys.items() if value is not None}


def _slo(args: Mapping[str, Any]) -> RequestSlo:
    targets = [_number(args, key, 0.0, MAX_MS, above=True) for key in (TTFT, ITL, E2E)]
    promised = any(target is not None for target in targets)
    rank = _whole(args, RANK, 0, MAX_RANK)
    if rank is None:
        rank = DEFAULT_RANK_WITH_TARGETS if promised else BEST_EFFORT_TIER_RANK
    best_effort = _switch(args, BEST_EFFORT)
    budget_left = _number(args, BUDGET_LEFT, 0.0, 1.0)
    contract_holds = _switch(args, CONTRACT_HOLDS)
    return RequestSlo(
        contract=_name(args, CONTRACT),
        rank=Rank(rank, -(_whole(args, PRIORITY, -MAX_PRIORITY, MAX_PRIORITY) or 0)),
        ttft_ms=targets[0],
        itl_ms=targets[1],
        e2e_ms=targets[2],
        max_jitter_ms=_number(args, MAX_JITTER, 0.0, MAX_MS, above=True),
        best_effort=not promised if best_effort is None else best_effort,
        contract_holds=True if contract_holds is None else contract_holds,
        budget_left=1.0 if budget_left is None else budget_left,
    )


def _number(
    args: Mapping[str, Any], key: str, least: float, most: float, *, above: bool = False
) -> float | None:
    value = args.get(key)
    return None if value is None else number(key, value, least, most, above=above, error=InvalidRequestSlo)


def _whole(args: Mapping[str, Any], key: str, least: int, most: int) -> int | None:
    value = args.get(key)
    return None if value is None else whole(key, value, least, most, error=InvalidRequestSlo)


def _switch(args: Mapping[str, Any], key: str) -> bool | None:
    # vLLM's own request model knows numbers and text only, so true arrives as 1.
    value = args.get(key)
    if value is None:
        return None
    if value in (True, 1):
        return True
    if value in (False, 0):
        return False
    raise InvalidRequestSlo(key, value, "write 1 or 0")


def _name(args: Mapping[str, Any], key: str) -> str:
    value = args.get(key)
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > MAX_NAME_CHARS:
        raise InvalidRequestSlo(key, value, f"write a name of at most {MAX_NAME_CHARS} characters")
    return value


def _token_ids(value: object) -> tuple[int, ...]:
    if value is None:
        return ()
    fix = "write the list of token ids already delivered"
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise InvalidRequestSlo(RESUME_TOKEN_IDS, value, fix)
    ids = []
    for item in value:
        if isinstance(item, bool) or not isinstance(item, int | float) or not 0 <= item < MAX_TOKENS:
            raise InvalidRequestSlo(RESUME_TOKEN_IDS, item, fix)
        if item != int(item):
            raise InvalidRequestSlo(RESUME_TOKEN_IDS, item, fix)
        ids.append(int(item))
    return tuple(ids)
