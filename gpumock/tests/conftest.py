import subprocess
from pathlib import Path

import pytest

from superinfer_kube.testing.fixtures import apiserver, namespace  # noqa: F401


@pytest.fixture(scope="session")
def library_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a freshly built MOCK libnvidia-ml.so.1 lies."""
    out = tmp_path_factory.mktemp("nvml")
    subprocess.run(
        ["make", "--no-print-directory", "-C", Path(__file__).parent.parent / "nvml", f"OUT={out}"],
        check=True,
    )
    return out
