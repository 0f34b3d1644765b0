"""Names of levels, and which images this code may run on."""

import pytest

from metadata.features import (
    DEFAULT_METADATA_VERSION,
    SUPPORTED,
    default_levels,
    level_name,
    level_of,
    lowest_without_loss,
    new_cluster_levels,
    unmet,
    unsupported,
)
from metadata.image import EMPTY
from metadata.records import FeatureLevelRecord


def image(**levels):
    found = EMPTY
    for name, level in levels.items():
        record = FeatureLevelRecord(name=name.replace("_", "."), feature_level=level)
        found = found.apply(record)
    return found


def test_level_names() -> None:
    assert level_name(25) == "4.0-IV3"
    assert level_name(99) == "99"
    assert level_of("4.0-IV3") == level_of("25") == level_of("4.0") == 25
    assert level_of("3.7") == 19
    assert level_of("nine") is None
    assert level_of("4.1") == level_of("4.1-IV1") == 27
    low, high = SUPPORTED["metadata.version"]
    assert low <= DEFAULT_METADATA_VERSION <= high
    for level in range(1, 34):
        assert level_of(level_name(level)) == level


def test_unsupported_levels() -> None:
    assert unsupported(EMPTY) is None
    assert unsupported(image(metadata_version=25)) is None
    assert unsupported(image(metadata_version=7)) is None
    assert "level 6 (3.3-IV2)" in unsupported(image(metadata_version=6))
    assert "kraft.version" in unsupported(image(metadata_version=25, kraft_version=1))


@pytest.mark.parametrize(
    ("level", "lowest"),
    [(29, 23), (25, 23), (23, 23), (22, 17), (17, 17), (16, 15), (8, 8), (7, 7)],
)
def test_how_far_a_downgrade_loses_nothing(level, lowest):
    assert lowest_without_loss(level) == lowest


def test_what_a_new_cluster_finalises_beside_it():
    assert default_levels(21) == {}
    assert default_levels(22) == default_levels(25) == {"group.version": 1}
    both = {"eligible.leader.replicas.version": 1, "group.version": 1}
    assert default_levels(26) == default_levels(29) == both
    assert new_cluster_levels() == {"metadata.version": 25, "group.version": 1}


def test_what_a_level_needs(monkeypatch):
    monkeypatch.setattr("metadata.features.REQUIRES", {"a": {2: ("b", 5)}})
    assert unmet("a", 1, {}) is None
    assert unmet("a", 2, {}) == unmet("a", 2, {"b": 4}) == ("b", 5)
    assert unmet("a", 2, {"b": 5}) is None
