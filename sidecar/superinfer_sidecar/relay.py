"""Passes an engine's frame on to the ingresses its outputs belong to, untouched wherever that is possible."""

from collections.abc import Sequence

from superinfer_proto.v1 import work_pb2
from superinfer_sidecar.ports import IngressPort

_ENGINE_FRAME_KEY = 0x12  # FromEngine.frame: field 2, length-delimited


def relay(frame: work_pb2.Frame, raw: bytes, owners: Sequence[IngressPort | None]) -> None:
    """Give every output to its owner; `raw` is the FromEngine message `frame` came in."""
    if not owners:
        return
    first = owners[0]
    if first is not None and raw[0] == _ENGINE_FRAME_KEY and owners.count(first) == len(owners):
        first.engine_frame(raw[1:])
        return
    parts: dict[int, tuple[IngressPort, work_pb2.Frame]] = {}
    for owner, output in zip(owners, frame.outputs, strict=True):
        if owner is None:
            continue
        part = parts.get(id(owner))
        if part is None:
            part = parts[id(owner)] = (owner, work_pb2.Frame(step=frame.step))
            part[1].facts.CopyFrom(frame.facts)
        part[1].outputs.append(output)
    for owner, made in parts.values():
        owner.frame(made)
