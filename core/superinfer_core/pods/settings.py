"""What an installation decides about executor pods: images and defaults. Frozen."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PodSettings:
    """Images and defaults of executor pods.

    Attributes:
        engine_image: of pools with engine VLLM that name none; "" makes such a pool not accepted.
        stub_image: of pools with engine Stub that name none.
        code_image: carries SuperInfer's code into a stock vLLM image; "" where engine images have it.
        sidecar_image: of every sidecar.
        pull_policy: imagePullPolicy of all of them.
        pull_secrets: names of image pull secrets, expected in the pool's namespace.
        priority_class: priorityClassName of executor pods; "" for none.
        tls: sidecars demand mutual TLS; without it they are told to serve insecurely.
        tls_namespaces: where pools can have certificates; None everywhere.
        uid: user and group the containers run as.
    """

    engine_image: str = ""
    stub_image: str = "superinfer/executor-stub:dev"
    code_image: str = "superinfer/executor-wheel:dev"
    sidecar_image: str = "superinfer/sidecar:dev"
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()
    priority_class: str = ""
    tls: bool = True
    tls_namespaces: frozenset[str] | None = None
    uid: int = 1000
