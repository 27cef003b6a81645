from superinfer_proto.v1 import slo_pb2 as _slo_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AdmissionMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ADMISSION_MODE_UNSPECIFIED: _ClassVar[AdmissionMode]
    ADMISSION_MODE_ENFORCE: _ClassVar[AdmissionMode]
    ADMISSION_MODE_SKIP: _ClassVar[AdmissionMode]
ADMISSION_MODE_UNSPECIFIED: AdmissionMode
ADMISSION_MODE_ENFORCE: AdmissionMode
ADMISSION_MODE_SKIP: AdmissionMode

class Submit(_message.Message):
    __slots__ = ("request_id", "attempt", "path", "body", "slo", "admission", "cache_salt", "created_s", "delivered", "prompt_token_ids", "expected_output_tokens", "checkpoint_holders")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    SLO_FIELD_NUMBER: _ClassVar[int]
    ADMISSION_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    CREATED_S_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_HOLDERS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    path: str
    body: bytes
    slo: _slo_pb2.RequestSlo
    admission: AdmissionMode
    cache_salt: str
    created_s: int
    delivered: _containers.RepeatedCompositeFieldContainer[_slo_pb2.TokenGroup]
    prompt_token_ids: _containers.RepeatedScalarFieldContainer[int]
    expected_output_tokens: int
    checkpoint_holders: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ..., path: _Optional[str] = ..., body: _Optional[bytes] = ..., slo: _Optional[_Union[_slo_pb2.RequestSlo, _Mapping]] = ..., admission: _Optional[_Union[AdmissionMode, str]] = ..., cache_salt: _Optional[str] = ..., created_s: _Optional[int] = ..., delivered: _Optional[_Iterable[_Union[_slo_pb2.TokenGroup, _Mapping]]] = ..., prompt_token_ids: _Optional[_Iterable[int]] = ..., expected_output_tokens: _Optional[int] = ..., checkpoint_holders: _Optional[_Iterable[str]] = ...) -> None: ...

class Cancel(_message.Message):
    __slots__ = ("request_id", "attempt")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class Output(_message.Message):
    __slots__ = ("request_id", "attempt", "choice", "first_token", "token_ids", "text_end", "tool_end", "chunk", "finish_reason", "stop_reason", "final", "error", "usage")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TEXT_END_FIELD_NUMBER: _ClassVar[int]
    TOOL_END_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    STOP_REASON_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    choice: int
    first_token: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    text_end: int
    tool_end: int
    chunk: bytes
    finish_reason: str
    stop_reason: str
    final: bool
    error: _slo_pb2.Error
    usage: Usage
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ..., choice: _Optional[int] = ..., first_token: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ..., text_end: _Optional[int] = ..., tool_end: _Optional[int] = ..., chunk: _Optional[bytes] = ..., finish_reason: _Optional[str] = ..., stop_reason: _Optional[str] = ..., final: _Optional[bool] = ..., error: _Optional[_Union[_slo_pb2.Error, _Mapping]] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("prompt_tokens", "completion_tokens", "cached_tokens", "preemptions")
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    preemptions: int
    def __init__(self, prompt_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ..., preemptions: _Optional[int] = ...) -> None: ...

class Preemption(_message.Message):
    __slots__ = ("request_id", "for_request_id", "computed_tokens")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    FOR_REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    COMPUTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    for_request_id: str
    computed_tokens: int
    def __init__(self, request_id: _Optional[str] = ..., for_request_id: _Optional[str] = ..., computed_tokens: _Optional[int] = ...) -> None: ...

class StepFacts(_message.Message):
    __slots__ = ("step_ms", "prefill_tokens", "prefill_context_tokens2", "decode_seqs", "decode_context_tokens", "running", "waiting", "kv_usage", "preemptions", "progress")
    STEP_MS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_CONTEXT_TOKENS2_FIELD_NUMBER: _ClassVar[int]
    DECODE_SEQS_FIELD_NUMBER: _ClassVar[int]
    DECODE_CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    KV_USAGE_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    step_ms: float
    prefill_tokens: int
    prefill_context_tokens2: float
    decode_seqs: int
    decode_context_tokens: int
    running: int
    waiting: int
    kv_usage: float
    preemptions: _containers.RepeatedCompositeFieldContainer[Preemption]
    progress: _containers.RepeatedCompositeFieldContainer[Progress]
    def __init__(self, step_ms: _Optional[float] = ..., prefill_tokens: _Optional[int] = ..., prefill_context_tokens2: _Optional[float] = ..., decode_seqs: _Optional[int] = ..., decode_context_tokens: _Optional[int] = ..., running: _Optional[int] = ..., waiting: _Optional[int] = ..., kv_usage: _Optional[float] = ..., preemptions: _Optional[_Iterable[_Union[Preemption, _Mapping]]] = ..., progress: _Optional[_Iterable[_Union[Progress, _Mapping]]] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("request_id", "computed_tokens")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    COMPUTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    computed_tokens: int
    def __init__(self, request_id: _Optional[str] = ..., computed_tokens: _Optional[int] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("step", "outputs", "facts")
    STEP_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    step: int
    outputs: _containers.RepeatedCompositeFieldContainer[Output]
    facts: StepFacts
    def __init__(self, step: _Optional[int] = ..., outputs: _Optional[_Iterable[_Union[Output, _Mapping]]] = ..., facts: _Optional[_Union[StepFacts, _Mapping]] = ...) -> None: ...
