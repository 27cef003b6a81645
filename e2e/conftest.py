"""Fixtures of the end-to-end suite: one cluster and one release for all cases, and the report."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.cluster import layout
from e2e.cluster.nodes import cluster_is_whole
from e2e.cluster.turn import turn
from e2e.harness import release, samples
from e2e.harness.objects import apply, condition, delete, get, kubectl, until
from e2e.harness.report import Report
from e2e.harness.traffic import Door

_REPORT = pytest.StashKey[Report]()
# While writing cases: go on with the release that an earlier run left.
_REUSED = os.environ.get("SUPERINFER_E2E_REUSE") == "1"
SHOP = "shop"
LAB = "lab"


def pytest_configure(config: pytest.Config) -> None:
    parts = {part for argument in config.args for part in Path(argument).parts}
    config.stash[_REPORT] = Report("core" if parts == {"e2e", "core"} else "full")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def when(item: pytest.Item) -> int:
        first, last = (item.get_closest_marker(f"at_the_{place}") is not None for place in ("start", "end"))
        return int(last) - int(first)

    items.sort(key=when)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome = yield
    result = outcome.get_result()  # type: ignore[attr-defined]
    what = (item.obj.__doc__ or "").strip().partition("\n")[0]  # type: ignore[attr-defined]
    name = item.nodeid.partition("e2e/")[2]
    item.config.stash[_REPORT].record(name, passed=not result.failed, seconds=result.duration, what=what)
    if result.failed:
        result.sections.append(("cluster", _state_of_the_cluster()))
        # At once, for whoever waits: pytest shows failures only at the end of a long run.
        failed = layout.BUILD / "failures" / f"{item.name}.{result.when}.txt"
        failed.parent.mkdir(parents=True, exist_ok=True)
        failed.write_text("\n\n".join((result.longreprtext, *(text for _, text in result.sections))))


def pytest_sessionfinish(session: pytest.Session) -> None:
    report = session.config.stash[_REPORT]
    if report.cases:
        report.write()


@pytest.fixture(scope="session")
def report(request: pytest.FixtureRequest) -> Report:
    """Where figures go."""
    return request.config.stash[_REPORT]


@pytest.fixture(scope="session")
def hardware() -> Iterator[None]:
    """The cluster with our images and MOCK devices, for this run alone."""
    with turn():
        if not cluster_is_whole():
            pytest.exit(
                "no test cluster is up; run `make cluster-up` (or `make e2e`, which does)", returncode=3
            )
        release.load_images()
        if not _REUSED:
            release.clear()
            release.install_mock_hardware()
        yield


@pytest.fixture(scope="session")
def installed(hardware: None) -> None:
    """A fresh install of the chart, with the namespaces and keys the cases use."""
    if not (_REUSED and release.is_installed()):
        release.fresh_release()
    apply(samples.namespace(SHOP), samples.real_engine_namespace(LAB))
    apply(samples.api_keys("e2e-keys", SHOP), samples.api_keys("e2e-keys", LAB))


@pytest.fixture(scope="session")
def door(installed: None) -> Door:
    """Where clients ask."""
    return release.door()


@pytest.fixture(scope="session")
def stubs(installed: None) -> str:
    """A pool of three engine stubs over three nodes, serving, for what is not about the engine."""
    apply(samples.stub_pool("stubs", SHOP, replicas=3))
    until_ready("stubs", SHOP, executors=3)
    return "stubs"


@pytest.fixture
def gold(stubs: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """A contract of the stub pool that is easy to keep, of one case alone."""
    name = "gold-" + request.node.name.removeprefix("test_").replace("_", "-")[:40].strip("-")
    apply(samples.contract(name, SHOP, **samples.within(5000, poolRef={"name": stubs}, tier="Gold")))
    until_contract(name, SHOP, "Ready")
    yield name
    delete("slo", name, SHOP)


def until_ready(pool: str, namespace: str, *, executors: int, within_s: float = 180) -> None:
    """Wait until a pool says that so many executors serve, and all it wants."""
    until(
        lambda: get("chippool", pool, namespace),
        lambda seen: (
            condition(seen, "Ready").get("status") == "True"
            and seen["status"].get("readyReplicas") == executors
            and seen["status"].get("observedGeneration") == seen["metadata"]["generation"]
        ),
        within_s=within_s,
        what=f"pool {pool} is Ready with {executors} executors",
    )


def until_contract(
    name: str, namespace: str, kind: str, status: str = "True", *, within_s: float = 30
) -> None:
    """Wait until a contract's condition has a status, for the spec as it is now."""
    until(
        lambda: get("slo", name, namespace),
        lambda seen: (
            condition(seen, kind).get("status") == status
            and condition(seen, kind).get("observedGeneration") == seen["metadata"]["generation"]
        ),
        within_s=within_s,
        what=f"contract {name} has {kind}={status}",
    )


def _state_of_the_cluster() -> str:
    parts = []
    for words in (
        ("get", "nodes,slo,chippool,pods", "--all-namespaces", "--output=wide"),
        ("get", "events", "--all-namespaces", "--sort-by=.lastTimestamp"),
    ):
        try:
            parts.append("\n".join(kubectl(*words).splitlines()[-80:]))
        except Exception as error:  # noqa: BLE001 - the failure of the case itself is what matters
            parts.append(repr(error))
    parts += [release.logs("operator"), release.logs("ingress")]
    try:
        parts.append(json.dumps(get("chippool", "stubs", SHOP).get("status"), indent=1))
    except Exception as error:  # noqa: BLE001 - as above
        parts.append(repr(error))
    return "\n\n".join(parts)
