"""API keys: from Secrets in users' namespaces to the digests an ingress reads."""
