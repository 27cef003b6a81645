"""The API: pydantic models that are the one source of CRDs, the contracts API and the CLI."""
