##@ Kubernetes API

.PHONY: gen-crds verify-crds
gen-crds: $(SYNCED) ## Regenerate crds/ and what is made from them (part of `make gen`)
	@PATH="$(BIN):$$PATH" scripts/gen_crds.sh

verify-crds: $(SYNCED) ## Fail when crds/ or what is made from them is stale (part of `make verify-gen`)
	@PATH="$(BIN):$$PATH" scripts/gen_crds.sh --check
