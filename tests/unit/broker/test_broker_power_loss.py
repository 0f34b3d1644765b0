"""acks=all under min.insync.replicas=2: no single broker's loss of power loses a record."""

import asyncio
import random

import pytest
from broker_fakes import cluster, until
from test_broker_end_to_end import batch, produce
from test_broker_replication import content, replica_of

from net.errors import NetworkError
from wire.apis import ErrorCode
from world.memory import Media


async def keep_producing(c, acked, stop):
    number = 0
    while not stop.is_set():
        leader = c.controller.image.partition("t", 0).leader
        if leader not in c.servers:
            await asyncio.sleep(0.01)
            continue
        try:
            connection = await c.connect(leader)
            while not stop.is_set():
                number += 1
                answer = await produce(connection, "t", 0, batch(b"%d" % number), timeout_ms=2000)
                if answer.error_code is not ErrorCode.none:
                    await asyncio.sleep(0.01)
                    break
                acked[number] = answer.base_offset
        except NetworkError:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("seed", range(2))
def test_acknowledged_records_survive(tmp_path, seed):
    chance = random.Random(seed)

    async def main():
        async with cluster("/memory", ()) as c:
            for broker_id in (1, 2, 3):
                c.media[broker_id] = Media()
                await c.start_broker(broker_id)
            c.controller.create_topic("t", 1, (1, 2, 3), {"min.insync.replicas": "2"})
            await until(lambda: all(len(b.replicas) == 1 for b in c.brokers.values()))
            acked, stop = {}, asyncio.Event()
            producer = asyncio.create_task(keep_producing(c, acked, stop))
            for round_ in range(5):
                before = len(acked)
                await until(lambda n=before: len(acked) > n + 20)
                leader = c.controller.image.partition("t", 0).leader
                victim = leader if round_ % 2 == 0 else chance.choice([1, 2, 3])
                if chance.random() < 0.3:
                    await c.brokers[victim].replicas.flush()
                await c.lose_power(victim, chance)
                c.controller.fence(victim)
                if chance.random() < 0.5:
                    before = len(acked)
                    await until(lambda n=before: len(acked) > n + 5)
                await c.start_broker(victim)
                await until(lambda: len(c.controller.image.partition("t", 0).isr) == 3)
            stop.set()
            await producer
            leader = c.controller.image.partition("t", 0).leader
            end = replica_of(c, leader).log.end_offset
            await until(lambda: all(replica_of(c, b).log.end_offset == end for b in (1, 2, 3)))
            kept = content(replica_of(c, leader))
            for number, offset in acked.items():
                assert kept[offset] == b"%d" % number
            assert len(acked) > 100
            for broker_id in (1, 2, 3):
                assert content(replica_of(c, broker_id)) == kept

    asyncio.run(main())
