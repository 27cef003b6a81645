"""The `superinfer` command: serve, contract, profile, simulate, bench, keys, demo."""
