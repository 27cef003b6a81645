"""Contract documents from files and stdin, for the `contract` commands."""
