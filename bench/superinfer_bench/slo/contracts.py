"""The thirty contracts of the benchmark, as files an ingress reads.

Their targets are loose: what a request is promised depends on its prompt, so each carries its own targets
in headers, which only ever tighten a contract.
"""

from pathlib import Path

import yaml

from superinfer_bench.slo.settings import AVAILABILITY, CONTRACTS_PER_TIER, PERCENTILES

NAMESPACE = "bench"
LOOSE_MS = 3_600_000


def write_contracts(directory: Path) -> Path:
    """Write them into `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    for tier, percentile in PERCENTILES.items():
        for number in range(CONTRACTS_PER_TIER):
            name = f"{tier}-{number}"
            document = {
                "apiVersion": "superinfer.dev/v1alpha1",
                "kind": "SLOContract",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {
                    "serviceID": name,
                    "tier": tier.capitalize(),
                    "objectives": [
                        {"metric": metric, "percentile": percentile, "targetMs": LOOSE_MS}
                        for metric in ("TTFT", "ITL")
                    ],
                    "availability": f"{AVAILABILITY[tier] * 100:g}",
                    "window": "1h",
                },
            }
            path = directory / f"{name}.yaml"
            path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return directory
