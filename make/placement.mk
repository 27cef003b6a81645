##@ Placement

.PHONY: bench-placement
bench-placement: setup ## Speed of plans, and how full clusters get beside other policies -> build/bench/placement.json (TRACE=dir of openb CSVs)
	@$(BIN)/python -m superinfer_bench.placement $(if $(TRACE),--trace $(TRACE)) --out build/bench/placement.json $(BENCH_ARGS)
