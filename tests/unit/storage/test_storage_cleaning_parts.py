"""The parts of the cleaner that touch no file."""

from itertools import accumulate

import pytest
from cleaning_helpers import records_batch
from hypothesis import given
from hypothesis import strategies as st

from storage.cleaning.groups import Measure, group_segments
from storage.cleaning.key_map import KeyMap
from storage.cleaning.throttle import Throttle
from wire.batch import (
    build_batch,
    crc_ok,
    decode_records,
    read_header,
    record_bytes,
    with_records,
)
from wire.errors import DecodeError
from wire.records import locate_records, with_timestamp_delta


@given(
    st.lists(st.tuples(st.binary(max_size=6), st.integers(0, 2**62)), max_size=200),
    st.integers(0, 5_000),
    st.floats(0.1, 1),
)
def test_the_map_is_a_dict_as_far_as_it_has_room(puts, budget, load):
    keys = KeyMap(budget, load, len(puts))
    model: dict[bytes, int] = {}
    for key, offset in puts:
        fits = keys.put(key, offset)
        assert fits == (key in model or len(model) < keys.capacity)
        if fits:
            model[key] = offset
    assert len(keys) == len(model)
    asked = [*model, b"never seen"]
    assert keys.newest(asked) == [model.get(key, -1) for key in asked]
    assert keys.size <= max(budget, 3 * 24)
    keys.close()


def test_the_map_takes_its_budget_and_no_more_than_is_needed():
    keys = KeyMap(128 << 20, 0.9, 10**12)
    assert 0 < (128 << 20) - keys.size < 24 * 100
    assert keys.capacity == int(keys.size // 24 * 0.9)
    keys.close()
    keys = KeyMap(128 << 20, 0.9, 900)
    assert keys.capacity >= 900
    assert keys.size < 24 * 1100
    keys.close()


def test_a_full_map_still_finds_every_key():
    keys = KeyMap(24 * 101, 1.0, 10**6)
    names = [b"%d" % number for number in range(keys.capacity)]
    assert all(keys.put(name, number) for number, name in enumerate(names))
    assert not keys.put(b"one more", 1)
    assert keys.put(names[0], 77)
    assert keys.newest(names) == [77, *range(1, len(names))]
    keys.close()


@given(
    st.lists(st.tuples(st.integers(1, 2**31), st.integers(0, 100)), max_size=150),
    st.integers(0, 400),
)
def test_groups_are_as_large_as_may_be(steps, most):
    ends = list(accumulate((step for step, _ in steps), initial=0))
    segments = [
        Measure(base, end, size)
        for base, end, (_, size) in zip(ends, ends[1:], steps, strict=False)
    ]
    counts = group_segments(segments, most)
    assert sum(counts) == len(segments)
    begin = 0
    for number, count in enumerate(counts):
        group = segments[begin : begin + count]
        begin += count
        assert 1 <= count <= 32
        if count > 1:
            assert sum(segment.size for segment in group) <= most
            reach = max((s.next_base - 1 for s in group if s.size), default=0)
            assert reach - group[0].base_offset < 2**31 or not any(s.size for s in group[1:])
        if number + 1 < len(counts) and count < 32:
            following = segments[begin]
            grown = sum(segment.size for segment in group) + following.size
            too_far = following.next_base - 1 - group[0].base_offset > 2**31 - 1
            assert grown > most or (following.size and too_far)


def test_the_throttle_keeps_its_rate_whatever_the_clock_does():
    throttle = Throttle(1_000_000)
    assert throttle.pause_ms(50_000, 100) == 50
    assert throttle.pause_ms(50_000, 150) == 50
    assert throttle.pause_ms(10_000, 160) == 50  # not all of the last pause was made
    assert throttle.pause_ms(10_000, 900) == 10  # what was not used is not saved up
    assert Throttle(1.7e308).pause_ms(1 << 40, 5) < 1e-9


times = st.integers(0, 2**41)
texts = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=5), texts), max_size=3)


@given(
    st.lists(st.tuples(times, texts, texts, headers), min_size=1, max_size=20),
    st.integers(0, 4),
    st.data(),
)
def test_records_are_located_and_put_together_again(records, codec, data):
    batch = build_batch(records, base_offset=5, codec=codec, producer_id=3, producer_epoch=1)
    header = read_header(batch)
    raw = record_bytes(batch, 0, header)
    placed = locate_records(raw, header.count)
    assert [(p.delta, p.key, p.has_value) for p in placed] == [
        (number, key, value is not None) for number, (_, key, value, _) in enumerate(records)
    ]
    assert [header.base_timestamp + p.timestamp_delta for p in placed] == [r[0] for r in records]
    stay = data.draw(st.lists(st.sampled_from(placed), unique=True).map(sorted))
    shift = data.draw(st.integers(-(2**41), 2**41))
    body = b"".join(with_timestamp_delta(raw, p, p.timestamp_delta - shift) for p in stay)
    made, whole = with_records(
        header._replace(count=len(stay), base_timestamp=header.base_timestamp + shift), body
    )
    assert read_header(whole) == made
    assert crc_ok(whole, 0, len(whole))
    before = decode_records(batch, 0, header)
    assert decode_records(whole, 0, made) == [before[p.delta] for p in stay]


@given(st.binary(max_size=60), st.integers(0, 4))
def test_nonsense_for_records_is_told(data, count):
    try:
        placed = locate_records(data, count)
    except DecodeError:
        return
    assert len(placed) == count
    assert [p.start for p in placed] == [0, *(p.end for p in placed)][: len(placed)]


@pytest.mark.parametrize("cut", range(1, 30))
def test_records_cut_short_are_told(cut):
    batch = bytes(records_batch(("key", "value"), ("another", "one")))
    raw = record_bytes(batch, 0, read_header(batch))
    with pytest.raises(DecodeError):
        locate_records(raw[: len(raw) - cut], 2)
