"""A real API server for tests; nothing here is used by what runs in a cluster."""
