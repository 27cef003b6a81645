#!/usr/bin/env bash
# Generates superinfer_proto.v1 from the .proto files. The output is committed; `make verify-gen` checks it.
set -euo pipefail
cd "$(dirname "$0")/../proto"
python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. --grpc_python_out=. superinfer_proto/v1/*.proto
