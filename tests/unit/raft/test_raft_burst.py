"""Appends of one turn of the loop: one batch, in order, atomic each, none over the limit."""

import asyncio

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from raft.burst import MAX_BATCH_BYTES, Burst
from wire.batch import build_batch
from wire.errors import ErrorCode, KafkaError


def collected(work):
    """What a Burst writes while `work(burst)` and one turn of the loop run."""
    written = []

    async def main():
        burst = Burst(lambda values, epoch: written.append((values, epoch)))
        await work(burst)
        await asyncio.sleep(0)
        assert len(burst) == 0

    asyncio.run(main())
    return written


def test_appends_of_one_turn_are_one_batch():
    async def work(burst):
        burst.add([b"a"], 3)
        burst.add([b"b", b"c"], 3)
        assert len(burst) == 3
        await asyncio.sleep(0)
        burst.add([b"d"], 3)

    assert collected(work) == [([b"a", b"b", b"c"], 3), ([b"d"], 3)]


def test_what_was_ended_early_is_not_written_again():
    async def work(burst):
        burst.add([b"a"], 1)
        burst.end()
        burst.end()
        burst.add([b"b"], 1)

    assert collected(work) == [([b"a"], 1), ([b"b"], 1)]


def test_epochs_do_not_share_a_batch():
    async def work(burst):
        burst.add([b"a"], 1)
        burst.add([b"b"], 2)

    assert collected(work) == [([b"a"], 1), ([b"b"], 2)]


def test_an_append_that_fits_no_batch_is_refused_and_nothing_else_is_lost():
    async def work(burst):
        burst.add([b"a"], 1)
        with pytest.raises(KafkaError) as refused:
            burst.add([bytes(MAX_BATCH_BYTES)], 1)
        assert refused.value.code is ErrorCode.record_list_too_large
        burst.add([b"b"], 1)

    assert collected(work) == [([b"a", b"b"], 1)]


@examples(30)
@given(
    st.lists(st.lists(st.sampled_from([1, 60_000, 900_000]), min_size=1, max_size=4), max_size=30)
)
def test_no_batch_is_larger_than_the_limit_and_no_append_is_torn(sizes):
    appends = [[bytes([index % 256]) * size for size in some] for index, some in enumerate(sizes)]

    async def work(burst):
        for values in appends:
            burst.add(values, 1)

    written = [values for values, _ in collected(work)]
    assert [value for values in written for value in values] == [
        value for values in appends for value in values
    ]
    ends, total = [], 0
    for values in written:
        total += len(values)
        ends.append(total)
        assert len(build_batch([(0, None, value, ()) for value in values])) <= MAX_BATCH_BYTES
    borders, total = [0], 0
    for values in appends:
        total += len(values)
        borders.append(total)
    assert all(end in borders for end in ends)
