"""The process: kopf around it, its probes and metrics, its command line."""
