"""What an API handler sees, and what it answers."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from uuid import UUID

from controller.config import ControllerConfig
from controller.events import UpgradeKraftVersion
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
    # Brokers whose change of state is under way (see `Operation`); with True they count as fenced.
    transitions: dict[int, bool] = field(default_factory=dict)

    @property
    def metadata_version(self) -> int:
        return self.image.metadata_version

    def is_active(self, broker_id: int) -> bool:
        """Registered, not fenced, not on its way out: may lead and be in sync."""
        broker = self.image.broker(broker_id)
        return broker is not None and broker.active and not self.transitions.get(broker_id, False)

    def draft(self) -> Context:
        """A copy whose image may run ahead while the records of one operation are made."""
        return replace(self)


class Result(NamedTuple):
    """What a request comes to: records that go in one batch or not at all, and the answer to give
    once they are committed.

    With `upgrade` the quorum has its part to do before that: the request is handled again then, or
    answered with `reply` where it is only validated.
    """

    records: Sequence[Record]
    reply: Any
    upgrade: UpgradeKraftVersion | None = None


Steps = Iterator[Record | None]
"""Records one after the other, each decided on an image that holds all before it; None for
something that was looked at and needs no record."""


@dataclass(frozen=True, slots=True)
class Operation:
    """What a request comes to that may concern every partition of the cluster.

    Its `steps` are taken in slices of milliseconds, one operation after the other; other requests
    have their turn in between, so a step must look at the context of its moment. `finish` is told
    the offset behind the last record and answers with the reply to give once that is committed.
    `broker` is the one whose state changes, if there is one; with `out` it counts as fenced from
    the beginning, though the record that says so comes last.
    """

    steps: Steps
    finish: Callable[[int], Any]
    broker: int | None = None
    out: bool = False


Making = Generator[Record | None, None, Any]
"""Steps whose records go in one batch, each decided by itself; they return the reply."""


@dataclass(frozen=True, slots=True)
class AtomicOperation:
    """What a request comes to that makes any number of topics or partitions, all in one batch or
    none of them.

    Its steps are taken in slices, too, one such operation after the other; nothing of them is in
    the context's image before the last. `make` begins anew where brokers, features or existing
    topics change in between (`controller.atomic`). With `validate_only` nothing is appended.
    """

    make: Callable[[], Making]
    validate_only: bool
