"""The pytest plugin: a running Kafka cluster by naming the fixture `kafka`.

    def test_orders(kafka, kafka_topic):
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})

Loaded by pytest wherever pykraft is installed, and inert until a test asks for one of its fixtures.
Its options are named after pykraft, so that they don't meet a project's own.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Generator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pykraft.testing.cluster import Cluster
from pykraft.testing.link import HIDDEN
from pykraft.testing.report import describe, log_sizes
from pykraft.testing.shape import Shape, Value

MARKER = "kafka"
_SHAPED = ("brokers", "controllers", "properties", "node_properties")


class Clusters:
    """The clusters of one test session: each worker of pytest-xdist has its own."""

    def __init__(self, config: pytest.Config) -> None:
        self.default = _configured(config)
        self._shared: dict[str, Cluster] = {}
        self._made: list[Cluster] = []
        self._shapes: dict[str, Shape] = {}
        self._logs_then: dict[Path, int] = {}

    def shape(self, **changes: Any) -> Shape:
        """The configured shape with changes; the same object for equal ones, as pytest compares."""
        whole: dict[str, Any] = {
            "brokers": self.default.brokers,
            "controllers": self.default.controllers,
            "properties": {},
            **changes,
        }
        if isinstance(own := whole["properties"], Mapping):
            whole["properties"] = {**self.default.properties, **own}
        shape = Shape(**whole)
        return self._shapes.setdefault(shape.key, shape)

    def asked(self, param: Any) -> Shape:
        """The shape that `kafka` is parametrized with: by the marker, or by a project itself with
        parametrize("kafka", [{"brokers": 3}], indirect=True)."""
        return param if isinstance(param, Shape) else self.shape(**param)

    def shared(self, shape: Shape) -> Cluster:
        """The running cluster of this shape that all tests share."""
        __tracebackhide__ = HIDDEN
        if shape.key not in self._shared:
            self._shared[shape.key] = self.make(shape)
        return self._shared[shape.key]

    def make(self, shape: Shape) -> Cluster:
        """A new running cluster."""
        __tracebackhide__ = HIDDEN
        cluster = Cluster(
            shape.brokers,
            shape.controllers,
            properties=shape.properties,
            node_properties=shape.node_properties,
        )
        self._made.append(cluster)
        return cluster.up()

    def note_logs(self) -> None:
        """A test begins: what the nodes log from now on is its own."""
        self._logs_then = {
            path: size for cluster in self._running() for path, size in log_sizes(cluster).items()
        }

    def describe(self) -> str:
        """All clusters that run, for the report of a failure."""
        return "\n\n".join(describe(cluster, self._logs_then) for cluster in self._running())

    def heal(self, shape: Shape) -> list[str]:
        """Makes a shared cluster whole again; tells of nodes that no test has taken down."""
        cluster = self._shared.get(shape.key)
        found = cluster.heal() if cluster is not None else {}
        return [
            f"node {id_} of {cluster!r} had ended by itself before this test"
            for id_, what in found.items()
            if what == "ended by itself"
        ]

    def end(self) -> None:
        """Ends all that run."""
        with ExitStack() as each:
            for cluster in self._made:
                each.callback(cluster.down)

    def _running(self) -> list[Cluster]:
        return [cluster for cluster in self._made if cluster.nodes]


class KafkaClusterFactory:
    """Starts clusters of any shape; for tests that want one to themselves, or several."""

    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters

    def __call__(
        self,
        brokers: int | None = None,
        controllers: int | None = None,
        *,
        properties: Mapping[str, Value] | None = None,
        node_properties: Mapping[int, Mapping[str, Value]] | None = None,
    ) -> Cluster:
        """A new running cluster, of the configured shape where nothing else is said.

        It lasts until the session ends or `down()` is called; nodes that a test takes down stay
        so.
        """
        given = {
            "brokers": brokers,
            "controllers": controllers,
            "properties": properties,
            "node_properties": node_properties,
        }
        changes = {name: value for name, value in given.items() if value is not None}
        return self._clusters.make(self._clusters.shape(**changes))


_CLUSTERS = pytest.StashKey[Clusters]()

# -- fixtures -------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Cluster:
    """A running Kafka cluster (pykraft.testing.Cluster), shared by all tests of the session.

    One node unless configured otherwise: by `pykraft_brokers`, `pykraft_controllers` and
    `pykraft_properties` in the ini file, by the options of the same names, or for a test, class
    or module by @pytest.mark.kafka(brokers=3, controllers=3, properties={...}). Nodes that a test
    kills, stops or pauses run again when the next one begins.
    """
    clusters = request.config.stash[_CLUSTERS]
    return clusters.shared(clusters.asked(getattr(request, "param", {})))


@pytest.fixture
def kafka_topic(kafka: Cluster, request: pytest.FixtureRequest) -> str:
    """The name of a topic of the test's own: new, of one partition, named after the test."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.name)[:150].strip("-")
    return kafka.create_topic(f"{name}-{uuid.uuid4().hex[:8]}")


@pytest.fixture(scope="session")
def kafka_cluster_factory(request: pytest.FixtureRequest) -> KafkaClusterFactory:
    """Starts clusters: `kafka_cluster_factory(brokers=3, controllers=3)` is a running one of the
    caller's own, ended with the session or, in a `with`, before."""
    return KafkaClusterFactory(request.config.stash[_CLUSTERS])


# -- options --------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """The shape of the cluster behind `kafka`."""
    group = parser.getgroup("pykraft", "Kafka clusters (pykraft)")
    number: Any = "int" if pytest.version_tuple >= (8, 4) else "string"
    for name, what in (
        ("brokers", "brokers of the cluster behind the fixture `kafka` (default: 1)"),
        ("controllers", "its controllers; 0, the default, gives the brokers both roles"),
    ):
        group.addoption(f"--pykraft-{name}", metavar="N", default=None, help=what)
        parser.addini(f"pykraft_{name}", what, type=number, default=None)
    what = "a setting of its nodes, by Kafka's name"
    group.addoption(
        "--pykraft-property", metavar="NAME=VALUE", action="append", default=[], help=what
    )
    parser.addini("pykraft_properties", f"NAME=VALUE lines: {what}", type="linelist", default=[])


def _configured(config: pytest.Config) -> Shape:
    """The shape that the command line and the ini file say; pytest.UsageError where it is none."""
    counts: dict[str, Any] = {}
    for name, default in (("brokers", 1), ("controllers", 0)):
        try:
            text = config.getoption(f"--pykraft-{name}")
            text = config.getini(f"pykraft_{name}") if text is None else text
            # Where nothing is set, the oldest pytest that we know answers with an empty list.
            counts[name] = default if text in (None, "", []) else int(text)
        except (ValueError, TypeError, pytest.UsageError) as error:
            raise pytest.UsageError(f"pykraft_{name}: must be a number: {error}") from None
    properties = {}
    given = [*config.getini("pykraft_properties"), *config.getoption("--pykraft-property")]
    for line in given:
        name, equals, value = line.partition("=")
        if not (equals and name.strip()):
            raise pytest.UsageError(f"pykraft_properties: {line!r} is not NAME=VALUE")
        properties[name.strip()] = value.strip()
    try:
        return Shape(**counts, properties=properties)
    except ValueError as error:
        raise pytest.UsageError(f"pykraft: {error}") from None


# -- hooks ----------------------------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    """Makes the marker known, and the place for this session's clusters."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(brokers, controllers, properties, node_properties): the shape of the cluster "
        "behind the fixture `kafka` (pykraft)",
    )
    config.stash[_CLUSTERS] = Clusters(config)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends the clusters."""
    if (clusters := config.stash.get(_CLUSTERS, None)) is not None:
        clusters.end()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A marked test gets `kafka` in the marker's shape."""
    marker = metafunc.definition.get_closest_marker(MARKER)
    if marker is None or not (marker.args or marker.kwargs) or not _is_ours(metafunc.definition):
        return
    if marker.args or (unknown := set(marker.kwargs) - set(_SHAPED)):
        what = "positional arguments" if marker.args else ", ".join(sorted(unknown))
        pytest.fail(
            f"@pytest.mark.{MARKER} takes {', '.join(_SHAPED)} by name, not {what}", pytrace=False
        )
    try:
        shape = metafunc.config.stash[_CLUSTERS].shape(**marker.kwargs)
    except (ValueError, TypeError) as error:
        pytest.fail(f"@pytest.mark.{MARKER}: {error}", pytrace=False)
    metafunc.parametrize("kafka", [shape], indirect=True, ids=[str(shape)], scope="session")


def _is_ours(item: Any) -> bool:
    """Whether the test uses this plugin's `kafka`, and not one of that name of its project's."""
    known = getattr(item, "_fixtureinfo", None)  # items that are no functions have none
    definitions = [] if known is None else [*known.name2fixturedefs.get("kafka", [])]
    return bool(definitions) and definitions[-1].func.__module__ == __name__


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Nodes that an earlier test took down run again; what they log from here on is this test's."""
    clusters = item.config.stash[_CLUSTERS]
    if _is_ours(item):
        params = item.callspec.params if hasattr(item, "callspec") else {}
        for surprise in clusters.heal(clusters.asked(params.get("kafka", {}))):
            item.warn(pytest.PytestWarning(surprise))
    clusters.note_logs()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """A failing test shows what its nodes logged."""
    outcome = yield
    report = outcome.get_result()
    if report.failed and (told := item.config.stash[_CLUSTERS].describe()):
        report.sections.append(("Kafka nodes", told))
