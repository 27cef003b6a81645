##@ Checkpoints

.PHONY: bench-checkpoint
bench-checkpoint: setup ## What checkpoints cost: off, local, replicated -> build/bench/checkpoint.json
	@$(BIN)/python -m superinfer_bench.checkpoint --out build/bench/checkpoint.json $(BENCH_ARGS)
