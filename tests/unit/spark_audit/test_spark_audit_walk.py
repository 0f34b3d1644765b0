"""Walking batches: what is sound is found, damage is named once, junk never raises."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_audit.walk import batch_start, merge, resync, walk
from wire.batch import build_batch


def batches(count: int, seed: int = 1, first: int = 0) -> list[bytes]:
    rng = random.Random(seed)
    made = []
    offset = first
    for _ in range(count):
        records = rng.randrange(1, 4)
        values = [(1_000, None, rng.randbytes(rng.randrange(40)), ()) for _ in range(records)]
        made.append(build_batch(values, base_offset=offset, leader_epoch=3))
        offset += records
    return made


def starts(parts: list[bytes]) -> list[int]:
    found, position = [], 0
    for part in parts:
        found.append(position)
        position += len(part)
    return found


def test_sound_batches_are_all_found() -> None:
    parts = batches(50)
    assert walk(b"".join(parts)) == (starts(parts), [])


def test_every_cut_of_the_last_batch_is_a_truncated_tail() -> None:
    parts = batches(3)
    data = b"".join(parts)
    end = len(data) - len(parts[-1])
    for size in range(end + 1, len(data)):
        positions, damages = walk(data[:size])
        assert positions == starts(parts)[:2]
        assert [d.code for d in damages] in (["truncated-tail"], ["zero-tail"])
        assert damages[0].position == end
        assert damages[0].resume is None


def test_every_flipped_bit_is_noticed_and_survived() -> None:
    parts = batches(3)
    data = b"".join(parts)
    begin = len(parts[0])
    for position in range(begin, begin + len(parts[1])):
        broken = bytearray(data)
        broken[position] ^= 0x10
        positions, damages = walk(bytes(broken))
        assert {0, begin + len(parts[1])} <= set(positions)
        unprotected = position - begin < 8 or 12 <= position - begin < 16
        # The CRC covers neither base offset nor epoch; a negative offset is noticed all the same.
        assert damages or (unprotected and len(positions) == 3)


@pytest.mark.parametrize(
    ("at", "value", "code"),
    [(16, b"\x01", "bad-magic"), (8, b"\0\0\0\x05", "bad-length"), (8, b"\x7f\0\0\0", "bad-length"),
     (30, b"\xff", "crc-mismatch"), (0, b"\xff" * 8, "bad-records")],
)  # fmt: skip
def test_damage_has_its_name(at: int, value: bytes, code: str) -> None:
    parts = batches(3)
    begin = len(parts[0])
    broken = bytearray(b"".join(parts))
    broken[begin + at : begin + at + len(value)] = value
    positions, damages = walk(bytes(broken))
    assert [d.code for d in damages] == [code]
    assert damages[0].position == begin
    assert damages[0].resume == begin + len(parts[1])
    assert positions == [0, begin + len(parts[1])]


def test_zeros_behind_the_log_are_a_zero_tail() -> None:
    data = b"".join(batches(2))
    for count in (1, 60, 61, 5_000, 200_000):
        positions, damages = walk(data + bytes(count))
        assert len(positions) == 2
        assert [(d.code, d.position) for d in damages] == [("zero-tail", len(data))]


@given(st.binary(max_size=2_000))
def test_random_bytes_never_raise(data: bytes) -> None:
    positions, damages = walk(data)
    assert positions == []
    assert bool(damages) == bool(data)
    assert batch_start(data) is None


@given(st.binary(max_size=300), st.integers(0, 4))
def test_junk_between_batches_is_stepped_over(junk: bytes, place: int) -> None:
    parts = batches(5)
    data = b"".join([*parts[:place], junk, *parts[place:]])
    positions, _ = walk(data)
    expected = starts([*parts[:place], junk, *parts[place:]])
    del expected[place]
    assert positions == expected


def test_a_file_full_of_plausible_bytes_is_walked_in_time() -> None:
    positions, damages = walk(b"\x02\x00\x00" * 200_000)
    assert positions == []
    assert len(damages) == 1


def test_a_reader_finds_its_place_in_the_middle() -> None:
    parts = batches(40)
    data = b"".join(parts)
    places = starts(parts)
    for cut in range(0, places[-4], 7):
        found = batch_start(data[cut:])
        assert found is not None
        assert cut + found == next(place for place in places if place >= cut)


def test_bytes_in_a_record_that_look_like_a_batch_are_no_place_to_start() -> None:
    inner = build_batch([(0, None, b"inner", ())], base_offset=5)
    parts = [build_batch([(0, None, inner + bytes(200), ())], base_offset=0), *batches(5)]
    data = b"".join(parts)
    cut = 1
    assert resync(data, cut, len(data)) == data.index(inner)
    assert batch_start(data[cut:]) == len(parts[0]) - cut


def test_damage_is_told_in_its_place() -> None:
    parts = batches(3)
    data = bytearray(b"".join(parts))
    data[len(parts[0]) + 30] ^= 1
    positions, damages = walk(bytes(data))
    assert list(merge(positions, damages)) == [positions[0], damages[0], positions[1]]
