"""GET /v1/models: what the connected engines say they serve. Stubs say that they are stubs. Pure."""

from collections.abc import Sequence
from typing import Any

from superinfer_ingress.executors.link import ExecutorLink
from superinfer_proto.v1 import engine_pb2


def models_list(links: Sequence[ExecutorLink], created_s: int) -> dict[str, Any]:
    """Every model some connected executor of `links` serves, once."""
    names = sorted({link.engine.model for link in links if link.engine is not None})
    data = [model_object(links, name, created_s) for name in names]
    return {"object": "list", "data": [one for one in data if one is not None]}


def model_object(links: Sequence[ExecutorLink], name: str, created_s: int) -> dict[str, Any] | None:
    """One model in OpenAI's form, with what a client of ours may want to know beside it."""
    links = [link for link in links if link.engine is not None and link.engine.model == name]
    if not links:
        return None
    return {
        "id": name,
        "object": "model",
        "created": created_s,
        "owned_by": "superinfer",
        "max_model_len": max(link.engine.max_model_len for link in links if link.engine is not None),
        "superinfer": {"executors": [_executor(link) for link in links]},
    }


def _executor(link: ExecutorLink) -> dict[str, Any]:
    assert link.engine is not None
    engine = engine_pb2.EngineType.Name(link.engine.type).removeprefix("ENGINE_TYPE_")
    return {
        "name": link.name,
        "pool": link.settings.pool,
        "engine": {"VLLM": "VLLM", "STUB": "Stub"}.get(engine, "Unknown"),
        "version": link.engine.version,
        "scheduler": link.engine.scheduler,
        "serving": link.serving,
    }
