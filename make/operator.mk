##@ Operator

.PHONY: bench-operator
bench-operator: $(SYNCED) apiserver ## 1,000 nodes, 5,000 contracts, 500 pools at a real API server -> build/bench/operator.json
	@$(BIN)/python -m superinfer_bench.operator --out build/bench/operator.json $(BENCH_ARGS)
