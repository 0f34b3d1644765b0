"""`pykraft features` on a running cluster: what it says, changes, refuses, and who hears of it."""

import re
from contextlib import suppress

import clusters
import pytest
from api_versions import finalized_features
from waiting import wait_until

from metadata.features import SUPPORTED
from wire.errors import KafkaError

pytestmark = pytest.mark.cluster

LOW, HIGH = SUPPORTED["metadata.version"]
UP = ("features", "upgrade", "--metadata")
DOWN = ("features", "downgrade", "--metadata")


def level(cluster):
    return cluster.json("features", "describe")["metadata.version"]


def could_be_set(cluster, levels):
    """Whether that would be allowed now: voters tell their leader what they support."""
    with cluster.admin() as admin, suppress(KafkaError):
        admin.update_features(levels, validate_only=True)
        return True
    return False


@pytest.mark.ci
def test_static_voters_get_into_the_log(tmp_path):
    """kraft.version 0 to 1 on a running quorum, over both doors' ways; it outlives its leader."""
    with clusters.running_cluster(tmp_path, 3, 1) as cluster:
        assert all(voter["directory"] for voter in cluster.json("quorum", "describe")["voters"])
        assert cluster.json("features", "describe")["kraft.version"]["finalized"] == 0
        command = ("features", "upgrade", "--feature", "kraft.version=1")
        wait_until(lambda: could_be_set(cluster, {"kraft.version": 1}), "all voters are known", 20)
        tried = cluster.pykraft(*command, "--validate-only")
        assert tried == "kraft.version could be set to level 1\n"
        assert cluster.pykraft(*command) == "kraft.version is now at level 1\n"

        def finalised():
            return cluster.json("features", "describe")["kraft.version"]["finalized"] == 1

        wait_until(finalised, "describe says 1", 10)
        cluster.kill(cluster.active_controller())
        cluster.pykraft("topics", "create", "after", "--partitions", "1")
        assert finalised()
        assert cluster.pykraft(*command) == "kraft.version is now at level 1\n"
        told = cluster.pykraft("features", "disable", "--feature", "kraft.version", code=1)
        assert "it is at 1 and never goes down" in told


def test_up_and_down_again(shared_cluster):
    cluster = shared_cluster
    assert level(cluster) == {"min": LOW, "max": HIGH, "finalized": 25}
    said = cluster.pykraft("features", "describe").split("\n")
    assert said[0].split() == ["FEATURE", "FINALIZED", "MIN", "MAX"]
    row = next(line for line in said if line.startswith("metadata.version"))
    assert row.split(None, 1)[1].split("  ") == ["25 (4.0-IV3)", "7 (3.3-IV3)", "29 (4.2-IV1)"]
    nodes = [node["kafka"] for node in cluster.local.status()["nodes"]]
    before = max(finalized_features(address)[1] for address in nodes)
    try:
        tried = cluster.pykraft(*UP, "4.2", "--validate-only")
        assert tried == "metadata.version could be set to level 29 (4.2-IV1)\n"
        done = cluster.pykraft(*UP, "4.1")
        assert done == "metadata.version is now at level 27 (4.1-IV1)\n"
        for address in nodes:
            wait_until(
                lambda a=address: finalized_features(a)[0]["metadata.version"] == 27,
                f"{address} finalises 27",
                10,
            )
            assert finalized_features(address)[1] > before
    finally:
        assert cluster.json(*DOWN, "4.0") == {
            "levels": {"metadata.version": 25},
            "validate_only": False,
        }
    wait_until(lambda: level(cluster)["finalized"] == 25, "describe says 25", 10)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("command", "said"),
    [
        ((*UP, "4.3"), "controller 10. supports levels 7"),
        ((*UP, "3.9"), "that takes a safe or unsafe downgrade"),
        ((*DOWN, "3.9"), "might lose metadata"),
        ((*DOWN, "3.9", "--unsafe"), "unsafe downgrades are not supported"),
        (("features", "disable", "--feature", "metadata.version"), "supports levels 7"),
        (
            ("features", "upgrade", "--feature", "share.version=1"),
            r"has no share\.version; the features there are: .*, metadata\.version 7 .* to 29 ",
        ),
    ],
)
def test_refusals_are_one_line(shared_cluster, command, said):
    told = shared_cluster.pykraft(*command, code=1)
    assert told.startswith("pykraft: INVALID_UPDATE_VERSION: ")
    assert re.search(said, told), told
    assert told.count("\n") == 1
    assert level(shared_cluster)["finalized"] == 25
