"""From committed batches and snapshots of the metadata log to published images.

A metadata transaction (KIP-868) counts as a whole: nothing after its begin record is in
`ImageLoader.image` until its end record, and an abort drops it. An open one costs nothing but a
second reference, since images are values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from metadata.delta import ImageDelta, note, replaced
from metadata.features import unsupported
from metadata.image import EMPTY, MetadataImage
from metadata.records import UnknownRecord, decode
from metadata.records.types import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ClearElrRecord,
    EndTransactionRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from metadata.topics_draft import TopicsDraft
from wire.control import ControlType
from wire.errors import DecodeError, FatalError
from wire.exits import EXIT_UNREADABLE_LOG, EXIT_UNSUPPORTED_LEVEL

# The records beside topics and partitions that change either, or end what came before them.
_AFTER_TOPICS: Final = (
    RemoveTopicRecord,
    ClearElrRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    AbortTransactionRecord,
)
_VOTER_RECORDS: Final = (ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS)


class ImageLoader:
    """Holds the committed image. Feed it batches in log order, or a snapshot at any time.

    FatalError where a record cannot be decoded or a finalised feature level is not supported:
    a node that went on would hold another state than its peers."""

    def __init__(self, image: MetadataImage = EMPTY) -> None:
        self.image = image
        self.unknown_records = 0
        self._open: ImageDelta | None = None  # since the begin record; its image is uncommitted

    @property
    def in_transaction(self) -> bool:
        return self._open is not None

    def on_batch(
        self,
        base_offset: int,
        epoch: int,
        timestamp_ms: int,
        values: Sequence[bytes],
        control: Iterable[tuple[int, Any]] = (),
        last_offset: int | None = None,
    ) -> ImageDelta:
        """Apply one committed batch: its record values, or its control records as (type, decoded
        entity). `last_offset` is by default that of the last record. Returns what the published
        image gained; while a transaction stays open, that is what came before its begin record,
        often nothing, and the image stays where it was in the log."""
        load = self.start_batch(base_offset, epoch)
        load.add(values, control)
        return load.finish(timestamp_ms, last_offset)

    def start_batch(self, base_offset: int, epoch: int) -> BatchLoad:
        """Begin to apply a committed batch in slices, between which others may run, but no other
        batch; the published image stays as it is until `finish`. What is begun and not finished
        may be followed by a snapshot only."""
        return BatchLoad(self, base_offset, epoch)

    def on_snapshot(
        self,
        end_offset: int,
        epoch: int,
        timestamp_ms: int,
        values: Iterable[bytes],
        *,
        kraft_version: int | None = None,
        voters: Iterable[tuple[int, Any]] | None = None,
    ) -> ImageDelta:
        """Replace everything by a snapshot: `end_offset` is exclusive, `timestamp_ms` that of the
        last batch it covers, `voters` (id, directory id) pairs. Returns a full delta. A large
        snapshot is better taken in slices: `start_snapshot`."""
        load = self.start_snapshot(end_offset, epoch, timestamp_ms)
        load.add(values)
        return load.finish(kraft_version=kraft_version, voters=voters)

    def start_snapshot(self, end_offset: int, epoch: int, timestamp_ms: int) -> SnapshotLoad:
        """Begin to load a snapshot in slices, between which others may run; the published image
        stays as it is until `finish`."""
        return SnapshotLoad(self, EMPTY.at(end_offset - 1, epoch, timestamp_ms))

    def replace(self, image: MetadataImage) -> ImageDelta:
        """Publish an image in place of everything before, an open transaction included."""
        delta = replaced(self.image, image)
        self._open = None
        self._publish(delta)
        return delta

    def decode_value(self, value: bytes, offset: int, epoch: int) -> Any:
        """The record of a value; offset and epoch are for the error's text."""
        try:
            record = decode(value).record
        except DecodeError as error:
            raise FatalError(
                EXIT_UNREADABLE_LOG,
                f"metadata record at offset {offset}, epoch {epoch}, cannot be decoded: {error}",
            ) from error
        if type(record) is UnknownRecord:
            self.unknown_records += 1
        return record

    def _publish(self, delta: ImageDelta) -> None:
        if delta.features_changed:
            reason = unsupported(delta.image)
            if reason is not None:
                raise FatalError(EXIT_UNSUPPORTED_LEVEL, reason)
        self.image = delta.image


class BatchLoad:
    """A committed batch on its way into an `ImageLoader`."""

    def __init__(self, loader: ImageLoader, base_offset: int, epoch: int) -> None:
        self._loader = loader
        self._delta = ImageDelta(loader.image, loader.image)
        self._open = loader._open
        self._topics: TopicsDraft | None = None  # ahead of the image that records now go into
        self._offset = base_offset  # of the next record
        self._epoch = epoch

    def add(self, values: Iterable[bytes], control: Iterable[tuple[int, Any]] = ()) -> None:
        """Apply the next records of the batch; some 5 µs each."""
        for control_type, entity in control:
            self._control(control_type, entity)
        decode_value, offset, epoch = self._loader.decode_value, self._offset, self._epoch
        for value in values:
            self._step(decode_value(value, offset, epoch))
            offset += 1
        self._offset = offset
        self._finish_topics()

    @property
    def partitions_changed(self) -> int:
        """How many partitions it has made or changed so far, outside an open transaction."""
        return sum(map(len, self._delta.topics_changed.values()))

    def finish(self, timestamp_ms: int, last_offset: int | None = None) -> ImageDelta:
        """Publish the image as of the end of the batch; see `ImageLoader.on_batch`."""
        loader, delta = self._loader, self._delta
        loader._open = self._open
        if self._open is None:
            end = self._offset - 1 if last_offset is None else last_offset
            delta.image = delta.image.at(end, self._epoch, timestamp_ms)
        loader._publish(delta)
        return delta

    def _control(self, control_type: int, entity: Any) -> None:
        delta = self._delta
        delta.voters_changed |= control_type in _VOTER_RECORDS
        delta.image = delta.image.apply_control(control_type, entity)
        if self._open is not None:  # the quorum's own records are no part of a transaction
            self._open.image = self._open.image.apply_control(control_type, entity)
        self._offset += 1

    def _step(self, record: Any) -> None:
        kind = type(record)
        if kind is PartitionRecord:
            (self._topics or self._draft()).partition(record)
        elif kind is PartitionChangeRecord:
            (self._topics or self._draft()).change(record)
        elif kind is not TopicRecord or not (self._topics or self._draft()).topic(record):
            if kind is TopicRecord or kind in _AFTER_TOPICS:
                self._finish_topics()
            self._step_alone(record)

    def _step_alone(self, record: Any) -> None:
        delta, kind = self._delta, type(record)
        if kind is BeginTransactionRecord:
            if self._open is None:
                self._open = ImageDelta(delta.image, delta.image)
        elif kind is EndTransactionRecord:
            if self._open is not None:
                delta.merge(self._open)
            self._open = None
        elif kind is AbortTransactionRecord:
            self._open = None
        else:
            into = self._into()
            note(into, into.image, record)
            into.image = into.image.apply(record)

    def _into(self) -> ImageDelta:
        return self._delta if self._open is None else self._open

    def _draft(self) -> TopicsDraft:
        into = self._into()
        self._topics = TopicsDraft(into.image.topics, into)
        return self._topics

    def _finish_topics(self) -> None:
        topics, self._topics = self._topics, None
        if topics is not None:
            into = self._into()
            into.image = into.image.with_topics(topics.finish())


class SnapshotLoad:
    """A snapshot on its way into an `ImageLoader`."""

    def __init__(self, loader: ImageLoader, image: MetadataImage) -> None:
        self._loader = loader
        self._image = image  # without the topics that are being loaded
        self._topics = TopicsDraft(image.topics)

    def add(self, values: Iterable[bytes]) -> None:
        """Apply the next values; some 5 µs each."""
        decode_value = self._loader.decode_value
        offset, epoch = self._image.last_offset, self._image.last_epoch
        for value in values:
            record = decode_value(value, offset, epoch)
            kind = type(record)
            if kind is PartitionRecord:
                self._topics.partition(record)
            elif kind is PartitionChangeRecord:  # no snapshot has these
                self._topics.change(record)
            elif kind is TopicRecord and self._topics.topic(record):
                pass
            else:
                self._step_alone(record)
        self._topics.place()

    def _step_alone(self, record: Any) -> None:
        if type(record) is TopicRecord or type(record) in _AFTER_TOPICS:  # nor these
            self._image = self._image.with_topics(self._topics.finish()).apply(record)
            self._topics = TopicsDraft(self._image.topics)
        else:
            self._image = self._image.apply(record)

    def finish(
        self,
        *,
        kraft_version: int | None = None,
        voters: Iterable[tuple[int, Any]] | None = None,
    ) -> ImageDelta:
        """Publish the snapshot's image; returns a full delta."""
        image = self._image._replace(
            topics=self._topics.finish(),
            kraft_version=kraft_version,
            voters=None if voters is None else tuple(sorted(voters)),
        )
        return self._loader.replace(image)
