"""The last stable offset: up to where readers of committed records may read."""

import asyncio

from broker_fakes import cluster, until
from test_broker_end_to_end import values_of
from test_broker_fetch_sessions import Client
from test_broker_replication import cut_off, replica_of

from broker.partition_events import Appended
from wire.batch import build_batch
from wire.control import encode_end_txn_marker

PLACE = ("t", 0)
READ_COMMITTED = 1


def append(replica, records, producer=7, **fields):
    """As a transaction coordinator would."""
    data = build_batch(
        records, producer_id=producer, producer_epoch=0, transactional=True, **fields
    )
    info = replica.log.append_as_leader([bytearray(data)], replica.core.leader_epoch)
    replica.tell(Appended(info.last_offset + 1))


def data(replica, value, sequence, producer=7):
    append(replica, [(1, None, value, ())], producer, base_sequence=sequence)


def end(replica, commit, producer=7):
    key, value = encode_end_txn_marker(commit, 0)
    append(replica, [(1, key, value, ())], producer, control=True)


async def started(c):
    ids = {"t": c.controller.create_topic("t", 1, (1, 2))}
    await until(lambda: all(len(b.replicas) == 1 for b in c.brokers.values()))
    clients = [Client(await c.connect(broker), 13, ids) for broker in (1, 2)]

    async def read(client, isolation):
        _, answers = await client.fetch({PLACE: 0}, session_epoch=-1, isolation_level=isolation)
        found = answers[PLACE]
        return values_of(b"".join(map(bytes, found.records))), found

    return clients, read


def test_a_transaction_is_told_when_its_end_is_committed(tmp_path):
    async def main():
        async with cluster(tmp_path, (1, 2), replica_lag_time_max_ms=60_000) as c:
            clients, read = await started(c)
            leader, follower = replica_of(c, 1), replica_of(c, 2)
            data(leader, b"a", 0)
            data(leader, b"b", 0, producer=8)
            await until(lambda: leader.core.high_watermark == 2)
            heal = cut_off(c.brokers[2])
            await until(lambda: not leader.followers)
            end(leader, commit=True)
            end(leader, commit=False, producer=8)
            assert leader.core.high_watermark == 2
            assert leader.last_stable_offset() == 0, "the marker may be lost yet"
            values, found = await read(clients[0], READ_COMMITTED)
            assert (values, found.last_stable_offset, found.aborted) == ([], 0, [])
            values, found = await read(clients[0], 0)
            assert (values, found.last_stable_offset, found.aborted) == ([b"a", b"b"], 0, None)
            heal()
            await until(lambda: follower.core.high_watermark == 4)
            for client in clients:
                values, found = await read(client, READ_COMMITTED)
                assert values[:2] == [b"a", b"b"]
                assert (found.last_stable_offset, found.aborted) == (4, [(8, 1)])

    asyncio.run(main())


def test_an_open_transaction_holds_up_what_follows(tmp_path):
    async def main():
        async with cluster(tmp_path, (1, 2)) as c:
            clients, read = await started(c)
            leader, follower = replica_of(c, 1), replica_of(c, 2)
            data(leader, b"a", 0)
            end(leader, commit=True)
            data(leader, b"open", 0, producer=8)
            data(leader, b"b", 1)
            end(leader, commit=True)
            await until(lambda: follower.core.high_watermark == 5)
            for client in clients:
                values, found = await read(client, READ_COMMITTED)
                assert values[:1] == [b"a"]
                assert b"open" not in values
                assert (found.high_watermark, found.last_stable_offset) == (5, 2)
            end(leader, commit=False, producer=8)
            await until(lambda: follower.core.high_watermark == 6)
            for client in clients:
                _, found = await read(client, READ_COMMITTED)
                assert (found.last_stable_offset, found.aborted) == (6, [(8, 2)])

    asyncio.run(main())
