"""The commands, one module each; every one states its exit codes and shows examples."""
