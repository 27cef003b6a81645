##@ Failover

.PHONY: chaos
chaos: setup ## Kill -9 of engines, sidecars, executors and peers 200 times under load -> build/chaos/report.json
	@$(BIN)/python -m superinfer_bench.chaos --out build/chaos/report.json $(BENCH_ARGS)

.PHONY: bench-failover
bench-failover: setup ## From a kill to the next token: checkpoint, replay, restart -> build/bench/failover.json
	@$(BIN)/python -m superinfer_bench.failover --out build/bench/failover.json $(BENCH_ARGS)
