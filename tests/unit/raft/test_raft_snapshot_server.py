"""Slices of snapshots, from memory and from the disk."""

import asyncio
import dataclasses

import pytest

from raft import snapshot_writer
from raft.messages import FetchSnapshotResponse
from raft.snapshot_server import SnapshotServer
from raft.snapshots import SnapshotStore, file_name
from raft.voters import OffsetAndEpoch
from wire.errors import ErrorCode
from world.memory import memory_env

DIR = "/data/__cluster_metadata-0"
SNAPSHOT = OffsetAndEpoch(50, 4)


async def given(env, *, cold, position=0, failing_reads=0):
    """What a server answers about the one snapshot there is, and what it calls a failure."""
    env.disk.make_dirs(DIR)
    store = SnapshotStore(env, DIR)
    await store.load()
    await snapshot_writer.write(env, store, SNAPSHOT, 7, [[b"x" * 100] * 5])
    failures = []
    server = SnapshotServer(store, lambda: None, failures.append)
    answered = asyncio.get_running_loop().create_future()
    env.disk.media.faults.cold = cold
    response = FetchSnapshotResponse(ErrorCode.none, 1, 4, SNAPSHOT, position=position)
    server.serve(response, 200, lambda *answer: answered.set_result(answer))
    env.disk.media.faults.failing_reads = failing_reads
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await server.close()
    return (answered.result() if answered.done() else None), failures


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("position", [0, 64, 450])
def test_a_slice_is_bytes_whether_they_are_in_memory_or_not(cold, position):
    env = memory_env()
    (response, found), failures = asyncio.run(given(env, cold=cold, position=position))
    whole = env.disk.read_bytes(f"{DIR}/{file_name(SNAPSHOT)}")
    assert found.data == whole[position : position + 200]
    assert (response.size, response.length) == (len(whole), len(found.data))
    assert failures == []


def test_a_position_past_the_end_is_refused():
    (response, found), _ = asyncio.run(given(memory_env(), cold=True, position=10_000))
    assert (response.error, found) == (ErrorCode.position_out_of_range, None)


def test_a_disk_that_cannot_be_read_is_told():
    answer, failures = asyncio.run(given(memory_env(), cold=True, position=64, failing_reads=1))
    assert answer is None
    assert "read" in str(failures[0])


def test_a_snapshot_dropped_while_it_is_read_is_no_failure():
    env = memory_env()

    async def drop_then_read(function, *args):
        if function.__name__ == "pread":
            store.drop_before(OffsetAndEpoch(51, 4))
        return function(*args)

    env = dataclasses.replace(env, run_blocking=drop_then_read)
    env.disk.make_dirs(DIR)
    store = SnapshotStore(env, DIR)

    async def main():
        await snapshot_writer.write(env, store, SNAPSHOT, 7, [[b"x" * 100] * 5])
        failures, answers = [], []
        server = SnapshotServer(store, lambda: None, failures.append)
        env.disk.media.faults.cold = True
        response = FetchSnapshotResponse(ErrorCode.none, 1, 4, SNAPSHOT, position=64)
        server.serve(response, 200, lambda *answer: answers.append(answer))
        await server.close()
        return failures, answers

    failures, ((response, found),) = asyncio.run(main())
    assert (failures, found) == ([], None)
    assert response.error == ErrorCode.snapshot_not_found
