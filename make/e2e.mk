##@ Cluster

.PHONY: cluster-up cluster-down cluster-status apiserver e2e e2e-full

cluster-up: setup ## Bring up a kind cluster of 1+3 nodes (built from Go modules where no registry answers)
	@$(PYTHON) -m e2e.cluster up

cluster-down: ## Delete the cluster (images and binaries stay cached)
	@$(PYTHON) -m e2e.cluster down

cluster-status: ## Show the cluster's nodes and pods
	@$(PYTHON) -m e2e.cluster status

apiserver: ## Build kube-apiserver, etcd and kubectl into the cache, for tests against a bare API server
	@$(PYTHON) -m e2e.cluster apiserver

# -p no:cacheprovider: nothing but the report is written; cases wait for the cluster, each with its own limit.
E2E_PYTEST = $(BIN)/python -m pytest -p no:cacheprovider -c e2e/pytest.ini --rootdir=$(ROOT) $(ARGS)

e2e: cluster-up images ## End to end on the cluster, the core: install, serve, scale, lose pods -> build/e2e/report.json
	@$(E2E_PYTEST) e2e/core

e2e-full: cluster-up images ## End to end, every case -> build/e2e/report.json
	@$(E2E_PYTEST) e2e/core e2e/full
