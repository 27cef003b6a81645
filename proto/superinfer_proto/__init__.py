"""superinfer_proto."""
