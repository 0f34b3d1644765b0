from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire import (
    checkpoints,
    clean_shutdown,
    index_files,
    meta_properties,
    partition_metadata,
    producer_snapshot,
    properties,
    quorum_state,
)
from wire.errors import DamagedFile, DecodeError, ErrorCode, FatalError, KafkaError
from wire.java import java_string_hash
from wire.meta_properties import MetaProperties
from wire.producer_snapshot import ProducerEntry
from wire.quorum_state import QuorumState
from wire.uuids import LOST_DIR, METADATA_TOPIC_ID, ZERO, from_text, is_reserved, to_text

ID = UUID("0102030405060708090a0b0c0d0e0fff")


# Identities


def test_uuids_have_kafkas_text() -> None:
    assert to_text(ZERO) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert to_text(METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert to_text(UUID(int=(1 << 128) - 1)) == "_____________________w"
    assert from_text("AAAAAAAAAAAAAAAAAAAAAQ==") == METADATA_TOPIC_ID
    assert is_reserved(LOST_DIR)
    assert is_reserved(UUID(int=99))
    assert not is_reserved(UUID(int=100))


@given(st.uuids())
def test_uuids_read_back(value: UUID) -> None:
    assert from_text(to_text(value)) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A",
        "AAAAAAAAAAAAAAAAAAAAA",
        "A" * 23,
        "A" * 24,
        "+" * 22,
        "AAAA AAAAAAAAAAAAAAAAA",
        "ä" * 22,
    ],
)
def test_other_texts_are_no_uuids(text: str) -> None:
    with pytest.raises(DecodeError, match="UUID"):
        from_text(text)


def test_errors_say_what_they_are() -> None:
    error = KafkaError(ErrorCode.invalid_topic_exception, "name 'a b' has a blank")
    assert str(error) == "INVALID_TOPIC_EXCEPTION: name 'a b' has a blank"
    assert KafkaError(ErrorCode.not_controller).message == "not controller"
    assert FatalError(3, "disk gone").exit_code == 3
    assert str(DamagedFile("/x", 7, "wrong CRC")) == "/x: byte 7: wrong CRC"


def test_string_hashes_are_javas() -> None:
    assert java_string_hash("") == 0
    assert java_string_hash("hello") == 99162322
    assert java_string_hash("polygenelubricants") == -2147483648
    assert java_string_hash("😀") == 1772899


# Checkpoints


def test_offset_checkpoints() -> None:
    offsets = {("b", 0): 5, ("a", 10): 1 << 40, ("a", 2): 0}
    data = checkpoints.encode_offsets(offsets)
    assert data == b"0\n3\na 2 0\na 10 1099511627776\nb 0 5\n"
    assert checkpoints.decode_offsets(data, "f") == offsets
    assert checkpoints.encode_offsets({}) == b"0\n0\n"
    assert checkpoints.decode_offsets(b"0\n0", "f") == {}


def test_epoch_checkpoints() -> None:
    epochs = [(0, 0), (3, 10), (4, 10), (9, 500)]
    data = checkpoints.encode_epochs(epochs)
    assert data == b"0\n4\n0 0\n3 10\n4 10\n9 500\n"
    assert checkpoints.decode_epochs(data, "f") == epochs


@pytest.mark.parametrize(
    "data",
    [
        b"", b"0", b"0\n", b"1\n0\n", b"0\n1\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na 0 x\n",
        b"0\n1\na 0 1\n\n", b"0\n-1\n", b"0\n1\na 0 -1\n", b"0\n2\na 0 1\na 0 2\n", b"\xff\n0\n",
        b"0\n1\na -1 0\n", b"0\n1\na 0 99999999999999999999\n", bytes(40),
    ],
)  # fmt: skip
def test_damaged_offset_checkpoints(data: bytes) -> None:
    with pytest.raises(DamagedFile) as caught:
        checkpoints.decode_offsets(data, "some/path")
    assert caught.value.path == "some/path"
    assert 0 <= caught.value.position <= len(data)


@pytest.mark.parametrize("lines", [b"1\n5 0 3\n", b"2\n5 0\n5 1\n", b"2\n5 9\n6 8\n", b"1\n-1 0\n"])
def test_damaged_epoch_checkpoints(lines: bytes) -> None:
    with pytest.raises(DamagedFile):
        checkpoints.decode_epochs(b"0\n" + lines, "f")


# quorum-state


def test_quorum_state_of_both_versions() -> None:
    old = QuorumState(leader_epoch=36, leader_id=2, voters=(1, 2, 3))
    text = (
        b'{"clusterId":"","leaderId":2,"leaderEpoch":36,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1},{"voterId":2},{"voterId":3}],"data_version":0}'
    )
    assert quorum_state.encode(old) == text
    assert quorum_state.decode(text, "f") == old
    new = QuorumState(5, None, 7, ID, version=1)
    text = (
        b'{"leaderId":-1,"leaderEpoch":5,"votedId":7,'
        b'"votedDirectoryId":"AQIDBAUGBwgJCgsMDQ4P_w","data_version":1}'
    )
    assert quorum_state.encode(new) == text
    assert quorum_state.decode(text, "f") == new
    without = QuorumState(1, 0, 0, voters=None)
    assert quorum_state.decode(quorum_state.encode(without), "f") == without


@pytest.mark.parametrize(
    "text",
    [
        "", "null", "[]", "{}", "{", '{"leaderId":1}', '{"data_version":2}', '{"data_version":"0"}',
        '{"leaderId":1,"leaderEpoch":1,"votedId":true,"data_version":0}',
        '{"leaderId":1,"leaderEpoch":"1","votedId":1,"data_version":0}',
        '{"leaderId":1,"leaderEpoch":1,"votedId":-2,"data_version":0}',
        '{"leaderId":1,"leaderEpoch":1,"votedId":1,"data_version":1}',
        '{"leaderId":1,"leaderEpoch":1,"votedId":1,"currentVoters":[{}],"data_version":0}',
        '{"leaderId":1,"leaderEpoch":1,"votedId":1,"currentVoters":5,"data_version":0}',
        '{"leaderId":1,"leaderEpoch":1,"votedId":1,"data_version":0.0}',
        "[" * 100000,
    ],
)  # fmt: skip
def test_damaged_quorum_state(text: str) -> None:
    with pytest.raises(DamagedFile):
        quorum_state.decode(text.encode(), "f")
    with pytest.raises(DamagedFile):
        quorum_state.decode(b"\xff\xfe" + text.encode(), "f")


# Properties


def test_properties_as_java_reads_them() -> None:
    text = (
        "# comment\n! comment\n\n  \t\nplain=value\nspaced   =  value with  blanks \n"
        "colon:a=b\nblank value\nempty=\nnothing\nlist=a,\\\n   b,\\\n# not a comment,\\\n  c\n"
        "k\\ e\\=y=v\\:\\u0041\\t\\q\nwin\\\\=c:\\\\d\r\nsmile=\\uD83D\\uDE00\nplain=last\n"
    )
    assert properties.parse(text) == {
        "plain": "last",
        "spaced": "value with  blanks ",
        "colon": "a=b",
        "blank": "value",
        "empty": "",
        "nothing": "",
        "list": "a,b,# not a comment,c",
        "k e=y": "v:A\tq",
        "win\\": "c:\\d",
        "smile": "😀",
    }
    assert properties.parse("a=1\\") == {"a": "1"}
    with pytest.raises(DecodeError, match="escape"):
        properties.parse("a=\\u00g0")


@given(st.dictionaries(st.text(), st.text()))
def test_properties_read_back(values: dict[str, str]) -> None:
    text = properties.dump(values, ("first", "second"))
    assert text.isascii()
    assert properties.parse(text) == values


@given(st.text())
def test_any_text_is_properties_or_a_decode_error(text: str) -> None:
    with contextlib.suppress(DecodeError):
        properties.parse(text)


def test_meta_properties() -> None:
    meta = MetaProperties("ohEfzflmT6-TloTKzfp5YA", 1, ID)
    data = meta_properties.encode(meta)
    assert set(data.decode().splitlines()) == {
        "node.id=1",
        "directory.id=AQIDBAUGBwgJCgsMDQ4P_w",
        "version=1",
        "cluster.id=ohEfzflmT6-TloTKzfp5YA",
    }
    assert meta_properties.decode(data, "f") == meta
    java = b"#\n#Mon Sep 22 09:07:33 GMT 2025\nnode.id=1\nversion=1\ncluster.id=a\\:b\n"
    assert meta_properties.decode(java, "f") == MetaProperties("a:b", 1)


@pytest.mark.parametrize(
    "text",
    [
        "", "version=0\nbroker.id=1", "version=1\nnode.id=1", "version=1\ncluster.id=x",
        "version=1\ncluster.id=x\nnode.id=-1", "version=1\ncluster.id=x\nnode.id=2147483648",
        "version=1\ncluster.id=x\nnode.id=1\ndirectory.id=short",
        "version=1\ncluster.id=x\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAA",
        "version=2\ncluster.id=x\nnode.id=1", "version=1\ncluster.id=\\uzzzz\nnode.id=1",
    ],
)  # fmt: skip
def test_damaged_meta_properties(text: str) -> None:
    with pytest.raises(DamagedFile):
        meta_properties.decode(text.encode(), "f")


def test_empty_meta_properties_are_called_so() -> None:
    with pytest.raises(DamagedFile, match="the file is empty"):
        meta_properties.decode(b" \n", "f")


def test_meta_properties_without_a_version_are_called_so() -> None:
    with pytest.raises(DamagedFile, match="no version, which stands for 0, ZooKeeper's; only 1"):
        meta_properties.decode(b"cluster.id=x\nnode.id=1\n", "f")
    with pytest.raises(DamagedFile, match="version '0', only 1 is supported"):
        meta_properties.decode(b"version=0\ncluster.id=x\nnode.id=1\n", "f")


def test_partition_metadata() -> None:
    data = partition_metadata.encode(METADATA_TOPIC_ID)
    assert data == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    assert partition_metadata.decode(data, "f") == METADATA_TOPIC_ID
    assert partition_metadata.decode(data + b"\n", "f") == METADATA_TOPIC_ID
    damaged = [
        b"", data[:-1], data.replace(b"0", b"1", 1), b"version: 0", data + b"\nmore: 1", data[11:],
        partition_metadata.encode(ZERO), b"\xff" + data, data.replace(b"topic_id", b"topic"),
    ]  # fmt: skip
    for content in damaged:
        with pytest.raises(DamagedFile):
            partition_metadata.decode(content, "f")


def test_clean_shutdown_marker() -> None:
    assert clean_shutdown.encode(12) == b'{"version":0,"brokerEpoch":12}'
    assert clean_shutdown.decode(clean_shutdown.encode(12)) == 12
    for content in (b"", b"{", b"[]", b'{"version":1,"brokerEpoch":3}', b'{"version":0}', b"\xff"):
        assert clean_shutdown.decode(content) is None


# Producer snapshots


def test_producer_snapshots() -> None:
    entries = [
        ProducerEntry(1 << 40, 3, 0x7FFFFFFF, 1 << 41, 5, 1700000000000, 7, 99),
        ProducerEntry(2, 0, -1, -1, 0, -1, -1, -1),
    ]
    data = producer_snapshot.encode(entries)
    assert len(data) == 10 + 2 * 46
    assert producer_snapshot.decode(data, "f") == entries
    assert producer_snapshot.decode(producer_snapshot.encode([]), "f") == []
    for length in range(len(data)):
        with pytest.raises(DamagedFile):
            producer_snapshot.decode(data[:length], "f")
    for position in range(len(data)):
        broken = bytearray(data)
        broken[position] ^= 1
        with pytest.raises(DamagedFile):
            producer_snapshot.decode(bytes(broken), "f")
    with pytest.raises(DamagedFile):
        producer_snapshot.decode(data + b"\x00", "f")


# Index files


def test_offset_index_entries() -> None:
    entries = [(0, 4096), (7, 9000), (1 << 30, 1 << 30)]
    data = b"".join(index_files.encode_offset_entry(*entry) for entry in entries)
    assert len(data) == 24
    assert index_files.decode_offset_entries(data, "f") == entries
    assert index_files.decode_offset_entries(data + bytes(80), "f") == entries
    assert index_files.decode_offset_entries(bytes(80), "f") == []
    assert index_files.decode_offset_entries(b"", "f") == []
    # A first entry of zeros is a true one when others follow; it carries nothing.
    assert index_files.decode_offset_entries(bytes(8) + data[8:], "f") == entries[1:]
    swapped = data[8:16] + data[:8]
    for damaged in (
        data[:-1],
        swapped,
        data + data,
        data[:8] + bytes(8) + data[8:],
        bytes(16) + data,
    ):
        with pytest.raises(DamagedFile):
            index_files.decode_offset_entries(damaged, "f")


def test_time_index_entries() -> None:
    entries = [(1700000000000, 0), (1700000000001, 0), (1700000000009, 12)]
    data = b"".join(index_files.encode_time_entry(*entry) for entry in entries)
    assert len(data) == 36
    assert index_files.decode_time_entries(data + bytes(24), "f") == entries
    assert index_files.decode_time_entries(bytes(24), "f") == []
    for damaged in (
        data[:-1],
        data + data,
        data[12:24] + data[:12],
        data + struct.pack(">qi", 1 << 50, -1),
    ):
        with pytest.raises(DamagedFile):
            index_files.decode_time_entries(damaged, "f")


def test_txn_index_entries() -> None:
    entries = [index_files.AbortedTxn(5, 10, 20, 8), index_files.AbortedTxn(6, 11, 25, 11)]
    data = b"".join(index_files.encode_txn_entry(entry) for entry in entries)
    assert len(data) == 68
    assert index_files.decode_txn_entries(data, "f") == entries
    for damaged in (data[:-1], data + data, b"\x00\x01" + data[2:]):
        with pytest.raises(DamagedFile):
            index_files.decode_txn_entries(damaged, "f")


DECODERS: list[Callable[[bytes, str], Any]] = [
    checkpoints.decode_offsets,
    checkpoints.decode_epochs,
    quorum_state.decode,
    meta_properties.decode,
    partition_metadata.decode,
    producer_snapshot.decode,
    index_files.decode_offset_entries,
    index_files.decode_time_entries,
    index_files.decode_txn_entries,
]


@given(
    st.binary(max_size=80), st.sampled_from([b"", b"0\n1\n", b"version=1\n", b"version: 0\n", b"{"])
)
def test_random_files_are_damaged_or_fine(data: bytes, start: bytes) -> None:
    for decode in DECODERS:
        with contextlib.suppress(DamagedFile):
            decode(start + data, "f")
    clean_shutdown.decode(start + data)
