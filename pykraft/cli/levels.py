"""Levels of features as people write them."""

from __future__ import annotations

from collections.abc import Sequence

from metadata.features import SUPPORTED, describe_level, level_of
from metadata.image import METADATA_VERSION
from pykraft.cli import CommandError
from wire.numbers import whole_number


def metadata_level(option: str, text: str) -> int:
    """The level of metadata.version that is meant; CommandError where none is."""
    level = level_of(text)
    if level is None:
        low, high = SUPPORTED[METADATA_VERSION]
        raise CommandError(
            f"{option} {text}: must be a release such as 4.0, a level's name such as 4.0-IV3, "
            f"or its number; {describe_level(METADATA_VERSION, low)} to "
            f"{describe_level(METADATA_VERSION, high)} are supported"
        )
    return level


def feature_levels(items: Sequence[str]) -> dict[str, int]:
    """`--feature NAME=LEVEL` options as a mapping; CommandError where one is malformed."""
    levels: dict[str, int] = {}
    for item in items:
        name, equals, text = item.partition("=")
        level = whole_number(text)
        if not (name and equals) or level is None:
            raise CommandError(f"--feature {item}: must be NAME=LEVEL, the level a number from 0")
        if name in levels:
            raise CommandError(f"--feature {item}: {name} is named twice")
        levels[name] = level
    return levels
