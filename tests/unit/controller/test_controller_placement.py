"""Placement: the properties that striped placement promises."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller import placement
from controller.placement import UsableBroker
from wire.errors import ErrorCode, KafkaError

clusters = st.lists(
    st.tuples(st.sampled_from([None, "a", "b", "c"]), st.booleans()), min_size=1, max_size=9
).map(lambda rows: [UsableBroker(i, rack, fenced) for i, (rack, fenced) in enumerate(rows)])


def place(*args):
    return list(placement.place(*args))


@given(clusters, st.integers(1, 9), st.integers(1, 30), st.integers(0, 2**32))
def test_no_broker_twice_and_live_leaders(brokers, factor, partitions, seed):
    live = [b.id for b in brokers if not b.fenced]
    if factor > len(brokers) or not live:
        with pytest.raises(KafkaError) as refused:
            place(brokers, partitions, factor, random.Random(seed))
        assert refused.value.code is ErrorCode.invalid_replication_factor
        return
    placed = place(brokers, partitions, factor, random.Random(seed))
    assert len(placed) == partitions
    for replicas in placed:
        assert len(replicas) == factor == len(set(replicas))
        assert set(replicas) <= {b.id for b in brokers}
        assert replicas[0] in live


@given(clusters, st.integers(1, 5), st.integers(0, 2**32))
def test_as_many_racks_as_possible(brokers, factor, seed):
    live = [b for b in brokers if not b.fenced]
    if factor > len(brokers) or not live:
        return
    rack_of = {b.id: b.rack for b in brokers}
    racks = set(rack_of.values())
    for replicas in place(brokers, 10, factor, random.Random(seed)):
        assert len({rack_of[b] for b in replicas}) == min(factor, len(racks))


@given(clusters, st.integers(1, 5), st.integers(0, 2**32))
def test_a_fenced_broker_comes_after_the_live_ones_of_its_rack(brokers, factor, seed):
    live = {b.id for b in brokers if not b.fenced}
    if factor > len(brokers) or not live:
        return
    rack_of = {b.id: b.rack for b in brokers}
    for replicas in place(brokers, 10, factor, random.Random(seed)):
        for broker in replicas:
            if broker not in live:
                unused = [b for b in live if rack_of[b] == rack_of[broker] and b not in replicas]
                assert not unused


@given(st.integers(1, 8), st.integers(1, 8), st.integers(0, 2**32))
def test_leaders_are_balanced(count, rounds, seed):
    brokers = [UsableBroker(i, None, False) for i in range(count)]
    placed = place(brokers, count * rounds, 1, random.Random(seed))
    leaders = Counter(replicas[0] for replicas in placed)
    assert all(leaders[b.id] == rounds for b in brokers)


def test_racks_share_leaders_and_replicas():
    brokers = [UsableBroker(i, "abc"[i % 3], False) for i in range(6)]
    placed = place(brokers, 60, 3, random.Random(4))
    assert Counter(b for replicas in placed for b in replicas) == dict.fromkeys(range(6), 30)
    assert max(Counter(r[0] for r in placed).values()) <= 14


def test_the_seed_decides():
    brokers = [UsableBroker(i, None, False) for i in range(5)]
    once = place(brokers, 20, 3, random.Random(9))
    assert once == place(reversed(brokers), 20, 3, random.Random(9))


@pytest.mark.parametrize("factor", [0, -2, 4])
def test_refusals_say_what_is_allowed(factor):
    brokers = [UsableBroker(i, None, False) for i in range(3)]
    with pytest.raises(KafkaError, match=str(factor)):
        place(brokers, 1, factor, random.Random(1))
