"""One machine: the executor, sidecar and ingress processes of `superinfer serve`, and their keeper."""
