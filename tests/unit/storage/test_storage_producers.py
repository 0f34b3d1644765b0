"""The idempotent producer's rules, sequence by sequence (KIP-98)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import producer_files
from storage.producers import SEQUENCE_MASK, Duplicate, ProducerState
from wire.batch import BatchHeader, build_batch, read_header
from wire.errors import ErrorCode, KafkaError
from world.memory import memory_env


def header(
    sequence, count=1, *, pid=9, epoch=0, offset=0, time=100, transactional=False, control=False
) -> BatchHeader:
    data = build_batch(
        [(time, b"", b"", ())] * count,
        base_offset=offset,
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
        control=control,
    )
    return read_header(data)


def refused(state, batch, **kwargs) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        state.check(batch, **kwargs)
    return caught.value.code


def test_an_unknown_producer_may_begin_anywhere():
    state = ProducerState()
    assert state.check(header(0)) is None
    assert state.check(header(77)) is None


def test_five_batches_are_remembered():
    state = ProducerState()
    for number in range(6):
        one = header(2 * number, 2, offset=100 + 2 * number, time=number)
        assert state.check(one) is None
        state.replay(one)
    assert state.check(header(10, 2)) == Duplicate(110, 111, 5)
    assert state.check(header(2, 2)) == Duplicate(102, 103, 1)
    assert refused(state, header(0, 2)) == ErrorCode.out_of_order_sequence_number
    assert refused(state, header(10, 1)) == ErrorCode.out_of_order_sequence_number
    assert refused(state, header(13, 1)) == ErrorCode.out_of_order_sequence_number
    assert state.check(header(12, 1)) is None
    assert state.end_offset == 112


def test_epochs_fence_and_begin_again_at_zero():
    state = ProducerState()
    state.replay(header(0, 3, epoch=4))
    assert refused(state, header(3, epoch=3)) == ErrorCode.invalid_producer_epoch
    assert refused(state, header(3, epoch=5)) == ErrorCode.out_of_order_sequence_number
    assert state.check(header(0, epoch=5)) is None
    state.replay(header(0, epoch=5, offset=3))
    assert len(state.get(9).batches) == 1
    assert refused(state, header(3, epoch=4)) == ErrorCode.invalid_producer_epoch


def test_sequences_wrap_to_zero():
    state = ProducerState()
    state.replay(header(SEQUENCE_MASK - 1, 3))
    assert state.get(9).last_sequence == 0
    assert state.check(header(1)) is None
    assert refused(state, header(0)) == ErrorCode.out_of_order_sequence_number
    assert state.check(header(SEQUENCE_MASK - 1, 3)) == Duplicate(0, 2, 100)
    state = ProducerState()
    state.replay(header(SEQUENCE_MASK, 1))
    assert state.check(header(0)) is None


def test_staged_batches_count_and_leave_no_trace_if_dropped():
    state = ProducerState()
    staged = {}
    first, second = header(0, 2), header(2, 1, offset=2)
    assert state.check(first, staged) is None
    state.stage(first, staged)
    assert state.check(second, staged) is None
    assert state.check(header(0, 2), staged) == Duplicate(0, 1, 100)
    assert len(state) == 0
    state.stage(second, staged)
    state.commit(staged, 3)
    assert state.get(9).last_sequence == 2


def test_transactions_are_followed():
    state = ProducerState()
    state.replay(header(0, 2, transactional=True, offset=10))
    state.replay(header(0, 1, pid=8, transactional=True, offset=12))
    assert state.first_unstable_offset == 10
    assert refused(state, header(2)) == ErrorCode.invalid_txn_state
    state.replay(header(-1, 1, transactional=True, control=True, offset=13))
    assert state.first_unstable_offset == 12
    assert state.check(header(2, transactional=True)) is None
    assert not state.truncate(13)  # the marker goes: only a replay can tell


def test_expiry_spares_open_transactions():
    state = ProducerState()
    state.replay(header(0, pid=1, time=100))
    state.replay(header(0, pid=2, time=150))
    state.replay(header(0, pid=3, time=100, transactional=True))
    assert state.expire(wall_ms=200, expiration_ms=100) == 1
    assert [producer.producer_id for producer in state] == [2, 3]


BATCHES = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4), st.booleans()), max_size=25)


@given(BATCHES, st.integers(0, 100), st.integers(0, 100))
def test_snapshot_replay_and_truncation_agree(steps, snapshot_at, cut):
    """A state loaded from a snapshot and replayed, or truncated, accepts the same next batch."""
    batches, sequences, epochs, offset = [], {}, {}, 0
    for pid, count, bump in steps:
        if bump and pid in sequences:
            epochs[pid] = epochs.get(pid, 0) + 1
            sequences[pid] = 0
        first = sequences.get(pid, 0)
        one = header(first, count, pid=pid, epoch=epochs.get(pid, 0), offset=offset, time=offset)
        sequences[pid] = first + count
        offset += count
        batches.append(one)

    def replayed(upto, state=None):
        state = state or ProducerState()
        for one in batches:
            if state.end_offset <= one.base_offset and one.next_offset <= upto:
                state.replay(one)
        return state

    def summary(state):
        return sorted((p.producer_id, p.epoch, p.last_sequence, p.last_offset) for p in state)

    disk = memory_env().disk
    disk.make_dirs("/p")
    boundary = max((b.next_offset for b in batches if b.next_offset <= snapshot_at), default=0)
    before = replayed(boundary)
    before.end_offset = boundary
    producer_files.write_snapshot(disk, "/p", before)
    loaded = ProducerState()
    assert producer_files.load_newest(disk, "/p", 1000, loaded, 0) == []
    assert loaded.end_offset == boundary
    assert summary(loaded) == summary(before)
    full = replayed(offset, loaded)
    assert summary(full) == summary(replayed(offset))

    boundary = max((b.next_offset for b in batches if b.next_offset <= cut), default=0)
    if full.truncate(boundary):
        assert summary(full) == summary(replayed(boundary))
        assert full.end_offset == boundary


def test_a_damaged_snapshot_gives_way_to_an_older_one():
    disk = memory_env().disk
    disk.make_dirs("/p")
    state = ProducerState()
    for number in range(3):
        state.replay(header(number, offset=number))
        producer_files.write_snapshot(disk, "/p", state)
    disk.media.flip(f"/p/{3:020d}.snapshot", 20)
    loaded = ProducerState()
    assert producer_files.load_newest(disk, "/p", 10, loaded, 0) == [f"/p/{3:020d}.snapshot"]
    assert loaded.end_offset == 2
    assert producer_files.snapshot_offsets(disk, "/p") == [1, 2]
    producer_files.load_newest(disk, "/p", 10, loaded, 5)
    assert (len(loaded), loaded.end_offset) == (0, 5)
