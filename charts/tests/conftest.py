"""The chart as helm renders it, and a real API server to take it."""

import pytest
from charts.tests.rendering import Chart

from superinfer_kube.testing.binaries import HELM, missing
from superinfer_kube.testing.fixtures import apiserver, namespace, superinfer_api  # noqa: F401


@pytest.fixture(scope="session")
def chart() -> Chart:
    """Renders with other values, and remembers what it rendered."""
    if missing(HELM):
        pytest.skip("helm not built: make cluster-up")
    return Chart()
