"""The loop: gather, decide, apply."""
