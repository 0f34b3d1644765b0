"""Reading from the closest in-sync replica (KIP-392)."""

import asyncio
import contextlib

import pytest
from broker_fakes import cluster, until
from test_broker_end_to_end import batch, produce, values_of
from test_broker_fetch_sessions import Client
from test_broker_replication import cut_off

from broker.config import RACK_AWARE
from broker.partition import PartitionCore
from broker.partition_events import Assigned, EligibleBrokers, FollowerFetched
from broker.replica_selection import closest_replica
from wire.apis import ErrorCode

RACKS = {1: "a", 2: "b", 3: "b", 4: "c"}


def leader(fetched, isr=(1, 2, 3, 4), log_end=10):
    """Broker 1 leads; `fetched` are (broker, fetch offset, log start, when)."""
    core = PartitionCore(1, lag_max_ms=1000, log_end=log_end)
    core.handle(EligibleBrokers(dict.fromkeys(RACKS, 1)), 0)
    core.handle(Assigned((1, 2, 3, 4), isr, 1, 0, 0, False), 0)
    for broker, offset, log_start, now_ms in fetched:
        core.handle(FollowerFetched(broker, 1, offset, log_start), now_ms)
    return core


@pytest.mark.parametrize(
    ("rack", "offset", "fetched", "closest"),
    [
        ("b", 5, [(2, 10, 0, 1), (3, 9, 0, 2)], 2),  # the longer log
        ("b", 5, [(2, 10, 0, 1), (3, 10, 0, 2)], 3),  # the later to catch up
        ("b", 5, [(2, 10, 0, 1), (3, 10, 0, 1)], 3),
        ("b", 10, [(2, 9, 0, 1)], None),  # it does not have that yet
        ("b", 5, [(2, 10, 6, 1)], None),  # nor that any more
        ("b", 5, [], None),  # nobody knows what it has
        ("a", 5, [(2, 10, 0, 1)], None),  # the leader's own rack
        ("c", 5, [(4, 10, 0, 1)], 4),
        ("d", 5, [(2, 10, 0, 1), (4, 10, 0, 1)], None),
    ],
)
def test_who_is_the_closest(rack, offset, fetched, closest):
    assert closest_replica(leader(fetched), rack, offset, RACKS.get) == closest


def test_who_is_not_in_sync_or_not_there_is_not_read_from():
    core = leader([(2, 10, 0, 1), (3, 10, 0, 1)], isr=(1, 2))
    assert closest_replica(core, "b", 5, RACKS.get) == 2
    assert closest_replica(core, "b", 5, {1: "a", 3: "b"}.get) is None


@contextlib.asynccontextmanager
async def racks(tmp_path, **properties):
    async with cluster(tmp_path, ()) as c:
        for broker in (1, 2, 3):
            await c.start_broker(
                broker,
                broker_rack=f"rack-{broker}",
                replica_selector_class=RACK_AWARE,
                **properties,
            )
        yield c


async def clients(c, version=13):
    ids = {"t": c.controller.create_topic("t", 1, (1, 2, 3))}
    await until(lambda: all(len(b.replicas) == 1 for b in c.brokers.values()))
    return [Client(await c.connect(broker), version, ids) for broker in (1, 2, 3)]


def replica_of(c, broker):
    return c.brokers[broker].replicas.find("t", None, 0)


PLACE = ("t", 0)


@pytest.mark.parametrize("version", [11, 13, 18])
def test_a_leader_sends_consumers_to_their_rack(tmp_path, version):
    async def main():
        async with racks(tmp_path) as c:
            at_leader, at_follower, _ = await clients(c, version)
            producer = await c.connect(1)
            await produce(producer, "t", 0, batch(b"1", b"2"))
            await until(lambda: replica_of(c, 1).core.remotes[2].log_end == 2)
            _, answers = await at_leader.fetch({PLACE: 0}, rack_id="rack-2", wait_ms=9000)
            assert answers[PLACE].preferred_read_replica == 2
            assert (answers[PLACE].records_size, answers[PLACE].high_watermark) == (0, 2)
            # In a session it is said again as long as the client asks.
            _, answers = await at_leader.fetch(rack_id="rack-2")
            assert answers[PLACE].preferred_read_replica == 2
            # The follower gives what is committed, and sends nobody anywhere.
            await until(lambda: replica_of(c, 2).core.high_watermark == 2)
            _, answers = await at_follower.fetch({PLACE: 0}, rack_id="rack-3")
            assert answers[PLACE].preferred_read_replica == -1
            assert values_of(answers[PLACE].records[0]) == [b"1", b"2"]
            for rack in ("rack-1", "", "elsewhere"):
                at_leader.epoch = 0
                _, answers = await at_leader.fetch({PLACE: 0}, rack_id=rack)
                assert answers[PLACE].preferred_read_replica == -1
                assert values_of(answers[PLACE].records[0]) == [b"1", b"2"]

    asyncio.run(main())


def test_a_consumer_waits_at_a_follower(tmp_path):
    """Not longer than records need to be committed, however long followers' fetches wait."""

    async def main():
        async with racks(tmp_path, replica_fetch_wait_max_ms=20_000) as c:
            _, *at_followers = await clients(c)
            producer = await c.connect(1)
            offset = 0
            for _ in range(5):
                waiting = [
                    asyncio.ensure_future(client.fetch({PLACE: offset}, wait_ms=20_000))
                    for client in at_followers
                ]
                await until(lambda: all(replica_of(c, b).consumers for b in (2, 3)))
                answer = await produce(producer, "t", 0, batch(b"%d" % offset, b"more"))
                assert answer.error_code is ErrorCode.none
                async with asyncio.timeout(5):
                    for task in waiting:
                        _, answers = await task
                        found = values_of(answers[PLACE].records[0])
                        assert found == [b"%d" % offset, b"more"]
                offset += 2

    asyncio.run(main())


def test_what_a_follower_has_not_is_no_end_of_the_log(tmp_path):
    async def main():
        async with racks(tmp_path, replica_lag_time_max_ms=60_000) as c:
            _, at_follower, _ = await clients(c)
            producer = await c.connect(1)
            await produce(producer, "t", 0, batch(b"1"))
            await until(lambda: replica_of(c, 2).core.high_watermark == 1)
            heal = cut_off(c.brokers[3])  # so that nothing more is committed
            answer = await produce(producer, "t", 0, batch(b"2"), acks=1)
            assert answer.error_code is ErrorCode.none
            await until(lambda: replica_of(c, 2).log.end_offset == 2)
            # It has the offset, but does not know it to be committed.
            alone = {"session_epoch": -1}
            _, answers = await at_follower.fetch({PLACE: 1}, **alone)
            assert answers[PLACE].error_code == ErrorCode.none
            assert (answers[PLACE].records_size, answers[PLACE].high_watermark) == (0, 1)
            _, answers = await at_follower.fetch({PLACE: 2}, **alone)
            assert answers[PLACE].error_code == ErrorCode.none
            # What lies beyond its log its leader may have: the consumer asks there then.
            _, answers = await at_follower.fetch({PLACE: 3}, **alone)
            assert answers[PLACE].error_code == ErrorCode.offset_out_of_range
            heal()
            _, answers = await at_follower.fetch({PLACE: 1}, wait_ms=20_000, **alone)
            assert values_of(answers[PLACE].records[0]) == [b"2"]

    asyncio.run(main())


def test_only_leaders_serve_followers_and_old_consumers(tmp_path):
    async def main():
        async with racks(tmp_path) as c:
            await clients(c)
            for version, asked in ((10, {}), (13, {"replica_id": 3, "replica_epoch": -1})):
                client = Client(
                    await c.connect(2), version, {"t": c.controller.image.topic("t").id}
                )
                _, answers = await client.fetch({PLACE: 0}, **asked)
                assert answers[PLACE].error_code == ErrorCode.not_leader_or_follower

    asyncio.run(main())


def test_followers_check_epochs_too(tmp_path):
    async def main():
        async with racks(tmp_path) as c:
            _, at_follower, _ = await clients(c)
            c.controller.set_leader("t", 0, 3)
            await until(lambda: replica_of(c, 2).core.leader_epoch == 1)
            for epoch, expected in (
                (0, ErrorCode.fenced_leader_epoch),
                (1, ErrorCode.none),
                (2, ErrorCode.unknown_leader_epoch),
            ):
                _, answers = await at_follower.fetch(
                    {PLACE: 0}, session_epoch=-1, leader_epoch=epoch
                )
                assert answers[PLACE].error_code == expected

    asyncio.run(main())


def test_by_default_consumers_stay_at_the_leader(tmp_path):
    async def main():
        async with cluster(tmp_path, (1, 2, 3), broker_rack="r") as c:
            at_leader, at_follower, _ = await clients(c)
            producer = await c.connect(1)
            await produce(producer, "t", 0, batch(b"1"))
            _, answers = await at_leader.fetch({PLACE: 0}, rack_id="r")
            assert answers[PLACE].preferred_read_replica == -1
            assert values_of(answers[PLACE].records[0]) == [b"1"]
            # Who comes to a follower all the same is served.
            _, answers = await at_follower.fetch({PLACE: 0}, wait_ms=9000)
            assert values_of(answers[PLACE].records[0]) == [b"1"]

    asyncio.run(main())
