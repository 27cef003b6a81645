"""SuperInfer's Kubernetes client: watches that last, server-side apply."""
