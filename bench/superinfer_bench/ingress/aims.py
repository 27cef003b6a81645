"""What ingress and sidecar are meant to cost beside other proxies, as ratios within one run. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from superinfer_bench.report import Aim

OURS, RUST, PYTHON = "superinfer", "vllm-router", "litellm"


def aims(runs: Sequence[Mapping[str, Any]], memory_mib: Mapping[str, float]) -> list[Aim]:
    """Every aim; one that was not measured is not met."""

    def of(proxy: str, streams: int, key: str) -> float | None:
        row = next((r for r in runs if r["proxy"] == proxy and r["streams"] == streams), None)
        value: float | None = None if row is None else row[key]
        return value

    def first(proxy: str, *path: str) -> Any:
        value: Any = next((r for r in runs if r["proxy"] == proxy), None)
        for key in path:
            value = None if value is None else value[key]
        return value

    requests = [first(proxy, "requests_per_core_s") for proxy in (OURS, RUST, PYTHON)]
    return [
        Aim.at_least("requests per core-second over vllm-router's", 0.5, _ratio(requests[0], requests[1])),
        Aim.at_least("requests per core-second over litellm's", 20, _ratio(requests[0], requests[2])),
        *(
            Aim.at_least(
                f"tokens per core-second over vllm-router's, {streams} streams",
                1,
                _ratio(of(OURS, streams, "tokens_per_core_s"), of(RUST, streams, "tokens_per_core_s")),
            )
            for streams in (64, 256)
        ),
        Aim.at_least(
            "tokens per core-second over litellm's, 64 streams",
            20,
            _ratio(of(OURS, 64, "tokens_per_core_s"), of(PYTHON, 64, "tokens_per_core_s")),
        ),
        Aim.at_most(
            "p99 added at 500 requests/s over vllm-router's",
            2,
            _ratio(first(OURS, "added_ms", "p99"), first(RUST, "added_ms", "p99")),
        ),
        Aim.at_most("sidecar with 256 streams", 256, memory_mib.get("sidecar, 256 streams"), " MiB"),
        Aim.at_most("ingress with 1,000 streams", 300, memory_mib.get("ingress, 1000 streams"), " MiB"),
    ]


def _ratio(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None
