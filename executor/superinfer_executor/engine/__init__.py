"""vLLM, embedded: every touch point with its private interfaces that serving needs is in this package."""
