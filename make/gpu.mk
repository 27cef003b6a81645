##@ GPUs

GPU_WIRE := gpumock/superinfer_gpumock/wire executor/superinfer_executor/node_agent/wire

.PHONY: gen-gpu
gen-gpu: $(SYNCED) ## Regenerate the kubelet's interfaces from their .proto files
	@for wire in $(GPU_WIRE); do (cd $${wire%%/*} && $(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. --grpc_python_out=. $${wire#*/}/*.proto); done

.PHONY: mock-nvml
mock-nvml: ## Build the MOCK libnvidia-ml.so.1 into build/gpumock (needs gcc)
	@$(MAKE) --no-print-directory -C gpumock/nvml OUT=$(ROOT)/build/gpumock

.PHONY: gpu-check
gpu-check: $(SYNCED) ## On a machine with a GPU: what its driver says about MIG, read only -> build/gpu-check.json
	@mkdir -p build
	@$(BIN)/python -m superinfer_executor.node_agent check --out build/gpu-check.json

.PHONY: verify-gen-gpu
verify-gen-gpu: $(SYNCED) ## Fail when the kubelet's interfaces differ from what is committed
	@scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT; \
	for wire in $(GPU_WIRE); do \
	  mkdir -p "$$scratch/$${wire%%/*}"; \
	  (cd $${wire%%/*} && $(BIN)/python -m grpc_tools.protoc -I. --python_out="$$scratch/$${wire%%/*}" --pyi_out="$$scratch/$${wire%%/*}" --grpc_python_out="$$scratch/$${wire%%/*}" $${wire#*/}/*.proto); \
	  diff -r -x __pycache__ -x '*.proto' -x __init__.py $$wire "$$scratch/$$wire" || { echo "stale: run 'make gen-gpu'" >&2; exit 1; }; \
	done
