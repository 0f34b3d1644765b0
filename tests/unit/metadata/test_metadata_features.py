"""Names of levels, and which images this code may run on."""

from metadata.features import DEFAULT_METADATA_VERSION, SUPPORTED, level_name, level_of, unsupported
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
    assert SUPPORTED["metadata.version"][1] == DEFAULT_METADATA_VERSION
    for level in range(1, 32):
        assert level_of(level_name(level)) == level


def test_unsupported_levels() -> None:
    assert unsupported(EMPTY) is None
    assert unsupported(image(metadata_version=25)) is None
    assert unsupported(image(metadata_version=7)) is None
    assert "level 6 (3.3-IV2)" in unsupported(image(metadata_version=6))
    assert "kraft.version" in unsupported(image(metadata_version=25, kraft_version=1))
