##@ Chart

.PHONY: chart-test
chart-test: $(SYNCED) apiserver ## Lint the chart, check what it renders, and let a real API server take it (needs helm)
	@$(BIN)/python -m pytest charts/tests $(ARGS)
