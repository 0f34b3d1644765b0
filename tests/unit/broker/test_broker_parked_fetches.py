"""Fetches that wait at the broker: for how long, and who lets go of them."""

import asyncio

from broker_fakes import cluster, until
from test_broker_end_to_end import batch, fetch, produce

from broker import api_fetch
from broker.waits import ParkedFetch
from net.connection import MAX_PENDING

LONG_MS = 2**31 - 1


def parked(c, topic="t"):
    replica = c.brokers[1].replicas.find(topic, None, 0)
    return [*replica.consumers, *replica.followers]


def test_a_fetch_is_forgotten_with_its_connection(tmp_path):
    async def main():
        async with cluster(tmp_path) as c:
            c.controller.create_topic("t")
            await until(lambda: len(c.brokers[1].replicas) == 1)
            connection = await c.connect(1)
            waiting = [
                asyncio.ensure_future(fetch(connection, "t", 0, 0, wait_ms=LONG_MS))
                for _ in range(3)
            ]
            await until(lambda: len(parked(c)) == 3)
            connection.close()
            await until(lambda: parked(c) == [])
            await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(main())


def test_those_who_are_gone_unseen_are_forgotten_in_time(tmp_path, monkeypatch):
    """With a thousand requests waiting a connection is not read any more, not even its end."""
    waits_ms = []

    class Noted(ParkedFetch):
        def __init__(self, queue, short, wait_ms, look, **kwargs):
            waits_ms.append(wait_ms)
            super().__init__(queue, short, wait_ms, look, **kwargs)

    monkeypatch.setattr(api_fetch, "ParkedFetch", Noted)

    async def main():
        async with cluster(tmp_path) as c:
            c.controller.create_topic("t")
            await until(lambda: len(c.brokers[1].replicas) == 1)
            connection = await c.connect(1)
            waiting = [
                asyncio.ensure_future(fetch(connection, "t", 0, 0, wait_ms=LONG_MS))
                for _ in range(MAX_PENDING)
            ]
            await until(lambda: len(parked(c)) == MAX_PENDING, timeout_s=60)
            assert waits_ms == [api_fetch._LONGEST_WAIT_MS] * MAX_PENDING
            connection.close()
            await asyncio.gather(*waiting, return_exceptions=True)
            for one in parked(c):
                one._expire()  # as its timer does when that time is over
            await until(lambda: parked(c) == [], timeout_s=60)

    asyncio.run(main())


def test_a_full_answer_is_due_whatever_minimum_was_asked_for(tmp_path):
    async def main():
        async with cluster(tmp_path) as c:
            c.controller.create_topic("t")
            await until(lambda: len(c.brokers[1].replicas) == 1)
            config = c.brokers[1].config
            object.__setattr__(config, "fetch_max_bytes", 300)
            connection = await c.connect(1)
            asked = {"wait_ms": LONG_MS, "min_bytes": LONG_MS}
            waiting = asyncio.ensure_future(fetch(connection, "t", 0, 0, **asked))
            await until(lambda: parked(c))
            other = await c.connect(1)
            await produce(other, "t", 0, batch(b"a" * 100))
            await asyncio.sleep(0.05)
            assert not waiting.done(), "less than a full answer is waited for"
            await produce(other, "t", 0, batch(b"b" * 300))
            async with asyncio.timeout(5):
                assert (await waiting).records
                assert (await fetch(connection, "t", 0, 0, **asked)).records

    asyncio.run(main())
