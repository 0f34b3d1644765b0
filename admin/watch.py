"""Watch: committed records as a stream, at the pace of the one who reads it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any, cast

from admin.ports import AdminPorts, SlowWatcher
from admin.stubs import admin_pb2 as pb
from metadata.image import MetadataImage
from metadata.records import UnknownRecord, decode, name_of, to_json
from metadata.snapshot import records_of
from wire.errors import ErrorCode, KafkaError


class WatcherStalled(Exception):
    """The reader took nothing for too long, or fell behind what the source keeps."""


def _snapshot(image: MetadataImage) -> Iterator[pb.WatchResponse]:
    """The state as records that all stand at the image's offset."""
    for record, version in records_of(image):
        assert not isinstance(record, UnknownRecord), "an image holds what it understood"
        yield pb.WatchResponse(
            offset=image.last_offset,
            epoch=image.last_epoch,
            timestamp_ms=image.last_timestamp_ms,
            type=record.NAME,
            version=version,
            json=_text(to_json(record, version)),
        )


def _text(fields: Any) -> str:
    return json.dumps(fields, separators=(",", ":"))


async def _changes(ports: AdminPorts, from_offset: int) -> AsyncIterator[pb.WatchResponse]:
    source = cast("Any", ports.watch.iterate(from_offset))
    async with aclosing(source):
        async for item in source:
            decoded = decode(item.value)
            yield pb.WatchResponse(
                offset=item.offset,
                epoch=item.epoch,
                timestamp_ms=item.timestamp_ms,
                type=name_of(decoded.api_key),
                version=decoded.version,
                json=_text(to_json(decoded.record, decoded.version)),
            )


async def watch(ports: AdminPorts, request: pb.WatchRequest, context: Any, stall_ms: int) -> None:
    """Writes to `context` until the caller goes or an error ends it.

    Nothing is buffered here: the next record is read once gRPC has taken the last one, whose flow
    control stops when the peer's window is full. Raises WatcherStalled when it takes none for
    `stall_ms`, KafkaError for offsets that are not there.
    """
    from_offset = request.from_offset
    if from_offset < 0:
        raise KafkaError(ErrorCode.invalid_request, f"from_offset {from_offset}: at least 0")
    # Headers first: the caller knows then that the watch stands, also when nothing happens.
    await context.send_initial_metadata(())
    if request.snapshot_first:
        image = ports.image()
        for message in _snapshot(image):
            await _write(context, message, stall_ms)
        from_offset = image.last_offset + 1
    try:
        async with aclosing(cast("Any", _changes(ports, from_offset))) as changes:
            async for message in changes:
                await _write(context, message, stall_ms)
    except SlowWatcher as error:
        raise WatcherStalled(f"too far behind: {error}") from error


async def _write(context: Any, message: pb.WatchResponse, stall_ms: int) -> None:
    try:
        async with asyncio.timeout(stall_ms / 1000):
            await context.write(message)
    except TimeoutError as error:
        raise WatcherStalled(
            f"nothing was read for {stall_ms} ms; watch again from offset {message.offset}"
        ) from error
