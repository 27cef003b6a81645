"""Which cached binaries of the test cluster are used again, and what helm is told when it is built."""

from pathlib import Path

import pytest
from e2e.cluster import binaries, layout
from e2e.cluster.shell import ClusterError


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(layout, "BINARIES", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "there", "stamp", "current"),
    [
        pytest.param("helm", False, None, False, id="not there"),
        pytest.param("kind", True, None, True, id="from before there were stamps"),
        pytest.param("helm", True, None, False, id="helm from before there were stamps"),
        pytest.param("helm", True, "now", True, id="as it would be made now"),
        pytest.param("kube-apiserver", True, "now", True, id="Kubernetes as it would be made now"),
        pytest.param("pause", True, "now", True, id="our own as it would be made now"),
        pytest.param("kind", True, "sigs.k8s.io/kind v0.1.0", False, id="another version"),
        pytest.param("kind", True, "unfinished", False, id="interrupted while it was replaced"),
    ],
)
def test_a_cached_binary_is_used_while_it_would_be_made_the_same(
    cache: Path, name: str, there: bool, stamp: str | None, current: bool
) -> None:
    if there:
        (cache / name).touch()
    if stamp is not None:
        (cache / f".{name}.made-of").write_text(binaries.made_of(name) if stamp == "now" else stamp)
    assert binaries.is_current(name) is current


def test_another_version_of_kubernetes_is_built_anew(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "kubelet").touch()
    (cache / ".kubelet.made-of").write_text(binaries.made_of("kubelet"))
    monkeypatch.setattr(layout, "KUBERNETES", "v1.36.0")
    assert not binaries.is_current("kubelet")


def test_helm_is_told_the_kubernetes_of_its_client_library() -> None:
    flags = binaries.helm_linker_flags("require (\n\tk8s.io/api v0.36.1\n\tk8s.io/client-go v0.37.2\n)\n")
    for package in ("helm.sh/helm/v3/pkg/chartutil", "helm.sh/helm/v3/pkg/lint/rules"):
        assert f"-X {package}.k8sVersionMajor=1" in flags
        assert f"-X {package}.k8sVersionMinor=37" in flags


def test_a_client_library_without_a_release_is_named() -> None:
    with pytest.raises(ClusterError, match="client-go"):
        binaries.helm_linker_flags("require k8s.io/client-go v0.0.0-20261130000000-abcdef\n")
