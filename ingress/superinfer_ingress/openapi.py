"""The OpenAPI document of the ingress, served at /openapi.json. Data only."""

from typing import Any, Final

import msgspec

from superinfer_core.refusal import HTTP_STATUS, RefusalCode

_ERROR: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"], "enum": [*(code.value for code in RefusalCode), None]},
                "metric": {"type": "string", "enum": ["TTFT", "ITL", "E2E"]},
                "predicted_ms": {"type": "number"},
                "required_ms": {"type": "number"},
                "tightest_ms": {"type": "number", "description": "The tightest target that would pass now."},
                "feasible_when_idle": {"type": "boolean"},
                "harm": {"type": "boolean", "description": "An admitted request would have missed its own."},
            },
        }
    },
}


def _milliseconds(name: str, what: str) -> dict[str, Any]:
    schema = {"type": "number", "exclusiveMinimum": 0, "maximum": 3_600_000}
    return {"name": name, "in": "header", "required": False, "description": what, "schema": schema}


_SLO_HEADERS: Final[list[dict[str, Any]]] = [
    {
        "name": "x-slo-contract-id",
        "in": "header",
        "required": False,
        "description": "serviceID, or namespace/serviceID.",
        "schema": {"type": "string", "maxLength": 127},
    },
    _milliseconds("x-slo-max-latency-ms", "Whole answer within this, from arrival. Tightens, never loosens."),
    _milliseconds("x-slo-ttft-ms", "First token within this, from arrival."),
    _milliseconds("x-slo-tpot-ms", "Mean time between tokens."),
]


def _refusals(*codes: int) -> dict[str, Any]:
    """Responses of the statuses, each with the refusal codes it can carry."""
    names: dict[int, list[str]] = {}
    for code, status in HTTP_STATUS.items():
        names.setdefault(status, []).append(code.value)
    return {
        str(status): {
            "description": ", ".join(names.get(status, [])) or "not served",
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
        }
        for status in codes
    }


def _json(schema: dict[str, Any], description: str = "OK") -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


_OBJECT: Final = {"type": "object"}
_COMMON: Final[dict[str, Any]] = {
    "model": {"type": "string"},
    "stream": {"type": ["boolean", "null"]},
    "n": {"type": ["integer", "null"], "minimum": 1, "maximum": 128},
    "max_tokens": {"type": ["integer", "null"], "minimum": 1, "maximum": 2_147_483_647},
    "temperature": {"type": ["number", "null"], "minimum": 0, "maximum": 2},
}
_MESSAGE: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {
        "role": {"type": "string", "enum": ["system", "user", "assistant"]},
        "content": {"type": "string"},
    },
}


def _completion(summary: str, prompt: dict[str, Any], required: str) -> dict[str, Any]:
    body = {"type": "object", "required": ["model", required], "properties": {**_COMMON, **prompt}}
    answer: dict[str, Any] = _json(_OBJECT, "The answer; as server-sent events with `stream: true`.")
    answer["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    statuses = (400, 401, 403, 404, 408, 413, 425, 429, 431, 502, 503, 504)
    return {
        "post": {
            "summary": summary,
            "parameters": _SLO_HEADERS,
            "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
            "responses": {"200": answer, **_refusals(*statuses)},
        }
    }


def _get(summary: str, *statuses: int, parameters: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": summary,
        "responses": {"200": _json(_OBJECT), **_refusals(*statuses)},
    }
    if parameters is not None:
        operation["parameters"] = parameters
    return operation


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


_CONTRACT_PATH: Final = [_path_parameter("namespace"), _path_parameter("service_id")]
_MANAGE: Final = (400, 401, 403, 404, 405, 408, 409, 413, 431, 503)


def _keep(summary: str) -> dict[str, Any]:
    return {
        "summary": f"{summary}; YAML or JSON, long or short form",
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": _OBJECT},
                "application/yaml": {"schema": {"type": "string"}},
            },
        },
        "responses": {
            "200": _json(_OBJECT, "Replaced"),
            "201": _json(_OBJECT, "Created"),
            **_refusals(*_MANAGE),
        },
    }


OPENAPI: Final[dict[str, Any]] = {
    "openapi": "3.1.0",
    "info": {
        "title": "SuperInfer",
        "version": "0.1.0",
        "description": "The OpenAI API behind SLO contracts, and the contracts themselves.",
    },
    "security": [{"key": []}, {}],
    "paths": {
        "/v1/chat/completions": _completion(
            "Create a chat completion under a contract",
            {"messages": {"type": "array", "minItems": 1, "items": _MESSAGE}},
            "messages",
        ),
        "/v1/completions": _completion(
            "Create a completion under a contract", {"prompt": {"type": "string", "minLength": 1}}, "prompt"
        ),
        "/v1/models": {"get": _get("List the models that are served", 401, 431)},
        "/v1/models/{model}": {
            "get": _get("One model", 401, 404, 431, parameters=[_path_parameter("model")])
        },
        "/v1/contracts": {
            "get": _get("List contracts with their attainment", 401, 403, 431),
            "post": _keep("Create or replace a contract"),
        },
        "/v1/contracts/{namespace}/{service_id}": {
            "get": _get("One contract with its attainment", *_MANAGE, parameters=_CONTRACT_PATH),
            "put": {
                **_keep("Create or replace the contract the path names"),
                "parameters": _CONTRACT_PATH,
            },
            "delete": {
                **_get("Delete a contract made through this API", *_MANAGE, parameters=_CONTRACT_PATH),
            },
        },
        "/healthz": {"get": _get("Alive", 431)},
        "/livez": {"get": _get("Alive, as /healthz", 431)},
        "/readyz": {"get": _get("An executor is serving", 431, 503)},
        "/openapi.json": {"get": _get("This document", 431)},
        "/metrics": {
            "get": {
                "summary": "Prometheus metrics",
                "responses": {
                    "200": {"description": "OK", "content": {"text/plain": {"schema": {"type": "string"}}}},
                    **_refusals(431),
                },
            }
        },
    },
    "components": {
        "schemas": {"Error": _ERROR},
        "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
    },
}

OPENAPI_JSON: Final = msgspec.json.encode(OPENAPI)
