"""superinfer_bench."""
