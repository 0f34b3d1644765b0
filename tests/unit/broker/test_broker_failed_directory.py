"""One of several log directories fails: its replicas are offline, the controller is told, the rest
goes on (KIP-112, KIP-858)."""

import asyncio
from unittest.mock import patch

from broker_fakes import cluster, until
from structlog.testing import capture_logs
from test_broker_end_to_end import batch, fetch, produce, values_of

from storage.log_dir import CLEAN_SHUTDOWN
from storage.segment import Segment
from wire.apis import ErrorCode
from wire.exits import EXIT_LOG_DIRECTORY_FAILED
from world.env import DiskError, DiskFull, SyncFailed
from world.memory import Media

OFTEN = {
    "replica_high_watermark_checkpoint_interval_ms": 5,
    "log_flush_offset_checkpoint_interval_ms": 5,
}


def break_under(media, path, error=DiskError):
    """From now on every change below `path` is refused."""

    def refuse(operation, at, position, data):
        if at.startswith(f"{path}/"):
            kind = SyncFailed if error is DiskError and operation.startswith("sync") else error
            raise kind(at, operation, "broken")

    media.before_change = refuse


async def placed(c, broker, partitions=4):
    """A topic over the broker's two directories; their partitions, by directory."""
    c.controller.create_topic("t", partitions)
    await until(lambda: broker.replicas.leaders == partitions)
    first, second = broker.store.directories
    return first, [i for _, i in sorted(first.logs)], second, [i for _, i in sorted(second.logs)]


def offline_told(c):
    return [d for beat in c.controller.beats[-1:] for d in beat.offline_log_dirs]


def test_a_failed_directory_is_told_and_the_other_goes_on():
    async def main():
        async with cluster("/memory", ()) as c:
            media = c.media[1] = Media()
            broker = await c.start_broker(1, directories=2)
            first, lost, _, kept = await placed(c, broker)
            connection = await c.connect(1)
            for index in lost + kept:
                await produce(connection, "t", index, batch(b"a"))
            break_under(media, first.path)
            answer = await produce(connection, "t", lost[0], batch(b"b"))
            assert answer.error_code is ErrorCode.kafka_storage_error
            await until(lambda: offline_told(c) == [first.meta.directory_id])
            # Every replica there is offline now, also one that nobody wrote to.
            for index in lost:
                answer = await fetch(connection, "t", index, 0)
                assert answer.error_code == ErrorCode.kafka_storage_error
            for index in kept:
                answer = await produce(connection, "t", index, batch(b"b"))
                assert (answer.error_code, answer.base_offset) == (ErrorCode.none, 1)
            assert broker.offline == len(lost)
            assert c.fatal == []
            await c.stop_broker(1)
            media.before_change = lambda *rest: None
            assert not media.mount().exists(f"{first.path}/.kafka_cleanshutdown")
            # Started again, it takes the directory as it finds it.
            broker = await c.start_broker(1, directories=2)
            await until(lambda: broker.replicas.leaders == 4)
            connection = await c.connect(1)
            for index in lost:
                assert values_of((await fetch(connection, "t", index, 0)).records) == [b"a"]

    asyncio.run(main())


def test_a_full_disk_takes_its_directory_offline_where_there_is_another():
    async def main():
        async with cluster("/memory", ()) as c:
            media = c.media[1] = Media()
            broker = await c.start_broker(1, directories=2)
            first, lost, second, kept = await placed(c, broker)
            connection = await c.connect(1)
            break_under(media, first.path, DiskFull)
            answer = await produce(connection, "t", lost[0], batch(b"b"))
            assert answer.error_code is ErrorCode.kafka_storage_error
            await until(lambda: offline_told(c) == [first.meta.directory_id])
            # The last one stays: it may have room again.
            break_under(media, second.path, DiskFull)
            answer = await produce(connection, "t", kept[0], batch(b"b"))
            assert answer.error_code is ErrorCode.kafka_storage_error
            media.before_change = lambda *rest: None
            answer = await produce(connection, "t", kept[0], batch(b"b"))
            assert (answer.error_code, answer.base_offset) == (ErrorCode.none, 0)
            assert c.fatal == []

    asyncio.run(main())


def test_a_background_flush_finds_the_failed_directory_and_the_last_one_ends_the_broker():
    async def main():
        async with cluster("/memory", ()) as c:
            media = c.media[1] = Media()
            broker = await c.start_broker(1, directories=2, **OFTEN)
            first, lost, second, _ = await placed(c, broker)
            break_under(media, first.path)
            connection = await c.connect(1)
            # Without a write of a client: the next checkpoint is refused.
            await until(lambda: not broker.store.is_online(first))
            answer = await produce(connection, "t", lost[0], batch(b"b"))
            assert answer.error_code is ErrorCode.kafka_storage_error
            break_under(media, second.path)
            await until(lambda: c.fatal)
            assert c.fatal[0].exit_code == EXIT_LOG_DIRECTORY_FAILED
            assert "no log directory is left" in c.fatal[0].reason
            c.fatal.clear()

    asyncio.run(main())


def test_a_replica_on_an_offline_directory_is_not_made_elsewhere():
    async def main():
        async with cluster("/memory", ()) as c:
            media = c.media[1] = Media()
            broker = await c.start_broker(1, directories=2)
            first, lost, second, _ = await placed(c, broker)
            break_under(media, first.path)
            await produce(await c.connect(1), "t", lost[0], batch(b"b"))
            await until(lambda: not broker.store.is_online(first))
            # New partitions go to the directory that is left, though it holds more.
            c.controller.create_topic("u", 5)
            await until(lambda: sum(t == "u" for t, _ in second.logs) == 5)

    asyncio.run(main())


def test_a_broker_that_cannot_tell_of_a_failed_directory_ends():
    async def main():
        async with cluster("/memory", ()) as c:
            media = c.media[1] = Media()
            broker = await c.start_broker(1, directories=2, log_dir_failure_timeout_ms=200)
            first, lost, _, _ = await placed(c, broker)
            connection = await c.connect(1)
            c.controller.refuse_heartbeats = ErrorCode.request_timed_out
            break_under(media, first.path)
            await produce(connection, "t", lost[0], batch(b"b"))
            await until(lambda: c.fatal)
            assert "no controller could be told so in 200 ms" in c.fatal[0].reason
            c.fatal.clear()

    asyncio.run(main())


def test_a_directory_that_is_gone_has_failed_whoever_misses_it_first():
    """Each of what is done to a directory now and then, alone: nothing else notices before it."""

    async def main(miss):
        async with cluster("/memory", ()) as c:
            c.media[1] = Media()
            broker = await c.start_broker(1, directories=2)
            first, lost, _, kept = await placed(c, broker)
            connection = await c.connect(1)
            for index in lost + kept:
                await produce(connection, "t", index, batch(b"a"))
            first.env.disk.rename(first.path, f"{first.path}-gone")
            await miss(broker, first, lost)
            await until(lambda: offline_told(c) == [first.meta.directory_id])
            for index in lost:
                answer = await fetch(connection, "t", index, 0)
                assert answer.error_code == ErrorCode.kafka_storage_error
            for index in kept:
                answer = await produce(connection, "t", index, batch(b"b"))
                assert answer.error_code is ErrorCode.none
            assert c.fatal == []

    async def flush(broker, first, lost):
        await broker.replicas.flush()

    async def flush_names(broker, first, lost):
        for log in first.logs.values():
            log._flusher.directory_changed = True
            log._flusher._epochs.dirty = False
        await broker.replicas.flush()

    async def checkpoint(broker, first, lost):
        await broker.replicas.checkpoint_high_watermarks()

    async def delete(broker, first, lost):
        await broker.store.delete(broker.replicas.find("t", None, lost[0]).stored)

    async def retire(broker, first, lost):
        # Records without a timestamp are as old as their file.
        with patch.object(Segment, "largest_timestamp", -1):
            broker.replicas.delete_retired_segments()

    for miss in (flush, flush_names, checkpoint, delete, retire):
        asyncio.run(main(miss))


def test_a_directory_that_is_gone_when_its_broker_stops_is_offline_and_the_other_is_clean():
    async def main():
        async with cluster("/memory", ()) as c:
            media = c.media[1] = Media()
            broker = await c.start_broker(1, directories=2)
            first, lost, second, kept = await placed(c, broker)
            connection = await c.connect(1)
            for index in lost + kept:
                await produce(connection, "t", index, batch(b"a"))
            first.env.disk.rename(first.path, f"{first.path}-gone")
            with capture_logs() as logs:
                await c.stop_broker(1)
            failed = [entry for entry in logs if entry["event"] == "log_directory_failed"]
            assert [entry["path"] for entry in failed] == [first.path]
            assert c.fatal == []
            disk = media.mount()
            assert disk.exists(f"{second.path}/{CLEAN_SHUTDOWN}")
            assert not disk.exists(f"{first.path}-gone/{CLEAN_SHUTDOWN}")

    asyncio.run(main())


def test_a_broker_whose_last_directory_is_gone_when_it_stops_says_so():
    async def main():
        async with cluster("/memory", ()) as c:
            c.media[1] = Media()
            broker = await c.start_broker(1)
            (only,) = broker.store.directories
            only.env.disk.rename(only.path, f"{only.path}-gone")
            await c.stop_broker(1)
            assert [error.exit_code for error in c.fatal] == [EXIT_LOG_DIRECTORY_FAILED]
            c.fatal.clear()

    asyncio.run(main())
