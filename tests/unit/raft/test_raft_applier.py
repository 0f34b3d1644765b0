"""What is committed at once is not handed on at once if it is much."""

import asyncio
from types import SimpleNamespace

import pytest

from raft.applier import Applier
from raft.listener import CommittedBatch
from storage.reading import Slice
from wire.batch import build_batch
from wire.errors import FatalError
from wire.exits import EXIT_LOG_DAMAGED
from world.memory import memory_env


def batch(base_offset: int, records: int) -> CommittedBatch:
    return CommittedBatch(base_offset, base_offset + records - 1, 1, 0, [b""] * records, [], 9)


def test_own_batches_that_are_committed_together_leave_turns_to_others():
    applied, turns, failures = [], [], []

    async def main():
        listener = SimpleNamespace(on_batch=lambda batch: applied.append(len(batch.values)))
        log = SimpleNamespace(env=memory_env())
        applier = Applier(log, listener, failures.append)
        for number in range(10):
            applier.remember(batch(400 * number, 400))
        applier.advance(4_000)
        while applier.applied < 4_000 and not failures:
            turns.append(sum(applied))
            await asyncio.sleep(0)
        await applier.close()

    asyncio.run(main())
    assert (sum(applied), failures) == (4_000, [])
    steps = [later - before for before, later in zip([0, *turns], [*turns, 4_000], strict=True)]
    assert max(steps) <= 1_024


def written(number):
    return build_batch([(0, None, b"%d" % number, ())], base_offset=number, leader_epoch=1)


@pytest.mark.parametrize("cold", [False, True], ids=["at hand", "to be read from disk"])
@pytest.mark.parametrize(
    ("found", "said"),
    [
        (bytes(len(written(1))), "batch of magic 0"),
        (b"", "0 bytes without the batch that was written there"),
        (written(7), "without the batch that was written there"),
    ],
    ids=["zeros", "cut", "another"],
)
def test_a_log_that_is_not_what_was_written_to_it_stops_the_node(cold, found, said):
    applied, failures = [], []

    async def main():
        env = memory_env()
        env.disk.media.faults.cold = cold
        file = env.disk.open("/log", create=True)
        first = written(0)
        file.append([first, found])

        def read(offset, max_bytes, upto):
            if offset == 0:
                return Slice(file, 0, len(first), 0, 1)
            return Slice(file, len(first), len(written(1)), 1, 2)

        log = SimpleNamespace(env=env, directory="/data", log=SimpleNamespace(read=read))
        listener = SimpleNamespace(on_batch=lambda batch: applied.append(batch.values))
        applier = Applier(log, listener, failures.append)
        applier.advance(2)
        for _ in range(50):
            await asyncio.sleep(0)
        await applier.close()

    asyncio.run(main())
    assert applied == [[b"0"]]
    [failure] = failures
    assert isinstance(failure, FatalError)
    assert failure.exit_code == EXIT_LOG_DAMAGED
    assert failure.reason.startswith("the metadata log is damaged: /data, offset 1: ")
    assert said in failure.reason
