##@ Images

# Python 3.11 that the images start from: Docker Hub's where it answers, else one made from Debian packages.
BASE_IMAGE ?=
IMAGE_REGISTRY ?= superinfer
IMAGE_TAG ?= dev

.PHONY: images
images: $(SYNCED) mock-nvml ## Build every image with Docker (BASE_IMAGE=, IMAGE_REGISTRY=superinfer, IMAGE_TAG=dev)
	@base="$(BASE_IMAGE)"; [ -n "$$base" ] || base=$$($(PYTHON) -m e2e.cluster python-base | tail -1); \
	$(PYTHON) -m images --base-image "$$base" --registry $(IMAGE_REGISTRY) --tag $(IMAGE_TAG) --uv $(UV) --python $(BIN)/python
