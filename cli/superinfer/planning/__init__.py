"""Planning placement outside a cluster: what `superinfer plan` reads and shows."""
