#!/usr/bin/env bash
# Generates crds/ from the pydantic models of core, and what is made from them: docs/api.md, the chart's CRDs,
# its README and manifests/install.yaml. The output is committed; `--check` writes nothing and fails when stale.
set -euo pipefail
cd "$(dirname "$0")/.."
python -m superinfer_operator.crdgen --out crds --chart charts/superinfer/templates/crds --reference docs/api.md "$@"
python scripts/gen_chart_readme.py "$@"
python scripts/gen_install.py "$@"
