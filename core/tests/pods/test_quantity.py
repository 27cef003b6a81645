"""Quantities and what pods ask of their node."""

import pytest

from superinfer_core.pods.quantity import amounts, pod_requests, quantity


@pytest.mark.parametrize(
    ("text", "per_unit", "want"),
    [
        pytest.param("2", 1, 2, id="plain"),
        pytest.param(3, 1, 3, id="a number, as YAML gives it"),
        pytest.param("250m", 1000, 250, id="millicores"),
        pytest.param("1.5", 1000, 1500, id="fraction of cores"),
        pytest.param("1Gi", 1, 2**30, id="binary suffix"),
        pytest.param("1G", 1, 10**9, id="decimal suffix"),
        pytest.param("1e3", 1, 1000, id="exponent"),
        pytest.param("0.5Ki", 1, 512, id="fraction of a binary suffix"),
        pytest.param("1500u", 1000, 2, id="fractions round up: half a millicore has to be there"),
        pytest.param("128974848000m", 1, 128974848, id="memory in thousandths, as some tools write it"),
    ],
)
def test_quantities_are_whole_numbers(text, per_unit, want):
    assert quantity(text, per_unit=per_unit) == want


@pytest.mark.parametrize("text", ["", "a lot", "1Qi", "1..2", "--1", "1Gi "])
def test_what_is_no_quantity_is_refused(text):
    with pytest.raises(ValueError, match="not a quantity"):
        quantity(text)


def test_an_unreadable_resource_counts_as_nothing():
    assert amounts({"cpu": "100m", "memory": "?"}) == {"cpu": 100}


def _container(cpu=None, limits=None, **more):
    resources = {"requests": {"cpu": cpu}} if cpu else {}
    return {"name": "c", "resources": resources | ({"limits": limits} if limits else {}), **more}


@pytest.mark.parametrize(
    ("spec", "want_cpu"),
    [
        pytest.param({"containers": [_container("100m"), _container("200m")]}, 300, id="containers add up"),
        pytest.param(
            {"containers": [_container("100m")], "initContainers": [_container("500m"), _container("400m")]},
            500,
            id="init containers run one at a time, before",
        ),
        pytest.param(
            {
                "containers": [_container("100m")],
                "initContainers": [_container("200m", restartPolicy="Always"), _container("400m")],
            },
            600,
            id="a sidecar among the init containers runs beside the later ones",
        ),
        pytest.param(
            {"containers": [_container(limits={"cpu": "2"})]}, 2000, id="a limit alone is a request"
        ),
        pytest.param(
            {"containers": [_container("100m")], "overhead": {"cpu": "50m"}},
            150,
            id="overhead of the sandbox",
        ),
        pytest.param(
            {"containers": [_container("100m")], "resources": {"requests": {"cpu": "1"}}},
            1000,
            id="a total of the pod's own counts",
        ),
    ],
)
def test_a_pod_asks_what_the_scheduler_counts(spec, want_cpu):
    assert pod_requests(spec)["cpu"] == want_cpu
