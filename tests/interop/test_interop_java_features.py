"""Kafka's features tool on pykraft gives the answers that it gives on JVM Kafka 4.4.0."""

import re

import kafka_jvm
import pytest
from waiting import wait_until

pytestmark = pytest.mark.interop

FEATURES = "org.apache.kafka.tools.FeatureCommand"
DEPRECATED = "`metadata` flag is deprecated and may be removed in a future release."


@pytest.fixture(scope="module")
def tool(shared_cluster):
    """Runs the tool with arguments, asking brokers or controllers."""
    controllers = ",".join(
        node["kafka"] for node in shared_cluster.local.status()["nodes"] if node["id"] > 100
    )
    with kafka_jvm.Tools(kafka_jvm.NEWEST_VERSION) as tools:

        def run(command, *, ask_controllers=False):
            where = ("--bootstrap-server", shared_cluster.bootstrap)
            if ask_controllers:
                where = ("--bootstrap-controller", controllers)
            code, said = tools.run(FEATURES, *where, *command.split())
            return code, [line for line in said.splitlines() if line != DEPRECATED]

        yield run


def described(tool, **where):
    """Feature -> (supported minimum, supported maximum, finalised level, epoch)."""
    code, lines = tool("describe", **where)
    assert code == 0
    pattern = re.compile(
        r"Feature: (\S+)\s+SupportedMinVersion: (\S+)\s+SupportedMaxVersion: (\S+)\s+"
        r"FinalizedVersionLevel: (\S+)\s+Epoch: (\d+)"
    )
    found = [pattern.fullmatch(line.strip()) for line in lines]
    assert all(found), lines
    return {row[1]: row.groups()[1:] for row in found}


def wait_for(tool, level):
    for asked in (False, True):
        wait_until(
            lambda a=asked: described(tool, ask_controllers=a)["metadata.version"][2] == level,
            f"metadata.version {level} shows",
            20,
        )


def test_describe(tool):
    for asked in (False, True):
        found = described(tool, ask_controllers=asked)
        assert found["metadata.version"][:3] == ("3.3-IV3", "4.2-IV1", "4.0-IV3")
        assert int(found["metadata.version"][3]) > 0
        assert found["kraft.version"][:3] == ("0", "1", "0")


@pytest.mark.parametrize("ask_controllers", [False, True])
def test_upgrade_and_downgrade(tool, ask_controllers):
    tried = tool("upgrade --metadata 4.1 --dry-run", ask_controllers=ask_controllers)
    assert tried == (0, ["metadata.version can be upgraded to 27."])
    wait_for(tool, "4.0-IV3")
    up = tool("upgrade --feature metadata.version=27", ask_controllers=ask_controllers)
    try:
        assert up == (0, ["metadata.version was upgraded to 27."])
        wait_for(tool, "4.1-IV1")
    finally:
        down = tool("downgrade --metadata 4.0", ask_controllers=ask_controllers)
    assert down == (0, ["metadata.version was downgraded to 25."])
    wait_for(tool, "4.0-IV3")


@pytest.mark.parametrize(
    ("command", "said", "reason"),
    [
        ("downgrade --metadata 3.9", "Could not downgrade metadata.version to 21.", "might lose"),
        (
            "downgrade --metadata 3.9 --unsafe",
            "Could not downgrade metadata.version to 21.",
            "unsafe downgrades are not supported",
        ),
        (
            "upgrade --feature metadata.version=99",
            "Could not upgrade metadata.version to 99.",
            "supports levels 7",
        ),
        (
            "upgrade --feature metadata.version=24",
            "Could not upgrade metadata.version to 24.",
            "not an upgrade",
        ),
        (
            "upgrade --feature nobody.version=1",
            "Could not upgrade nobody.version to 1.",
            "the features there are",
        ),
        (
            "disable --feature metadata.version",
            "Could not disable metadata.version.",
            "supports levels 7",
        ),
    ],
)
def test_refusals(tool, command, said, reason):
    code, lines = tool(command)
    assert code == 1
    assert lines[0].startswith(f"{said} ")
    assert reason in lines[0]
    assert lines[1:] == ["1 out of 1 operation(s) failed."]


@pytest.mark.parametrize(
    "version",
    [kafka_jvm.NEWEST_VERSION, pytest.param(kafka_jvm.DEFAULT_VERSION, marks=pytest.mark.ci)],
)
def test_a_whole_release_is_refused_with_what_is_missing_and_what_there_is(shared_cluster, version):
    """The tool asks for all features of the release, of which one or more aren't here yet."""
    with kafka_jvm.Tools(version) as tools:
        command = ("--bootstrap-server", shared_cluster.bootstrap, "upgrade")
        code, said = tools.run(FEATURES, *command, "--release-version", "4.1")
    assert code == 1
    reason = (
        "transaction.version can't be set to 2: this version has no transaction.version; "
        "the features there are: eligible.leader.replicas.version 0 to 1, group.version 0 to 1, "
        "kraft.version 0 to 1, metadata.version 7 (3.3-IV3) to 29 (4.2-IV1)"
    )
    first, *others = said.splitlines()[:-1]
    assert first == f"Could not upgrade eligible.leader.replicas.version to 1. {reason}"
    assert all(line.endswith(reason) for line in others)


def test_one_refused_update_refuses_all(tool):
    code, lines = tool("upgrade --feature metadata.version=26 --feature nobody.version=7")
    assert code == 1
    assert [line.split(". ")[0] for line in lines[:2]] == [
        "Could not upgrade metadata.version to 26",
        "Could not upgrade nobody.version to 7",
    ]
    assert all("nobody.version can't be set to 7" in line for line in lines[:2])
    assert described(tool)["metadata.version"][2] == "4.0-IV3"
