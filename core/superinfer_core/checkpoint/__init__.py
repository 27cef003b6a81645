"""Checkpoints of running requests: what a layout is, what is saved and evicted, where copies go. Pure."""
