from superinfer_proto.v1 import slo_pb2 as _slo_pb2
from superinfer_proto.v1 import work_pb2 as _work_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EngineType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENGINE_TYPE_UNSPECIFIED: _ClassVar[EngineType]
    ENGINE_TYPE_VLLM: _ClassVar[EngineType]
    ENGINE_TYPE_STUB: _ClassVar[EngineType]
ENGINE_TYPE_UNSPECIFIED: EngineType
ENGINE_TYPE_VLLM: EngineType
ENGINE_TYPE_STUB: EngineType

class ToEngine(_message.Message):
    __slots__ = ("submits", "cancels")
    SUBMITS_FIELD_NUMBER: _ClassVar[int]
    CANCELS_FIELD_NUMBER: _ClassVar[int]
    submits: _containers.RepeatedCompositeFieldContainer[_work_pb2.Submit]
    cancels: _containers.RepeatedCompositeFieldContainer[_work_pb2.Cancel]
    def __init__(self, submits: _Optional[_Iterable[_Union[_work_pb2.Submit, _Mapping]]] = ..., cancels: _Optional[_Iterable[_Union[_work_pb2.Cancel, _Mapping]]] = ...) -> None: ...

class FromEngine(_message.Message):
    __slots__ = ("info", "frame")
    INFO_FIELD_NUMBER: _ClassVar[int]
    FRAME_FIELD_NUMBER: _ClassVar[int]
    info: EngineInfo
    frame: _work_pb2.Frame
    def __init__(self, info: _Optional[_Union[EngineInfo, _Mapping]] = ..., frame: _Optional[_Union[_work_pb2.Frame, _Mapping]] = ...) -> None: ...

class EngineInfo(_message.Message):
    __slots__ = ("type", "version", "model", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "block_size", "kv_total_tokens", "generation", "scheduler", "dtype")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MAX_MODEL_LEN_FIELD_NUMBER: _ClassVar[int]
    MAX_NUM_SEQS_FIELD_NUMBER: _ClassVar[int]
    MAX_NUM_BATCHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    KV_TOTAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    type: EngineType
    version: str
    model: str
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    kv_total_tokens: int
    generation: str
    scheduler: str
    dtype: str
    def __init__(self, type: _Optional[_Union[EngineType, str]] = ..., version: _Optional[str] = ..., model: _Optional[str] = ..., max_model_len: _Optional[int] = ..., max_num_seqs: _Optional[int] = ..., max_num_batched_tokens: _Optional[int] = ..., block_size: _Optional[int] = ..., kv_total_tokens: _Optional[int] = ..., generation: _Optional[str] = ..., scheduler: _Optional[str] = ..., dtype: _Optional[str] = ...) -> None: ...

class RenderBatch(_message.Message):
    __slots__ = ("requests",)
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[RenderRequest]
    def __init__(self, requests: _Optional[_Iterable[_Union[RenderRequest, _Mapping]]] = ...) -> None: ...

class RenderRequest(_message.Message):
    __slots__ = ("request_id", "path", "body")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    path: str
    body: bytes
    def __init__(self, request_id: _Optional[str] = ..., path: _Optional[str] = ..., body: _Optional[bytes] = ...) -> None: ...

class RenderedBatch(_message.Message):
    __slots__ = ("rendered",)
    RENDERED_FIELD_NUMBER: _ClassVar[int]
    rendered: _containers.RepeatedCompositeFieldContainer[Rendered]
    def __init__(self, rendered: _Optional[_Iterable[_Union[Rendered, _Mapping]]] = ...) -> None: ...

class Rendered(_message.Message):
    __slots__ = ("request_id", "prompt_token_ids", "total_prompt_tokens", "max_tokens", "choices", "stream", "resumable", "error", "min_tokens")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    RESUMABLE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MIN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    prompt_token_ids: _containers.RepeatedScalarFieldContainer[int]
    total_prompt_tokens: int
    max_tokens: int
    choices: int
    stream: bool
    resumable: bool
    error: _slo_pb2.Error
    min_tokens: int
    def __init__(self, request_id: _Optional[str] = ..., prompt_token_ids: _Optional[_Iterable[int]] = ..., total_prompt_tokens: _Optional[int] = ..., max_tokens: _Optional[int] = ..., choices: _Optional[int] = ..., stream: _Optional[bool] = ..., resumable: _Optional[bool] = ..., error: _Optional[_Union[_slo_pb2.Error, _Mapping]] = ..., min_tokens: _Optional[int] = ...) -> None: ...
