from superinfer_kube.testing.fixtures import apiserver, namespace

__all__ = ["apiserver", "namespace"]
