"""superinfer_operator."""
