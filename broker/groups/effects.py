"""What the group coordinator asks its shell to do. All frozen values."""

from __future__ import annotations

from typing import NamedTuple


class StoredRecord(NamedTuple):
    """A record of `__consumer_offsets` as it is stored; `value` None is a tombstone."""

    key: bytes
    value: bytes | None


class Producer(NamedTuple):
    """The transactional producer in whose name a batch is written."""

    producer_id: int
    producer_epoch: int


class Append(NamedTuple):
    """Append `records` as one batch: all of them or none, in this order.

    With `producer` the batch is transactional (and has no sequence). The outcome is told by
    Appended or AppendFailed with this token.
    """

    token: int
    records: tuple[StoredRecord, ...]
    producer: Producer | None = None


class Answer(NamedTuple):
    """The answer to the request of `caller`; the request's text names the type of `value`."""

    caller: int
    value: object


class Log(NamedTuple):
    """Something an operator should know: `event` is a fixed text, `fields` its particulars."""

    event: str
    fields: tuple[tuple[str, object], ...] = ()


Effect = Append | Answer | Log
