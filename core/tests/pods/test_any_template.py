"""Whatever stands in a podTemplate is refused with its field, or makes a pod that is pinned and can drain."""

from hypothesis import given, settings
from hypothesis import strategies as st

from superinfer_core.api.v1alpha1.chipletpool import ChipletPool
from superinfer_core.pods.executor_pod import PoolFiles, Seat, build_executor_pod
from superinfer_core.pods.quantity import pod_requests
from superinfer_core.pods.settings import PodSettings
from superinfer_core.pods.template import template_problems

SEAT = Seat(slot=0, incarnation=1, node="n7", resource="nvidia.com/gpu", count=2)
NAMES = st.sampled_from(
    [
        "name",
        "containers",
        "initContainers",
        "volumes",
        "env",
        "ports",
        "resources",
        "requests",
        "limits",
        "claims",
        "resourceClaims",
        "volumeMounts",
        "mountPath",
        "tolerations",
        "affinity",
        "nodeAffinity",
        "podAntiAffinity",
        "securityContext",
        "nodeSelector",
        "args",
        "image",
        "nvidia.com/gpu",
        "cpu",
    ]
)
TEXTS = st.sampled_from(
    ["executor", "sidecar", "superinfer", "logs", "/models", "/run/superinfer", "1", "x", ""]
)
LEAVES = st.none() | st.booleans() | st.integers(-5, 5) | TEXTS
ANYTHING = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
CONTAINER = st.fixed_dictionaries({"name": TEXTS}, optional={"resources": ANYTHING, "env": ANYTHING})
SPECS = st.dictionaries(NAMES, ANYTHING, max_size=4) | st.fixed_dictionaries(
    {"containers": st.lists(CONTAINER | ANYTHING, max_size=3)}, optional={"tolerations": ANYTHING}
)


@settings(max_examples=300)
@given(SPECS)
def test_a_template_is_refused_or_makes_a_good_pod(spec):
    if template_problems({"spec": spec}):
        return
    pool = ChipletPool.model_validate(
        {
            "metadata": {"name": "p", "namespace": "shop", "uid": "u"},
            "spec": {
                "model": {"name": "m", "source": {"path": "/m"}},
                "chiplet": {"shape": "GPU", "count": 2},
                "podTemplate": {"spec": spec},
            },
        }
    )
    pod = build_executor_pod(pool, SEAT, PoolFiles(), PodSettings(engine_image="x"), revision="r")
    containers = {container["name"]: container for container in pod["spec"]["containers"]}
    assert containers["executor"]["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert "preStop" in containers["executor"]["lifecycle"]
    assert "sidecar" in containers
    term = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["nodeSelectorTerms"][0]["matchFields"][0]["values"] == ["n7"]
    assert pod_requests(pod["spec"])["nvidia.com/gpu"] >= 2
