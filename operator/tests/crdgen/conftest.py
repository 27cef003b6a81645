"""A real API server with the kinds of superinfer.dev."""

from superinfer_kube.testing.fixtures import apiserver, namespace, superinfer_api  # noqa: F401
