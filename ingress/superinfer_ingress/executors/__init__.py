"""Executors as the ingress sees them: one stream per sidecar, load reports, ranking."""
