"""What the cleaner keeps of transactions."""

import pytest
from cleaning_helpers import append, batches_of, clean_all, one_pass, opened, pairs, seen
from storage_helpers import run

from wire.batch import build_batch
from wire.control import encode_end_txn_marker
from wire.errors import DamagedFile
from wire.index_files import AbortedTxn, decode_txn_entries
from world.memory import memory_env


def marker(log, producer, commit):
    key, value = encode_end_txn_marker(commit, 0)
    data = build_batch(
        [(1000, key, value, ())],
        producer_id=producer,
        producer_epoch=0,
        transactional=True,
        control=True,
    )
    return log.append_as_leader([bytearray(data)], 1).base_offset


def transactional(log, producer, sequence, *given):
    return append(
        log,
        *given,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )


def kinds(log):
    return [
        (h.base_offset, "marker" if h.is_control else "data", h.count) for h, _ in batches_of(log)
    ]


def test_aborted_data_goes_and_replaces_nothing():
    async def main():
        env = memory_env(1)
        log = await opened(env)
        append(log, ("a", "committed"))
        transactional(log, 7, 0, ("a", "aborted"), ("b", "aborted"))
        marker(log, 7, commit=False)
        transactional(log, 7, 2, ("c", "committed"))
        marker(log, 7, commit=True)
        append(log, ("d", "plain"))
        log.roll()
        await one_pass(log)
        assert pairs(log) == [("a", "committed"), ("c", "committed"), ("d", "plain")]
        # The abort marker has data no more from the next pass on, the commit marker has.
        assert kinds(log) == [
            (0, "data", 1),
            (3, "marker", 1),
            (4, "data", 1),
            (5, "marker", 1),
            (6, "data", 1),
        ]
        path = "/p/00000000000000000000.txnindex"
        assert decode_txn_entries(env.disk.read_bytes(path), path) == [AbortedTxn(7, 1, 3, 4)]

        append(log, ("e", "plain"))
        await clean_all(log)
        assert batches_of(log)[1][0].has_delete_horizon
        assert decode_txn_entries(env.disk.read_bytes(path), path) == []
        env.clock.advance(1_000)
        append(log, ("f", "plain"))
        await clean_all(log)
        assert (3, "marker", 1) not in kinds(log)
        assert (5, "marker", 1) in kinds(log)

    run(main())


def test_a_commit_marker_goes_after_its_data():
    async def main():
        env = memory_env(1)
        log = await opened(env)
        transactional(log, 7, 0, ("a", "1"))
        marker(log, 7, commit=True)
        transactional(log, 7, 1, ("b", "1"))
        marker(log, 7, commit=True)
        append(log, ("a", "2"))
        append(log, ("z", "2"))
        await clean_all(log)
        assert kinds(log)[0] == (1, "marker", 1)
        assert not batches_of(log)[0][0].has_delete_horizon, "this pass met its data"
        append(log, ("y", "2"))
        await clean_all(log)
        assert batches_of(log)[0][0].has_delete_horizon
        env.clock.advance(1_000)
        append(log, ("x", "2"))
        await clean_all(log)
        assert kinds(log)[0] == (2, "data", 1)
        assert log.producers.get(7).last_sequence == 1

    run(main())


def test_an_abort_that_no_index_knows_is_not_guessed_at():
    async def main():
        log = await opened()
        transactional(log, 7, 0, ("a", "aborted"))
        marker(log, 7, commit=False)
        log.roll()
        log.env.disk.remove("/p/00000000000000000000.txnindex")
        before = seen(log)
        with pytest.raises(DamagedFile, match=r"producer 7 that is in no \.txnindex"):
            await one_pass(log)
        assert seen(log) == before

    run(main())
