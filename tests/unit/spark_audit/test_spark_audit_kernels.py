"""The numpy decoders against the record-at-a-time ones, on sound and on broken bytes."""

import random
from uuid import UUID

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from metadata_samples import random_entity

from metadata.records import (
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    UnknownRecord,
    decode,
    encode,
)
from spark_audit import frames as frames_module
from spark_audit import kernels
from spark_audit.frames import padded, read_headers, split, uvarints, varints
from spark_audit.rows import Rows, chunks, sort_rows
from wire.batch import build_batch, decode_records, read_header
from wire.errors import DecodeError
from wire.records import put_varint
from wire.uuids import to_text

KINDS = [(PartitionRecord, v) for v in (0, 1, 2)] + [(PartitionChangeRecord, v) for v in (0, 1, 2)]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
def test_varints_of_64_bits(values: list[int]) -> None:
    out = bytearray()
    places = []
    for value in values:
        places.append(len(out))
        put_varint(out, value)
    found, after, sound = varints(padded(bytes(out)), np.array(places), 10)
    assert found.tolist() == values
    assert after.tolist() == [*places[1:], len(out)]
    assert sound.all()


def test_a_varint_that_does_not_end_is_not_sound() -> None:
    _, _, sound = uvarints(padded(b"\xff" * 20), np.array([0, 5]))
    assert not sound.any()


def rows_of(values: list[bytes | None], per_batch: int = 3, **options: object) -> Rows:
    data, places = b"", []
    for start in range(0, len(values), per_batch):
        some = values[start : start + per_batch]
        places.append(len(data))
        data += build_batch(
            [(1_000 + start, None, value, ()) for value in some], base_offset=start, **options
        )  # type: ignore[arg-type]
    (rows,) = chunks("f", data, places)
    return rows


# The arrays that kernels read, and the records' names for them.
LISTS = {
    "isr": "isr",
    "replicas": "replicas",
    "removing": "removing_replicas",
    "adding": "adding_replicas",
    "elr": "eligible_leader_replicas",
}


def kernel_rows(rows: Rows) -> dict[int, dict[str, object]]:
    """What the kernels read, as {row: fields}; rows they leave out are absent."""
    found: dict[int, dict[str, object]] = {}
    for api_key, version, which, part in sort_rows(rows, rows.kinds()).kernel:
        for index, row in enumerate(which.tolist()):
            fields: dict[str, object] = {"kind": (api_key, version)}
            if part is not None:
                for name in LISTS:
                    arrays = getattr(part, name)
                    one = kernels.IntArrays(
                        arrays.position[index : index + 1], arrays.count[index : index + 1]
                    )
                    _, flat = kernels.int_lists(rows.data, one)
                    fields[name] = None if one.count[0] < 0 else tuple(flat.tolist())
                text = kernels.uuid_texts(rows.data, part.topic[index : index + 1])
                fields["topic_id"] = text.tobytes().decode()
                fields["partition_id"] = int(part.partition[index])
                fields["leader"] = int(part.leader[index])
                if len(part.leader_epoch):
                    fields["leader_epoch"] = int(part.leader_epoch[index])
                    fields["partition_epoch"] = int(part.partition_epoch[index])
            found[row] = fields
    return found


def agrees(fields: dict[str, object], value: bytes) -> None:
    decoded = decode(value)  # what a kernel accepts, the other decoder must accept too
    assert fields.pop("kind") == (decoded.api_key, decoded.version)
    record = decoded.record
    assert not isinstance(record, UnknownRecord)
    for name, seen in fields.items():
        expected = getattr(record, LISTS.get(name, name))
        assert seen == (to_text(expected) if isinstance(expected, UUID) else expected), name


@pytest.mark.parametrize(("kind", "version"), KINDS)
def test_kernels_read_what_kio_reads(kind: type, version: int) -> None:
    rng = random.Random(version)
    values = [encode(random_entity(kind, version, rng), version) for _ in range(300)]
    found = kernel_rows(rows_of(list(values)))
    assert sorted(found) == list(range(300))
    for row, fields in found.items():
        agrees(fields, values[row])


@pytest.mark.parametrize(("kind", "version"), KINDS)
def test_kernels_accept_nothing_that_kio_refuses(kind: type, version: int) -> None:
    rng = random.Random(100 + version)
    values = []
    for _ in range(1_500):
        value = bytearray(encode(random_entity(kind, version, rng), version)[:400])
        change = rng.randrange(3)
        if change == 0:
            value[rng.randrange(3, len(value))] = rng.choice((0, 1, 2, 127, 128, 255))
        elif change == 1:
            del value[rng.randrange(3, len(value)) :]
        else:
            value += rng.randbytes(rng.randrange(4))
        values.append(bytes(value))
    found = kernel_rows(rows_of(list(values)))
    accepted = 0
    for row, fields in found.items():
        agrees(fields, values[row])
        accepted += 1
    sound = 0
    for value in values:
        try:
            sound += not isinstance(decode(value).record, UnknownRecord)
        except DecodeError:
            continue
    assert accepted > 0.5 * sound


def test_no_op_records() -> None:
    whole = encode(NoOpRecord())
    values = [whole, whole + b"\0", whole[:-1], b"", None, b"\1", b"\1\x14\0\1\5\1\0", whole]
    assert sorted(kernel_rows(rows_of(values))) == [0, 7]


@given(st.binary(max_size=200))
def test_random_values_never_raise(value: bytes) -> None:
    for row, fields in kernel_rows(rows_of([value, b"\1\5\0" + value, b"\1\3\2" + value])).items():
        agrees(fields, [value, b"\1\5\0" + value, b"\1\3\2" + value][row])


records = st.lists(
    st.tuples(
        st.integers(-(2**40), 2**40),
        st.none() | st.binary(max_size=20),
        st.none() | st.binary(max_size=150),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2),
    ),
    min_size=1,
    max_size=6,
)


@given(st.lists(records, min_size=1, max_size=5), st.sampled_from([0, 1, 2, 3, 4]), st.booleans())
@examples(150)
def test_rows_are_the_records(parts: list[list], codec: int, append_time: bool) -> None:
    data, places = b"", []
    expected = []
    offset = 10
    for part in parts:
        places.append(len(data))
        batch = build_batch(
            part, base_offset=offset, codec=codec, timestamp_type=int(append_time), leader_epoch=4
        )
        expected += decode_records(batch, 0, read_header(batch))
        offset += len(part)
        data += batch
    (rows,) = chunks("f", data, places, base=1_000)
    assert not rows.problems
    seen = [
        (int(rows.offset[n]), int(rows.timestamp[n]), rows.key(n), rows.value(n))
        for n in range(len(rows))
    ]
    assert seen == [(r.offset, r.timestamp, r.key, r.value) for r in expected]
    assert set(rows.epoch.tolist()) == {4}
    assert sorted(set(rows.position.tolist())) == [place + 1_000 for place in places]


def test_long_batches_take_the_other_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames_module, "LONG_BATCH", 4)
    values = [bytes([n]) for n in range(12)]
    data = build_batch([(0, None, value, ()) for value in values[:3]], base_offset=0)
    places = [0, len(data)]
    data += build_batch([(0, None, value, ()) for value in values[3:]], base_offset=3)
    (rows,) = chunks("f", data, places)
    assert [rows.value(n) for n in range(12)] == values
    headers = read_headers(padded(data), np.array(places))
    assert split(padded(data), headers).odd.tolist() == [1]


@given(st.integers(61, 300), st.integers(0, 255))
def test_broken_records_in_a_batch_never_raise(place: int, value: int) -> None:
    part = [(5, b"k", b"v" * 60, ()), (6, None, b"w" * 60, ()), (7, None, None, ())]
    data = bytearray(build_batch(part, base_offset=0))
    if place >= len(data):
        return
    data[place] = value
    sound = build_batch(part, base_offset=3)
    (rows,) = chunks("f", bytes(data) + sound, [0, len(data)])
    try:
        count = len(decode_records(bytes(data), 0, read_header(data)))
    except DecodeError:
        count = 0
    assert len(rows) == count + 3
    assert bool(rows.problems) == (count == 0)
    assert [rows.value(count + n) for n in range(3)] == [b"v" * 60, b"w" * 60, None]
