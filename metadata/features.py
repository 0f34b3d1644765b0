"""Features: the levels that this code supports, and the names of metadata.version levels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from metadata.image import METADATA_VERSION, MetadataImage
from wire.numbers import whole_number

DEFAULT_METADATA_VERSION: Final = 25
"""What `storage format` finalises unless told otherwise: 4.0-IV3."""

ELIGIBLE_LEADER_REPLICAS: Final = "eligible.leader.replicas.version"
GROUP_VERSION: Final = "group.version"

_LOWEST: Final = 7
SUPPORTED: Final[dict[str, tuple[int, int]]] = {
    METADATA_VERSION: (_LOWEST, 29),
    ELIGIBLE_LEADER_REPLICAS: (0, 1),
    GROUP_VERSION: (0, 1),
}
"""Feature -> (lowest, highest) level. A feature that is not here has level 0 only; one comes in
when the work behind it is done.

metadata.version ends before 30 (4.3-IV0), which records cordoned log directories (KIP-1066). What
the levels from 26 on turn on is either in place at every level (Fetch 18 between brokers, 27), a
default of other features for new clusters (26, 28), or of no use here (ListOffsets 11 between
brokers, for tiered storage, 29)."""

REQUIRES: Final[dict[str, dict[int, tuple[str, int]]]] = {
    ELIGIBLE_LEADER_REPLICAS: {1: (METADATA_VERSION, 23)},
}
"""Feature -> level -> (other feature, its lowest level) that must be finalised with it."""

_BY_DEFAULT_FROM: Final = {ELIGIBLE_LEADER_REPLICAS: 26, GROUP_VERSION: 22}

_NEW_METADATA: Final = (8, 11, 13, 14, 15, 17, 23)
"""Levels of metadata.version from which records or fields are written that lower ones lack."""

_LEVEL_NAMES: Final[dict[int, str]] = {
    1: "3.0-IV1",
    2: "3.1-IV0",
    3: "3.2-IV0",
    4: "3.3-IV0",
    5: "3.3-IV1",
    6: "3.3-IV2",
    7: "3.3-IV3",
    8: "3.4-IV0",
    9: "3.5-IV0",
    10: "3.5-IV1",
    11: "3.5-IV2",
    12: "3.6-IV0",
    13: "3.6-IV1",
    14: "3.6-IV2",
    15: "3.7-IV0",
    16: "3.7-IV1",
    17: "3.7-IV2",
    18: "3.7-IV3",
    19: "3.7-IV4",
    20: "3.8-IV0",
    21: "3.9-IV0",
    22: "4.0-IV0",
    23: "4.0-IV1",
    24: "4.0-IV2",
    25: "4.0-IV3",
    26: "4.1-IV0",
    27: "4.1-IV1",
    28: "4.2-IV0",
    29: "4.2-IV1",
    30: "4.3-IV0",
    31: "4.4-IV0",
    32: "4.4-IV1",
    33: "4.4-IV2",
}

# The lowest metadata.version with each ability (Kafka's MetadataVersion).
NO_OP_RECORDS: Final = 5
BROKER_REGISTRATION_CHANGES: Final = 6
CONTROLLED_SHUTDOWN_STATE: Final = 7
SCRAM: Final = 11
NO_EPOCH_BUMP_ON_ISR_SHRINK: Final = 12
TRANSACTIONS: Final = 13
DELEGATION_TOKENS: Final = 14
CONTROLLER_REGISTRATION: Final = 15
DIRECTORY_ASSIGNMENT: Final = 17


def level_name(level: int) -> str:
    """`4.0-IV3` for metadata.version 25; the number itself where the level has no known name."""
    return _LEVEL_NAMES.get(level, str(level))


def level_of(text: str) -> int | None:
    """The metadata.version level of a name such as `4.0-IV3`, of a release such as `4.0` (its
    newest level), or of a number; None where it is none of these."""
    number = whole_number(text)
    if number is not None:
        return number
    by_name = {name: level for level, name in _LEVEL_NAMES.items()}
    if text in by_name:
        return by_name[text]
    levels = [level for name, level in by_name.items() if name.split("-")[0] == text]
    return max(levels, default=None)


def describe_level(feature: str, level: int) -> str:
    """A level with its name where it has one: `25 (4.0-IV3)`."""
    if feature == METADATA_VERSION and level in _LEVEL_NAMES:
        return f"{level} ({_LEVEL_NAMES[level]})"
    return str(level)


def default_levels(metadata_version: int) -> dict[str, int]:
    """What a new cluster at that level finalises beside it unless told otherwise, of the features
    that are records of the metadata log; as Kafka's storage tool."""
    return {name: 1 for name, since in _BY_DEFAULT_FROM.items() if metadata_version >= since}


def new_cluster_levels() -> dict[str, int]:
    """All that a new cluster finalises that nobody has told otherwise."""
    level = DEFAULT_METADATA_VERSION
    return {METADATA_VERSION: level, **default_levels(level)}


def lowest_without_loss(level: int) -> int:
    """The lowest level of metadata.version to which a cluster at `level` can go back: the last one
    that brought metadata which lower ones can't hold."""
    return max((new for new in _NEW_METADATA if new <= level), default=_LOWEST)


def unmet(name: str, level: int, levels: Mapping[str, int]) -> tuple[str, int] | None:
    """The (feature, level) that this level needs and that `levels` lack; None if none."""
    needed = REQUIRES.get(name, {}).get(level)
    if needed is not None and levels.get(needed[0], 0) < needed[1]:
        return needed
    return None


def unsupported(image: MetadataImage) -> str | None:
    """Why this code must not run on the image: the first finalised level outside our range, in a
    sentence that names both; None where all are within."""
    for name in sorted(image.features):
        level = image.features[name]
        low, high = SUPPORTED.get(name, (0, 0))
        if not low <= level <= high:
            return (
                f"the metadata log finalises {name} at level {describe_level(name, level)}; "
                f"this version supports {describe_level(name, low)} to "
                f"{describe_level(name, high)}"
            )
    return None
