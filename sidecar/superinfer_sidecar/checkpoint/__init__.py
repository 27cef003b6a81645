"""Checkpoints beside the engine: follows its increments, keeps copies of peers', restores requests."""
