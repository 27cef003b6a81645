from superinfer_proto.v1 import slo_pb2 as _slo_pb2
from superinfer_proto.v1 import work_pb2 as _work_pb2
from superinfer_proto.v1 import engine_pb2 as _engine_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ToSidecar(_message.Message):
    __slots__ = ("hello", "submits", "cancels", "peers")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    SUBMITS_FIELD_NUMBER: _ClassVar[int]
    CANCELS_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    submits: _containers.RepeatedCompositeFieldContainer[_work_pb2.Submit]
    cancels: _containers.RepeatedCompositeFieldContainer[_work_pb2.Cancel]
    peers: PeerList
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., submits: _Optional[_Iterable[_Union[_work_pb2.Submit, _Mapping]]] = ..., cancels: _Optional[_Iterable[_Union[_work_pb2.Cancel, _Mapping]]] = ..., peers: _Optional[_Union[PeerList, _Mapping]] = ...) -> None: ...

class PeerList(_message.Message):
    __slots__ = ("peers",)
    PEERS_FIELD_NUMBER: _ClassVar[int]
    peers: _containers.RepeatedCompositeFieldContainer[Peer]
    def __init__(self, peers: _Optional[_Iterable[_Union[Peer, _Mapping]]] = ...) -> None: ...

class Peer(_message.Message):
    __slots__ = ("executor", "address", "fault_domain")
    EXECUTOR_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    FAULT_DOMAIN_FIELD_NUMBER: _ClassVar[int]
    executor: str
    address: str
    fault_domain: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, executor: _Optional[str] = ..., address: _Optional[str] = ..., fault_domain: _Optional[_Iterable[str]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("ingress_id", "version")
    INGRESS_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ingress_id: str
    version: str
    def __init__(self, ingress_id: _Optional[str] = ..., version: _Optional[str] = ...) -> None: ...

class FromSidecar(_message.Message):
    __slots__ = ("info", "decisions", "frame", "load", "begun")
    INFO_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    FRAME_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    BEGUN_FIELD_NUMBER: _ClassVar[int]
    info: ExecutorInfo
    decisions: _containers.RepeatedCompositeFieldContainer[Decision]
    frame: _work_pb2.Frame
    load: LoadReport
    begun: _containers.RepeatedCompositeFieldContainer[Begun]
    def __init__(self, info: _Optional[_Union[ExecutorInfo, _Mapping]] = ..., decisions: _Optional[_Iterable[_Union[Decision, _Mapping]]] = ..., frame: _Optional[_Union[_work_pb2.Frame, _Mapping]] = ..., load: _Optional[_Union[LoadReport, _Mapping]] = ..., begun: _Optional[_Iterable[_Union[Begun, _Mapping]]] = ...) -> None: ...

class Begun(_message.Message):
    __slots__ = ("request_id", "attempt")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class ExecutorInfo(_message.Message):
    __slots__ = ("executor", "engine")
    EXECUTOR_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    executor: str
    engine: _engine_pb2.EngineInfo
    def __init__(self, executor: _Optional[str] = ..., engine: _Optional[_Union[_engine_pb2.EngineInfo, _Mapping]] = ...) -> None: ...

class Decision(_message.Message):
    __slots__ = ("request_id", "attempt", "admitted", "prediction", "refusal", "prompt_tokens", "resumable")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ADMITTED_FIELD_NUMBER: _ClassVar[int]
    PREDICTION_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    RESUMABLE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    admitted: bool
    prediction: Prediction
    refusal: Refusal
    prompt_tokens: int
    resumable: bool
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ..., admitted: _Optional[bool] = ..., prediction: _Optional[_Union[Prediction, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., prompt_tokens: _Optional[int] = ..., resumable: _Optional[bool] = ...) -> None: ...

class Prediction(_message.Message):
    __slots__ = ("ttft_ms", "itl_ms", "e2e_ms", "slack_ms")
    TTFT_MS_FIELD_NUMBER: _ClassVar[int]
    ITL_MS_FIELD_NUMBER: _ClassVar[int]
    E2E_MS_FIELD_NUMBER: _ClassVar[int]
    SLACK_MS_FIELD_NUMBER: _ClassVar[int]
    ttft_ms: float
    itl_ms: float
    e2e_ms: float
    slack_ms: float
    def __init__(self, ttft_ms: _Optional[float] = ..., itl_ms: _Optional[float] = ..., e2e_ms: _Optional[float] = ..., slack_ms: _Optional[float] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("error", "metric", "predicted_ms", "required_ms", "tightest_ms", "feasible_when_idle", "retry_after_ms", "harm")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_MS_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_MS_FIELD_NUMBER: _ClassVar[int]
    TIGHTEST_MS_FIELD_NUMBER: _ClassVar[int]
    FEASIBLE_WHEN_IDLE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    HARM_FIELD_NUMBER: _ClassVar[int]
    error: _slo_pb2.Error
    metric: str
    predicted_ms: float
    required_ms: float
    tightest_ms: float
    feasible_when_idle: bool
    retry_after_ms: float
    harm: bool
    def __init__(self, error: _Optional[_Union[_slo_pb2.Error, _Mapping]] = ..., metric: _Optional[str] = ..., predicted_ms: _Optional[float] = ..., required_ms: _Optional[float] = ..., tightest_ms: _Optional[float] = ..., feasible_when_idle: _Optional[bool] = ..., retry_after_ms: _Optional[float] = ..., harm: _Optional[bool] = ...) -> None: ...

class LoadReport(_message.Message):
    __slots__ = ("generation", "serving", "draining", "queued", "dispatched", "running", "kv_usage", "queued_prefill_tokens", "backlog_ms", "back_pressure", "step_model", "residual_quantile", "sequence", "contracts", "checkpoint_peers")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    SERVING_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    DISPATCHED_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    KV_USAGE_FIELD_NUMBER: _ClassVar[int]
    QUEUED_PREFILL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_MS_FIELD_NUMBER: _ClassVar[int]
    BACK_PRESSURE_FIELD_NUMBER: _ClassVar[int]
    STEP_MODEL_FIELD_NUMBER: _ClassVar[int]
    RESIDUAL_QUANTILE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CONTRACTS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_PEERS_FIELD_NUMBER: _ClassVar[int]
    generation: str
    serving: bool
    draining: bool
    queued: int
    dispatched: int
    running: int
    kv_usage: float
    queued_prefill_tokens: int
    backlog_ms: float
    back_pressure: float
    step_model: _containers.RepeatedScalarFieldContainer[float]
    residual_quantile: float
    sequence: int
    contracts: _containers.RepeatedCompositeFieldContainer[ContractLoad]
    checkpoint_peers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, generation: _Optional[str] = ..., serving: _Optional[bool] = ..., draining: _Optional[bool] = ..., queued: _Optional[int] = ..., dispatched: _Optional[int] = ..., running: _Optional[int] = ..., kv_usage: _Optional[float] = ..., queued_prefill_tokens: _Optional[int] = ..., backlog_ms: _Optional[float] = ..., back_pressure: _Optional[float] = ..., step_model: _Optional[_Iterable[float]] = ..., residual_quantile: _Optional[float] = ..., sequence: _Optional[int] = ..., contracts: _Optional[_Iterable[_Union[ContractLoad, _Mapping]]] = ..., checkpoint_peers: _Optional[_Iterable[str]] = ...) -> None: ...

class ContractLoad(_message.Message):
    __slots__ = ("contract", "output_tokens_p50", "output_tokens_p90")
    CONTRACT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_P50_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_P90_FIELD_NUMBER: _ClassVar[int]
    contract: str
    output_tokens_p50: float
    output_tokens_p90: float
    def __init__(self, contract: _Optional[str] = ..., output_tokens_p50: _Optional[float] = ..., output_tokens_p90: _Optional[float] = ...) -> None: ...
