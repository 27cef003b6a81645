"""One line per finished request: who was served how, never what was said. Pure."""

import json
from datetime import UTC, datetime

from superinfer_ingress.record import Record


def access_line(record: Record, *, as_json: bool, unix_s: float) -> str:
    """The line of one request, for people or for machines."""
    at = datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
    if as_json:
        return json.dumps({"time": at, "path": record.path, **record.as_json()}, separators=(",", ":"))
    end = "left" if record.cancelled else str(record.status)
    if record.code is not None:
        end += f" {record.code.value}"
    return (
        f"{at} {record.path} {end} id={record.request_id} contract={record.contract_key or '-'}"
        f" outcome={record.served.value} executor={record.executor or '-'} ttft_ms={_ms(record.ttft_ms)}"
        f" e2e_ms={_ms(record.e2e_ms)} tokens={record.prompt_tokens}+{record.output_tokens}"
    )


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
