##@ GPUs

GPU_WIRE := gpumock/superinfer_gpumock/wire executor/superinfer_executor/node_agent/wire

.PHONY: gen-gpu
gen-gpu: $(SYNCED) ## Regenerate the kubelet's interfaces from their .proto files
	@for wire in $(GPU_WIRE); do (cd $${wire%%/*} && $(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. --grpc_python_out=. $${wire#*/}/*.proto); done
