"""Leader epochs against the rules written down as plainly as possible (KIP-101, KIP-279)."""

from hypothesis import given
from hypothesis import strategies as st

from storage.epochs import LeaderEpochs

LOGS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=12)


def test_known_answers():
    epochs = LeaderEpochs([(1, 0), (3, 10), (5, 20)])
    assert epochs.latest == 5
    assert epochs.end_offset_for(5, 30) == (5, 30)
    assert epochs.end_offset_for(4, 30) == (3, 20)
    assert epochs.end_offset_for(3, 30) == (3, 20)
    assert epochs.end_offset_for(2, 30) == (1, 10)
    assert epochs.end_offset_for(0, 30) == (0, 0)
    assert epochs.end_offset_for(6, 30) == (-1, -1)
    assert epochs.end_offset_for(-1, 30) == (-1, -1)
    assert LeaderEpochs().end_offset_for(0, 0) == (-1, -1)
    assert [epochs.epoch_at(offset) for offset in (0, 9, 10, 25)] == [1, 1, 3, 5]
    assert epochs.start_of(3) == 10
    assert epochs.start_of(4) is None


def test_assignments_drop_what_contradicts_them():
    epochs = LeaderEpochs([(1, 0), (3, 10), (5, 20)])
    epochs.assign(5, 25)
    assert epochs.entries() == [(1, 0), (3, 10), (5, 20)]
    assert not epochs.dirty
    epochs.assign(6, 20)
    assert epochs.entries() == [(1, 0), (3, 10), (6, 20)]
    assert epochs.dirty
    epochs.assign(3, 15)
    assert epochs.entries() == [(1, 0), (3, 15)]
    epochs.clear()
    assert epochs.entries() == []


def test_a_start_before_all_epochs_changes_nothing():
    epochs = LeaderEpochs([(3, 10)])
    epochs.truncate_from_start(5)
    epochs.truncate_from_start(10)
    assert epochs.entries() == [(3, 10)]
    assert not epochs.dirty


@given(LOGS, st.integers(0, 60), st.integers(0, 60))
def test_cache_equals_the_epochs_of_the_records(runs, low, high):
    """Runs of (epoch step, records): the cache and its cuts equal what the records say."""
    records: list[int] = []
    cache = LeaderEpochs()
    epoch = 0
    for step, count in runs:
        epoch += step
        cache.assign(epoch, len(records))
        records += [epoch] * count

    def check(first):
        for offset in range(first, len(records)):
            assert cache.epoch_at(offset) == records[offset]
        for asked in range(epoch + 2):
            wanted = [one for one in records[first:] if one <= asked]
            floor, end = cache.end_offset_for(asked, len(records))
            if not records[first:] or asked > records[-1]:
                assert (floor, end) == (-1, -1)
            elif wanted:
                assert (floor, end) == (wanted[-1], first + len(wanted))
            else:
                assert (floor, end) == (asked, first)

    check(0)
    high = min(high, len(records))
    cache.truncate_from_end(high)
    del records[high:]
    check(0)
    low = min(low, high)
    cache.truncate_from_start(low)
    if low < len(records):
        check(low)
