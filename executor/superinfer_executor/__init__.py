"""superinfer_executor."""
