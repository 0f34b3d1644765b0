"""The records of a leader's answer to a fetch, looked at before they go out.

Base offset and epoch of a batch are not covered by its CRC, so who fetches can't find all damage:
with a spoiled epoch its log could pass for newer than those that hold what is committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from raft.burst import MAX_BATCH_BYTES
from raft.messages import FetchResponse
from raft.metadata_log import MetadataLog
from raft.requests import Slice
from storage.errors import OffsetOutOfRange
from storage.reading import Slice as Part
from wire.batch import BatchHeader, crc_ok, iter_headers
from wire.errors import DamagedFile, DecodeError, ErrorCode
from world.env import DiskFull

logger = structlog.get_logger("raft")
_LOOKED_AT_MAX = 1 << 20  # bytes in one go, unless the first batch is longer

Answer = Callable[[FetchResponse, Slice | None], None]


class RecordsServer:
    """`damaged(offset, where)` is called each time that what is at `offset` can't be given, `fail`
    when the disk failed at it."""

    def __init__(
        self,
        log: MetadataLog,
        damaged: Callable[[int, str], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._log = log
        self._damaged = damaged
        self._fail = fail
        self._reads: dict[asyncio.Task[None], None] = {}

    def serve(self, response: FetchResponse, offset: int, max_bytes: int, answer: Answer) -> None:
        """Give `answer` the response of the core with sound batches from `offset` on, of at most
        `max_bytes` but for the first; without any where the log was trimmed meanwhile, which the
        next fetch is told, and with an error where the first is unsound.

        Raises DiskError."""
        try:
            part = self._log.log.read(offset, min(max_bytes, _LOOKED_AT_MAX))
            if part is None:
                answer(response, None)
                return
            if part.length > max(max_bytes, MAX_BATCH_BYTES):
                where = f"{_place(part, offset)}: a batch of {part.length} bytes"
                self._refuse(response, offset, where, answer)
                return
            data = part.file.pread_nowait(part.length, part.position)
            if data is not None:
                self._give(response, offset, part, data, answer)
            else:
                read = asyncio.get_running_loop().create_task(
                    self._read(response, offset, part, self._log.log.truncations, answer),
                    name="raft-read-records",
                )
                self._reads[read] = None
                read.add_done_callback(self._reads.pop)
        except OffsetOutOfRange:
            answer(response, None)
        except DamagedFile as error:
            self._refuse(response, offset, str(error), answer)
        except DiskFull as error:
            self._no_room(response, offset, error, answer)

    async def _read(
        self, response: FetchResponse, offset: int, part: Part, truncations: int, answer: Answer
    ) -> None:
        """Answers with records that the disk has to be waited for."""
        log = self._log.log
        try:
            data = await self._log.env.run_blocking(part.file.pread, part.length, part.position)
            if log.truncations == truncations and offset >= log.log_start_offset:
                self._give(response, offset, part, data, answer)
                return
        except DiskFull as error:
            self._no_room(response, offset, error, answer)
            return
        except Exception as error:  # noqa: BLE001 - told to whoever ends the node
            if log.truncations == truncations and offset >= log.log_start_offset:
                self._fail(error)
                return
        if log.truncations != truncations:  # by a later leader, whose records may be there now
            lost = ErrorCode.not_leader_or_follower
            response = response._replace(error=lost, read_from=None)
        # Else it was trimmed, and the file closed, perhaps: the next fetch is told.
        answer(response, None)

    def _give(
        self, response: FetchResponse, offset: int, part: Part, data: bytes, answer: Answer
    ) -> None:
        length, problem = self._look(data, offset)
        if length:
            answer(response, Slice(memoryview(data)[:length], length))
        else:
            self._refuse(response, offset, f"{_place(part, offset)}: {problem}", answer)

    def _no_room(
        self, response: FetchResponse, offset: int, error: DiskFull, answer: Answer
    ) -> None:
        """An index would have to be made again."""
        logger.error("records_not_served", offset=offset, reason=str(error))
        answer(_failed(response), None)

    def _refuse(self, response: FetchResponse, offset: int, where: str, answer: Answer) -> None:
        self._damaged(offset, where)
        answer(_failed(response), None)

    def _look(self, data: bytes, offset: int) -> tuple[int, str]:
        """How many bytes of `data`, which was found for `offset`, are sound batches, and what is
        wrong behind them."""
        length, expected = 0, offset
        try:
            for position, header in iter_headers(data):
                problem = self._problem(data, position, header, expected)
                if problem is not None:
                    return length, problem
                length, expected = position + header.length, header.next_offset
        except (DecodeError, DamagedFile) as error:
            return length, str(error)
        return length, "cut short"

    def _problem(
        self, data: bytes, position: int, header: BatchHeader, expected: int
    ) -> str | None:
        if header.base_offset != expected and (position or not self._is_within(header, expected)):
            return f"it says that it begins at offset {header.base_offset}"
        epoch = self._log.log.epochs.epoch_at(expected)
        if epoch >= 0 and header.leader_epoch != epoch:  # else it is known nowhere else
            return f"leader epoch {header.leader_epoch}, but it is {epoch}"
        if not crc_ok(data, position, header.length):
            return "CRC is wrong"
        return None

    def _is_within(self, header: BatchHeader, offset: int) -> bool:
        """Whether a batch that claims to begin before `offset` does: what is before that then has
        to be in the same one."""
        log = self._log.log
        if not header.base_offset < offset <= header.last_offset or offset <= log.first_offset:
            return False
        before = log.batch_header_at(offset - 1)
        return before is not None and before.base_offset == header.base_offset

    async def close(self) -> None:
        """Let what is being read come to its end."""
        if self._reads:
            await asyncio.wait(list(self._reads))


def _failed(response: FetchResponse) -> FetchResponse:
    return response._replace(error=ErrorCode.kafka_storage_error, read_from=None)


def _place(part: Part, offset: int) -> str:
    return f"{part.file.path}: byte {part.position}: offset {offset}"
