"""What happens after an executor failed: where a request goes on, and whether an engine hangs. Pure."""
