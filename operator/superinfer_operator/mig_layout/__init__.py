"""The opt-in that lets the operator follow its own advice on MIG layouts."""
