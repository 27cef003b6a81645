from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Increment(_message.Message):
    __slots__ = ("block_hash", "payload", "seal", "stream", "ordinal", "tail_tokens")
    BLOCK_HASH_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    SEAL_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    ORDINAL_FIELD_NUMBER: _ClassVar[int]
    TAIL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    block_hash: bytes
    payload: bytes
    seal: int
    stream: int
    ordinal: int
    tail_tokens: int
    def __init__(self, block_hash: _Optional[bytes] = ..., payload: _Optional[bytes] = ..., seal: _Optional[int] = ..., stream: _Optional[int] = ..., ordinal: _Optional[int] = ..., tail_tokens: _Optional[int] = ...) -> None: ...

class ReplicateBatch(_message.Message):
    __slots__ = ("executor", "session", "sequence", "layout", "increments", "ended")
    EXECUTOR_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    INCREMENTS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    executor: str
    session: int
    sequence: int
    layout: str
    increments: _containers.RepeatedCompositeFieldContainer[Increment]
    ended: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, executor: _Optional[str] = ..., session: _Optional[int] = ..., sequence: _Optional[int] = ..., layout: _Optional[str] = ..., increments: _Optional[_Iterable[_Union[Increment, _Mapping]]] = ..., ended: _Optional[_Iterable[int]] = ...) -> None: ...

class ReplicateAck(_message.Message):
    __slots__ = ("sequence", "missing", "refused")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    missing: _containers.RepeatedScalarFieldContainer[bytes]
    refused: int
    def __init__(self, sequence: _Optional[int] = ..., missing: _Optional[_Iterable[bytes]] = ..., refused: _Optional[int] = ...) -> None: ...

class LocateRequest(_message.Message):
    __slots__ = ("layout", "streams")
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    layout: str
    streams: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, layout: _Optional[str] = ..., streams: _Optional[_Iterable[int]] = ...) -> None: ...

class LocateResponse(_message.Message):
    __slots__ = ("contiguous_blocks", "tails")
    CONTIGUOUS_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    TAILS_FIELD_NUMBER: _ClassVar[int]
    contiguous_blocks: _containers.RepeatedScalarFieldContainer[int]
    tails: _containers.RepeatedScalarFieldContainer[bool]
    def __init__(self, contiguous_blocks: _Optional[_Iterable[int]] = ..., tails: _Optional[_Iterable[bool]] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("layout", "wanted")
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    layout: str
    wanted: _containers.RepeatedCompositeFieldContainer[Wanted]
    def __init__(self, layout: _Optional[str] = ..., wanted: _Optional[_Iterable[_Union[Wanted, _Mapping]]] = ...) -> None: ...

class Wanted(_message.Message):
    __slots__ = ("stream", "first_block")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    FIRST_BLOCK_FIELD_NUMBER: _ClassVar[int]
    stream: int
    first_block: int
    def __init__(self, stream: _Optional[int] = ..., first_block: _Optional[int] = ...) -> None: ...

class FetchedBatch(_message.Message):
    __slots__ = ("increments",)
    INCREMENTS_FIELD_NUMBER: _ClassVar[int]
    increments: _containers.RepeatedCompositeFieldContainer[Increment]
    def __init__(self, increments: _Optional[_Iterable[_Union[Increment, _Mapping]]] = ...) -> None: ...
