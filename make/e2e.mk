##@ Cluster

.PHONY: cluster-up cluster-down cluster-status apiserver

cluster-up: setup ## Bring up a kind cluster of 1+3 nodes (built from Go modules where no registry answers)
	@$(PYTHON) -m e2e.cluster up

cluster-down: ## Delete the cluster (images and binaries stay cached)
	@$(PYTHON) -m e2e.cluster down

cluster-status: ## Show the cluster's nodes and pods
	@$(PYTHON) -m e2e.cluster status

apiserver: ## Build kube-apiserver, etcd and kubectl into the cache, for tests against a bare API server
	@$(PYTHON) -m e2e.cluster apiserver
