"""What is committed at once is not handed on at once if it is much."""

import asyncio
from types import SimpleNamespace

from raft.applier import Applier
from raft.listener import CommittedBatch
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
