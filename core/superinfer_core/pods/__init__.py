"""Executor pods and what stands beside them, built from a pool and a seat: plain documents, no I/O."""
