from __future__ import annotations

import contextlib
import struct
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire import control
from wire.control import Endpoint, Voter, decode_control
from wire.errors import DecodeError


def test_transaction_markers() -> None:
    for commit, number, name in ((False, 0, "ABORT"), (True, 1, "COMMIT")):
        key, value = control.encode_end_txn_marker(commit, 77)
        assert key == struct.pack(">hh", 0, number)
        assert value == struct.pack(">hi", 0, 77)
        marker = decode_control(key, value)
        assert control.ControlType(marker.type).name == name
        assert (marker.name, marker.version) == ("EndTxnMarker", 0)
        assert marker.entity.coordinator_epoch == 77
        # KIP-890 lets markers grow.
        assert decode_control(key, value + b"\x00more").entity == marker.entity


def test_leader_change_bytes() -> None:
    key, value = control.encode_leader_change(3, [1, 2, 3], [3, 1])
    assert key == b"\x00\x00\x00\x02"
    assert value == bytes.fromhex(
        "0000 00000003 04 0000000100 0000000200 0000000300 03 0000000300 0000000100 00"
    )
    change = decode_control(key, value)
    assert (change.name, change.version) == ("LeaderChangeMessage", 0)
    assert change.entity.leader_id == 3
    assert [v.voter_id for v in change.entity.voters] == [1, 2, 3]
    assert [v.voter_id for v in change.entity.granting_voters] == [3, 1]


def test_leader_change_of_version_1_has_directory_ids() -> None:
    voter = struct.pack(">i", 1) + UUID(int=9).bytes + b"\x00"
    value = struct.pack(">hi", 1, 1) + b"\x02" + voter + b"\x01\x00"
    change = decode_control(b"\x00\x00\x00\x02", value)
    assert change.version == 1
    assert change.entity.voters[0].voter_directory_id == UUID(int=9)


def test_snapshot_header_and_footer() -> None:
    key, value = control.encode_snapshot_header(1700000000123)
    assert (key, value) == (b"\x00\x00\x00\x03", struct.pack(">hq", 0, 1700000000123) + b"\x00")
    assert decode_control(key, value).entity.last_contained_log_timestamp == 1700000000123
    key, value = control.encode_snapshot_footer()
    assert (key, value) == (b"\x00\x00\x00\x04", b"\x00\x00\x00")
    assert decode_control(key, value).name == "SnapshotFooterRecord"


def test_kraft_version_and_voters() -> None:
    key, value = control.encode_kraft_version(1)
    assert (key, value) == (b"\x00\x00\x00\x05", b"\x00\x00\x00\x01\x00")
    assert decode_control(key, value).entity.k_raft_version == 1
    voters = (
        Voter(
            1,
            UUID(int=5 << 90),
            (Endpoint("CONTROLLER", "h", 9093), Endpoint("B", "i", 65535)),
            0,
            1,
        ),
        Voter(2, None, (), 0, 0),
    )
    key, value = control.encode_voters(voters)
    decoded = decode_control(key, value)
    assert decoded.name == "VotersRecord"
    assert control.voters_of(decoded.entity) == voters


def test_unknown_types_are_kept_and_newer_versions_read_as_ours() -> None:
    unknown = decode_control(b"\x00\x00\x00\x63", b"\x00\x04abc")
    assert (unknown.type, unknown.name, unknown.version, unknown.entity) == (
        99,
        "Unknown99",
        4,
        None,
    )
    footer = decode_control(b"\x00\x00\x00\x04", b"\x00\x09\x00new")
    assert (footer.name, footer.version) == ("SnapshotFooterRecord", 9)


def test_malformed_control_records() -> None:
    _, value = control.encode_leader_change(3, [1, 2], [3])
    for key in (None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x02"):
        with pytest.raises(DecodeError):
            decode_control(key, value)
    for length in range(len(value)):
        with pytest.raises(DecodeError):
            decode_control(b"\x00\x00\x00\x02", value[:length])
    for broken in (None, value + b"\x00", b"\xff\xff" + value[2:]):
        with pytest.raises(DecodeError):
            decode_control(b"\x00\x00\x00\x02", broken)


@given(st.integers(0, 8), st.binary(max_size=60))
def test_random_values_only_ever_raise_decode_errors(kind: int, value: bytes) -> None:
    for data in (value, b"\x00\x00" + value):
        with contextlib.suppress(DecodeError):
            decode_control(struct.pack(">hh", 0, kind), data)
