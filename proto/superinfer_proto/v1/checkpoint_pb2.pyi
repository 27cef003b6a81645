from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Increment(_message.Message):
    __slots__ = ("block_hash", "payload", "checksum", "layout", "request_id", "sequence")
    BLOCK_HASH_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    block_hash: bytes
    payload: bytes
    checksum: int
    layout: str
    request_id: str
    sequence: int
    def __init__(self, block_hash: _Optional[bytes] = ..., payload: _Optional[bytes] = ..., checksum: _Optional[int] = ..., layout: _Optional[str] = ..., request_id: _Optional[str] = ..., sequence: _Optional[int] = ...) -> None: ...

class IncrementAck(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...

class LocateRequest(_message.Message):
    __slots__ = ("layout", "block_hashes")
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    BLOCK_HASHES_FIELD_NUMBER: _ClassVar[int]
    layout: str
    block_hashes: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, layout: _Optional[str] = ..., block_hashes: _Optional[_Iterable[bytes]] = ...) -> None: ...

class LocateResponse(_message.Message):
    __slots__ = ("contiguous_blocks",)
    CONTIGUOUS_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    contiguous_blocks: int
    def __init__(self, contiguous_blocks: _Optional[int] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("layout", "block_hashes")
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    BLOCK_HASHES_FIELD_NUMBER: _ClassVar[int]
    layout: str
    block_hashes: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, layout: _Optional[str] = ..., block_hashes: _Optional[_Iterable[bytes]] = ...) -> None: ...
