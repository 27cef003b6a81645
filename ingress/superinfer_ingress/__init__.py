"""superinfer_ingress."""
