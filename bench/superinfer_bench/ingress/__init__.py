"""bench-ingress: our ingress and sidecar beside litellm's proxy and vllm-router, in CPU spent."""
