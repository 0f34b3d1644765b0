"""What brokers tell the controller: one request in flight, the rest gathered meanwhile."""

import asyncio
from types import SimpleNamespace
from uuid import UUID

from broker_fakes import until

from broker.controller_queue import ControllerQueue, by_topic
from net.controller_channel import ControllerUnreachable
from wire.apis import ApiKey, ErrorCode

A, B = UUID(int=1), UUID(int=2)


class Channel:
    """Takes requests; `outcome` says how the next one ends."""

    def __init__(self):
        self.requests = []
        self.outcome = asyncio.Queue()

    async def request(self, api_key, build, timeout_ms, max_version=None):
        assert api_key is ApiKey.ALTER_PARTITION
        self.requests.append(build(3, None))
        outcome = await self.outcome.get()
        if isinstance(outcome, Exception):
            raise outcome
        return SimpleNamespace(error_code=outcome)


def story(steps, *, most=10):
    """Runs `steps(queue, channel)`; (what was requested, what was answered, the queue)."""

    async def main():
        channel, answered, fatal = Channel(), [], []
        queue = ControllerQueue(
            channel,
            ApiKey.ALTER_PARTITION,
            lambda version, module, items: dict(items),
            lambda items, response: answered.append(dict(items)),
            fatal.append,
            most=most,
            retry_ms=1,
        )
        await steps(queue, channel)
        await queue.close()
        assert fatal == []
        return channel.requests, answered, queue

    return asyncio.run(main())


def test_what_comes_while_one_is_in_flight_leaves_together_after_it():
    async def steps(queue, channel):
        queue.submit(A, 0, "one")
        await until(lambda: len(channel.requests) == 1)
        queue.submit(A, 1, "two")
        queue.submit(B, 0, "three")
        queue.submit(A, 1, "two again")
        assert len(channel.requests) == 1
        channel.outcome.put_nowait(ErrorCode.none)
        channel.outcome.put_nowait(ErrorCode.none)
        await until(lambda: len(channel.requests) == 2)

    requests, answered, queue = story(steps)
    assert requests == [{(A, 0): "one"}, {(A, 1): "two again", (B, 0): "three"}]
    assert answered[0] == requests[0]
    assert (queue.sent, queue.failed) == (2, 0)


def test_so_many_at_once():
    async def steps(queue, channel):
        for index in range(5):
            queue.submit(A, index, index)
            channel.outcome.put_nowait(ErrorCode.none)
        await until(lambda: len(channel.requests) == 3)

    requests, _, _ = story(steps, most=2)
    assert [len(request) for request in requests] == [2, 2, 1]


def test_what_came_to_nothing_is_sent_again_unless_there_is_something_newer():
    async def steps(queue, channel):
        queue.submit(A, 0, "old")
        queue.submit(A, 1, "kept")
        await until(lambda: channel.requests)
        queue.submit(A, 0, "new")
        channel.outcome.put_nowait(ControllerUnreachable("gone"))
        channel.outcome.put_nowait(ErrorCode.not_controller)
        channel.outcome.put_nowait(ErrorCode.none)
        await until(lambda: len(channel.requests) == 3)
        await until(lambda: queue._task is None)

    requests, answered, queue = story(steps)
    assert requests[1:] == [{(A, 0): "new", (A, 1): "kept"}] * 2
    assert answered == requests[2:]
    assert queue.failed == 2


def test_by_topic():
    assert by_topic({(A, 0): "x", (B, 1): "y", (A, 2): "z"}) == {
        A: [(0, "x"), (2, "z")],
        B: [(1, "y")],
    }
