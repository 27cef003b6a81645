"""MOCK GPUs for tests: device plugin, libnvidia-ml, DRA driver, from one JSON description of a node."""
