"""The broker's log cleaner: which log it takes, when, and what doesn't disturb it."""

import asyncio

from broker_fakes import cluster, until
from structlog.testing import capture_logs
from test_broker_end_to_end import fetch, produce

from wire.apis import ErrorCode
from wire.batch import build_batch, decode_records, iter_headers
from world.env import DiskFull
from world.memory import Media

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.1",
}
# Cleaned only where a test says so.
BY_HAND = {"log_cleaner_enable": "false"}
TIME = 1_700_000_000_000


def keyed(*pairs):
    return build_batch([(TIME, k, v, ()) for k, v in pairs])


async def state_of(connection, topic, index=0):
    """(offset, key, value's first byte) of all records."""
    found, offset = [], 0
    while True:
        got = await fetch(connection, topic, index, offset)
        data = bytes(got.records or b"")
        if not data:
            return found
        for pos, header in iter_headers(data):
            found += [
                (r.offset, r.key, r.value and r.value[:1])
                for r in decode_records(data, pos, header)
                if r.offset >= offset
            ]
            offset = header.next_offset


async def fill(connection, topic, index=0, rounds=4, keys=(b"a", b"b")):
    """Values large enough that each round begins a new segment."""
    for number in range(rounds):
        values = keyed(*((key, b"%d" % number * 400_000) for key in keys))
        answer = await produce(connection, topic, index, values)
        assert answer.error_code is ErrorCode.none, answer


async def with_topic(c, name="t", configs=COMPACTED, brokers=(1,)):
    c.controller.create_topic(name, 1, brokers, configs)
    await until(lambda: all(b.replicas.find(name, None, 0) for b in c.brokers.values()))
    await until(
        lambda: (
            not any(
                isinstance(b.replicas.find(name, None, 0), ErrorCode) for b in c.brokers.values()
            )
        )
    )


def by_hand(story, *topics, **options):
    """A broker on a disk in memory that cleans when it is told to, with topics that have something
    to clean; `story` gets the cluster, the broker, a connection to it and its disk."""

    async def main():
        async with cluster("/memory", ()) as c:
            media = c.media[1] = Media()
            broker = await c.start_broker(1, **BY_HAND, **options)
            connection = await c.connect(1)
            for topic in topics:
                await with_topic(c, topic)
                await fill(connection, topic)
            await story(c, broker, connection, media)
            assert c.fatal == []

    asyncio.run(main())


def test_compacted_topics_are_cleaned_by_and_by(tmp_path):
    async def main():
        async with cluster(tmp_path, ()) as c:
            for broker_id in (1, 2):
                await c.start_broker(broker_id, log_cleaner_backoff_ms=20)
            await with_topic(c, brokers=(1, 2))
            await with_topic(c, "plain", {"segment.bytes": "1048576"}, (1, 2))
            connection = await c.connect(1)
            await fill(connection, "t")
            await fill(connection, "plain")
            for broker in c.brokers.values():
                log = broker.replicas.find("t", None, 0).log
                await until(lambda log=log: log.cleaned_to == 6)
                assert broker.replicas.find("plain", None, 0).log.cleaned_to == 0
            assert await state_of(connection, "t") == [
                (4, b"a", b"2"),
                (5, b"b", b"2"),
                (6, b"a", b"3"),
                (7, b"b", b"3"),
            ]
            assert len(await state_of(connection, "plain")) == 8
            # A follower that is new takes what is left, and what comes after.
            await c.stop_broker(2)
            checkpoint = (tmp_path / "broker-2/cleaner-offset-checkpoint").read_text()
            assert checkpoint == "0\n1\nt 0 6\n"
            await c.start_broker(2, log_cleaner_backoff_ms=20)
            assert c.brokers[2].replicas.find("t", None, 0).log.cleaned_to == 6
            await fill(connection, "t", rounds=2)
            await until(lambda: c.brokers[2].replicas.find("t", None, 0).log.cleaned_to == 10)
            assert c.fatal == []

    asyncio.run(main())


def test_the_dirtiest_log_that_is_due_comes_first():
    async def story(c, broker, connection, media):
        for name, rounds in (("little", 5), ("much", 5), ("lazy", 5)):
            configs = {
                **COMPACTED,
                **({"min.cleanable.dirty.ratio": "1"} if name == "lazy" else {}),
            }
            await with_topic(c, name, configs)
            await fill(connection, name, rounds=rounds, keys=(b"%d" % rounds,))
        order = []

        async def clean():
            with capture_logs() as logs:
                done = await broker.cleaner.clean_dirtiest()
            order.extend(one["topic"] for one in logs if one["event"] == "log_cleaned")
            return done

        assert await clean()
        assert await clean()
        await fill(connection, "little", rounds=1, keys=(b"x",))
        await fill(connection, "much", rounds=3, keys=(b"y",))
        assert await clean()
        assert order[2] == "much"
        while await clean():
            pass
        assert "lazy" not in order
        assert broker.cleaner.passes == len(order)

    by_hand(story)


def test_a_log_that_makes_no_sense_is_told_once_and_left_alone():
    async def story(c, broker, connection, media):
        bad = broker.replicas.find("bad", None, 0).log
        media.flip(bad.segments.peekitem(0)[1].file.path, 5_000)
        with capture_logs() as logs:
            while await broker.cleaner.clean_dirtiest():
                pass
            while await broker.cleaner.clean_dirtiest():
                pass
        told = [one for one in logs if one["event"] == "log_cannot_be_cleaned"]
        assert [(one["topic"], one["reason"]) for one in told] == [("bad", "CRC is wrong")]
        assert broker.cleaner.uncleanable == 1
        assert broker.replicas.find("good", None, 0).log.cleaned_to > 0
        assert bad.cleaned_to == 0

    by_hand(story, "bad", "good")


def test_a_topic_that_goes_away_breaks_the_pass_off():
    async def story(c, broker, connection, media):
        log = broker.replicas.find("t", None, 0).log

        async def sync(path):
            if path.endswith(".log.cleaned"):
                c.controller.delete_topic("t")
                await until(lambda: log.closed)

        media.wait_for_sync = sync
        with capture_logs() as logs:
            assert not await broker.cleaner.clean_dirtiest()
        assert "cleaning_broken_off" in [one["event"] for one in logs]
        media.wait_for_sync = None
        # One of the same name is another topic.
        await with_topic(c)
        await fill(connection, "t")
        assert await broker.cleaner.clean_dirtiest()

    by_hand(story, "t")


def test_a_full_disk_is_waited_for():
    async def story(c, broker, connection, media):

        def refuse(operation, path, position, data):
            if path.endswith(".cleaned") and operation == "append":
                raise DiskFull(path, operation, "full")

        media.before_change = refuse
        with capture_logs() as logs:
            assert not await broker.cleaner.clean_dirtiest()
        assert "no_room_for_cleaning" in [one["event"] for one in logs]
        assert len(broker.store.online) == 2
        media.before_change = Media().before_change
        assert await broker.cleaner.clean_dirtiest()

    by_hand(story, "t", directories=2)


def test_a_disk_that_fails_takes_its_directory_offline():
    async def story(c, broker, connection, media):
        await broker.replicas.flush()
        media.faults.failing_syncs = 1
        assert not await broker.cleaner.clean_dirtiest()
        assert len(broker.store.online) == 1
        assert broker.replicas.find("t", None, 0).failed
        assert not await broker.cleaner.clean_dirtiest()

    by_hand(story, "t", directories=2)
