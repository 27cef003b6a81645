"""What the operator knows of the cluster: frozen facts, kept up to date by watches."""
