"""What all groups have in common, whatever their protocol: what offsets and lists ask of them."""

from __future__ import annotations

from typing import Protocol

from broker.groups.events import OffsetCommit, OffsetFetch, TxnOffsetCommit
from wire.errors import ErrorCode
from wire.group_records import GroupKey

CLASSIC = "classic"
CONSUMER = "consumer"

# How the state of a group that isn't there is called.
DEAD = "Dead"


class Group(Protocol):
    """A group as the coordinator keeps it under its id. `type` is Kafka's word for it."""

    @property
    def group_id(self) -> str: ...

    @property
    def type(self) -> str: ...

    @property
    def state(self) -> str:
        """Kafka's word, e.g. `Stable`."""
        ...

    @property
    def protocol_type(self) -> str | None:
        """What the members speak, e.g. `consumer`; None if nobody ever said."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether it has no members, so that it may be deleted or become one of another type."""
        ...

    def keys(self) -> list[GroupKey]:
        """The keys of all its records but the offsets': a tombstone for each deletes it."""
        ...

    def check_commit(self, request: OffsetCommit | TxnOffsetCommit) -> ErrorCode:
        """Whether these offsets may be committed, by member, generation or epoch, and state."""
        ...

    def check_fetch(self, request: OffsetFetch) -> ErrorCode:
        """Whether offsets may be told to this member; `none` for an administrator."""
        ...

    def check_offset_delete(self) -> ErrorCode:
        """Whether single offsets may be deleted."""
        ...

    def is_subscribed(self, topic: str) -> bool:
        """Whether members use the topic, so that its offsets neither expire nor are deleted."""
        ...

    def retention_base_ms(self, commit_ms: int) -> int | None:
        """From when on the retention of an offset runs that was committed at `commit_ms`, in ms of
        the wall clock; None while it must not expire."""
        ...
