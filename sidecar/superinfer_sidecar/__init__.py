"""superinfer_sidecar."""
