# Two commands matter: `make demo` and `make test`. `make help` lists the rest.
# Everything is set up on first use (uv, Python packages, the model) and stamped, so later runs start at once.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# Without bytecode every process imports vLLM for half a minute; some machines set this globally.
unexport PYTHONDONTWRITEBYTECODE
# A virtual environment that happens to be active must not become the project's.
unexport VIRTUAL_ENV
unexport PYTHONPATH

UV_VERSION := 0.13.9
PYTHON ?= python3
ROOT := $(CURDIR)
TOOLS := $(ROOT)/.tools
UV := $(TOOLS)/uv-$(UV_VERSION)/bin/uv
VENV := $(ROOT)/.venv
BIN := $(VENV)/bin
SYNCED := $(VENV)/.synced
EXTRA ?= cpu
MEMBERS := core proto kube ingress sidecar executor operator gpumock cli bench
MANIFESTS := uv.lock pyproject.toml $(wildcard $(addsuffix /pyproject.toml,$(MEMBERS)))
PREPARED := $(VENV)/.prepared
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/superinfer
MODELS := $(CACHE)/models
TRACE ?=
BENCH_ARGS ?=

export UV_PROJECT_ENVIRONMENT := $(VENV)
# Where the machine has certificates of its own (a company's proxy), uv must know them as pip does.
ifneq ($(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt),)
export UV_SYSTEM_CERTS ?= true
endif

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {printf "\n%s\n", substr($$0, 5)} /^[a-zA-Z_-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Set-up

$(UV):
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "SuperInfer needs Python 3.11 or newer; set PYTHON=/path/to/python3")'
	@echo "setup: installing uv $(UV_VERSION) into .tools/"
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-compile --target $(TOOLS)/uv-$(UV_VERSION) uv==$(UV_VERSION)

$(SYNCED): $(UV) $(MANIFESTS)
	@echo "setup: Python packages into .venv/ (about 6 GB with vLLM the first time; a minute or more on a slow network)"
	@python="$$($(PYTHON) -c 'import sys; print(sys.executable if sys.version_info < (3, 13) else "")')"; \
	$(UV) sync $${python:+--python "$$python"} --locked --all-packages --extra $(EXTRA) --extra nvml --compile-bytecode
	@touch $@

$(PREPARED): $(SYNCED) $(wildcard executor/superinfer_executor/models/*.py)
	@echo "setup: models into $(MODELS) (once per machine)"
	@$(BIN)/python -m superinfer_executor models smollm2 --out $(MODELS)/smollm2 >/dev/null
	@$(BIN)/python -m superinfer_executor models tiny --out $(MODELS)/tiny >/dev/null
	@touch $@

.PHONY: setup
setup: $(PREPARED) ## Install everything and prepare the models (done by the others on first use)

##@ Use

.PHONY: demo
demo: setup ## Show the whole story with a real model on this machine; writes build/demo/result.json
	@$(BIN)/superinfer demo --out build/demo/result.json

.PHONY: serve
serve: setup ## Serve SmolLM2 behind contracts until Ctrl-C (ARGS="--port 8000 --contracts DIR")
	@exec $(BIN)/superinfer serve $(ARGS)

##@ Check

.PHONY: test
test: setup ## Run every test, real engine and API server included (ARGS="-k name")
	@$(MAKE) --no-print-directory apiserver || echo "test: without kube-apiserver and etcd (see above) the tests marked 'apiserver' are skipped" >&2
	@$(BIN)/python -m pytest $(ARGS)

.PHONY: lint
lint: $(SYNCED) type ## Style, types, import direction
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports

.PHONY: type
type: $(SYNCED) ## Type-check every member (mypy strict)
	@$(BIN)/mypy $(foreach member,core/superinfer_core kube/superinfer_kube ingress/superinfer_ingress sidecar/superinfer_sidecar executor/superinfer_executor operator/superinfer_operator gpumock/superinfer_gpumock cli/superinfer bench/superinfer_bench images e2e/cluster e2e/harness,$(member))

.PHONY: fmt
fmt: $(SYNCED) ## Format and fix what can be fixed
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

.PHONY: gen
gen: $(SYNCED) gen-crds gen-gpu ## Regenerate what is generated: protobuf, CRDs and what is made from them
	@PATH="$(BIN):$$PATH" scripts/gen_proto.sh

.PHONY: verify-gen
verify-gen: $(SYNCED) verify-crds verify-gen-gpu ## Fail when generated files differ from what is committed
	@scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT; \
	cp -r proto scripts "$$scratch/"; \
	PATH="$(BIN):$$PATH" "$$scratch/scripts/gen_proto.sh"; \
	diff -r -x __pycache__ -x '*.egg-info' proto "$$scratch/proto" \
	  || { echo "generated files are stale: run 'make gen' and commit the result" >&2; exit 1; }; \
	echo "generated files are up to date"

include $(wildcard make/*.mk)

##@ Measure

.PHONY: bench bench-slo bench-ingress bench-predictor
bench: bench-slo bench-ingress bench-predictor ## Policies, ingress and predictor (hours; see each)

bench-slo: setup ## Policies against each other on a real engine -> build/bench/slo.json (TRACE=csv|jsonl)
	@$(BIN)/python -m superinfer_bench.slo $(if $(TRACE),--trace $(TRACE)) --out build/bench/slo.json $(BENCH_ARGS)

bench-ingress: setup ## Ingress and sidecar beside other proxies -> build/bench/ingress.json
	@$(BIN)/python -m superinfer_bench.ingress --out build/bench/ingress.json $(BENCH_ARGS)

bench-predictor: setup ## Prediction error and calibration -> build/bench/predictor.json (TRACE=csv|jsonl)
	@$(BIN)/python -m superinfer_bench.predictor $(if $(TRACE),--trace $(TRACE)) --out build/bench/predictor.json $(BENCH_ARGS)

.PHONY: clean
clean: ## Remove what was built here (the model cache stays; see 'make purge')
	@rm -rf build .venv .tools .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

.PHONY: purge
purge: clean ## Also remove cached models and profiles
	@rm -rf $(CACHE)
