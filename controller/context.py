"""What an API handler sees, and what it answers."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from controller.config import ControllerConfig
from controller.heartbeats import Heartbeats
from metadata.image import MetadataImage
from metadata.records import Record


@dataclass(slots=True)
class Context:
    """The active controller's state. Handlers read it and change nothing but soft state.

    `image` has all appended records applied, committed or not; `next_offset` is the offset that
    the first record of this operation will get.
    """

    config: ControllerConfig
    chance: random.Random
    new_uuid: Callable[[], UUID]
    heartbeats: Heartbeats
    image: MetadataImage
    next_offset: int = 0
    now_ms: int = 0
    # Where each broker's RegisterBrokerRecord stands, for those registered under this leader;
    # of the others the broker epoch says it well enough.
    registration_offsets: dict[int, int] = field(default_factory=dict)

    @property
    def metadata_version(self) -> int:
        return self.image.metadata_version

    def draft(self) -> Context:
        """A copy whose image may run ahead while the records of one operation are made."""
        return replace(self)


@dataclass(frozen=True, slots=True)
class Result:
    """The records of one operation and the answer to give once they are committed.

    `atomic` records go in one batch or not at all. `appended`, if given, is told the offset
    behind the last record, for soft state that depends on it.
    """

    records: Sequence[Record]
    reply: Any
    atomic: bool = True
    appended: Callable[[int], None] | None = None
