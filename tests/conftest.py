"""What every test shares: the `ci` tier, the corpus, a cluster that nobody stops."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Helpers that tests of several folders share, imported by their own names.
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "tests" / "interop")]
CI = os.environ.get("CI") == "true"
# Files are given out in this order, the longest first, so that workers end at about the same time.
ORDER = (
    "simulation/test_node_seeds.py",
    "foreign",
    "clients",
    "cluster",
    "interop",
    "spark",
    "simulation",
    "tidy",
    "unit",
)


def pytest_configure() -> None:
    import examples

    examples.load_profile()


def _turn(item: pytest.Item) -> int:
    path = item.path.relative_to(ROOT / "tests")
    turns = (turn for turn, place in enumerate(ORDER) if path.is_relative_to(place))
    return next(turns, len(ORDER))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_turn)


def pytest_itemcollected(item: pytest.Item) -> None:
    if not CI and item.get_closest_marker("ci"):
        item.add_marker(pytest.mark.skip(reason="runs only with CI=true"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, object, None]:
    """A failing test shows the ends of its nodes' logs."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    clusters = sys.modules.get("clusters")
    if report.failed and clusters is not None and (tails := clusters.log_tails()):
        report.sections.append(("ends of the nodes' logs", tails))


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Directory with metadata logs of real Kafka clusters; skips where there is none."""
    path = Path(os.environ.get("PYKRAFT_CORPUS", ROOT.parent / "shared" / "corpus"))
    if not path.is_dir():
        pytest.skip(f"no corpus of real metadata logs at {path} (PYKRAFT_CORPUS)")
    return path


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[object, None, None]:
    """Three controllers and three brokers, for tests that only use them: nobody stops a node."""
    import clusters

    with clusters.running_cluster(tmp_path_factory.mktemp("shared"), 3, 3) as cluster:
        yield cluster
