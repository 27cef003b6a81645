"""superinfer."""
