"""superinfer.dev/v1alpha1."""
