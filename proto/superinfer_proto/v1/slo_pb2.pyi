from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Tier(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TIER_UNSPECIFIED: _ClassVar[Tier]
    TIER_GOLD: _ClassVar[Tier]
    TIER_SILVER: _ClassVar[Tier]
    TIER_BRONZE: _ClassVar[Tier]
TIER_UNSPECIFIED: Tier
TIER_GOLD: Tier
TIER_SILVER: Tier
TIER_BRONZE: Tier

class RequestSlo(_message.Message):
    __slots__ = ("contract", "tier", "priority", "best_effort", "ttft_target_ms", "itl_target_ms", "e2e_target_ms", "max_jitter_ms", "elapsed_ms", "since_first_token_ms", "quantile", "contract_holds", "budget_left")
    CONTRACT_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    BEST_EFFORT_FIELD_NUMBER: _ClassVar[int]
    TTFT_TARGET_MS_FIELD_NUMBER: _ClassVar[int]
    ITL_TARGET_MS_FIELD_NUMBER: _ClassVar[int]
    E2E_TARGET_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_JITTER_MS_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_MS_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIRST_TOKEN_MS_FIELD_NUMBER: _ClassVar[int]
    QUANTILE_FIELD_NUMBER: _ClassVar[int]
    CONTRACT_HOLDS_FIELD_NUMBER: _ClassVar[int]
    BUDGET_LEFT_FIELD_NUMBER: _ClassVar[int]
    contract: str
    tier: Tier
    priority: int
    best_effort: bool
    ttft_target_ms: float
    itl_target_ms: float
    e2e_target_ms: float
    max_jitter_ms: float
    elapsed_ms: float
    since_first_token_ms: float
    quantile: float
    contract_holds: bool
    budget_left: float
    def __init__(self, contract: _Optional[str] = ..., tier: _Optional[_Union[Tier, str]] = ..., priority: _Optional[int] = ..., best_effort: _Optional[bool] = ..., ttft_target_ms: _Optional[float] = ..., itl_target_ms: _Optional[float] = ..., e2e_target_ms: _Optional[float] = ..., max_jitter_ms: _Optional[float] = ..., elapsed_ms: _Optional[float] = ..., since_first_token_ms: _Optional[float] = ..., quantile: _Optional[float] = ..., contract_holds: _Optional[bool] = ..., budget_left: _Optional[float] = ...) -> None: ...

class TokenGroup(_message.Message):
    __slots__ = ("choice", "first_token", "token_ids", "finish_reason", "stop_reason")
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    STOP_REASON_FIELD_NUMBER: _ClassVar[int]
    choice: int
    first_token: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    finish_reason: str
    stop_reason: str
    def __init__(self, choice: _Optional[int] = ..., first_token: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ..., finish_reason: _Optional[str] = ..., stop_reason: _Optional[str] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "message", "param")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PARAM_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    param: str
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., param: _Optional[str] = ...) -> None: ...
