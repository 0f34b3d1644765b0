"""Control records: batches' markers that are not data (KIP-98, KIP-595, KIP-630, KIP-853).

A control record's key is two int16, version 0 and the type. Transaction markers carry an int16
version before their body; the quorum's own records carry it as their first field.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from kio.index import load_entity_schema
from kio.static.constants import EntityType

from wire.batch import BatchHeader, decode_records
from wire.errors import DecodeError
from wire.messages import encode_body
from wire.reader import read_entity

KeyValue = tuple[bytes, bytes]

_TWO_INT16 = struct.Struct(">hh")
_INT16 = struct.Struct(">h")
_MARKER = struct.Struct(">hi")


class ControlType(IntEnum):
    """The type in a control record's key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


# kio's schema name, the type's name in dumps and audits, and the newest version known.
_SCHEMAS: dict[int, tuple[str, str, int]] = {
    ControlType.ABORT: ("end_txn_marker", "EndTxnMarker", 0),
    ControlType.COMMIT: ("end_txn_marker", "EndTxnMarker", 0),
    ControlType.LEADER_CHANGE: ("leader_change_message", "LeaderChangeMessage", 1),
    ControlType.SNAPSHOT_HEADER: ("snapshot_header_record", "SnapshotHeaderRecord", 0),
    ControlType.SNAPSHOT_FOOTER: ("snapshot_footer_record", "SnapshotFooterRecord", 0),
    ControlType.KRAFT_VERSION: ("k_raft_version_record", "KRaftVersionRecord", 0),
    ControlType.KRAFT_VOTERS: ("voters_record", "VotersRecord", 0),
}


class Endpoint(NamedTuple):
    """Where a voter listens, by listener name."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Voter:
    """A voter as a VotersRecord holds it; `directory_id` None stands for none."""

    voter_id: int
    directory_id: UUID | None
    endpoints: tuple[Endpoint, ...]
    min_kraft_version: int
    max_kraft_version: int


class TxnMarker(NamedTuple):
    """How a transaction ended, and the epoch of the coordinator that says so."""

    aborted: bool
    coordinator_epoch: int


class Control(NamedTuple):
    """A decoded control record. Of an unknown type, `entity` is None and the name `UnknownN`."""

    type: int
    name: str
    version: int
    entity: Any


@cache
def _schema(name: str, version: int) -> type[Any]:
    return load_entity_schema(name, version, EntityType.data)


def _key(control_type: ControlType) -> bytes:
    return _TWO_INT16.pack(0, control_type)


def encode_end_txn_marker(commit: bool, coordinator_epoch: int) -> KeyValue:
    """A transaction's COMMIT or ABORT marker."""
    key = _key(ControlType.COMMIT if commit else ControlType.ABORT)
    return key, _MARKER.pack(0, coordinator_epoch)


def read_txn_marker(buf: Any, pos: int, header: BatchHeader) -> TxnMarker | None:
    """The marker in the control batch at `pos`; None where the batch ends no transaction, as one
    of which the cleaner left the header. Raises DecodeError."""
    if not header.count:
        return None
    record = decode_records(buf, pos, header)[0]
    if record.key is None or record.value is None:
        raise DecodeError("control record without key or value")
    try:
        _, control_type = _TWO_INT16.unpack_from(record.key)
        _, coordinator_epoch = _MARKER.unpack_from(record.value)
    except struct.error as error:
        raise DecodeError(f"control record of key {record.key!r}: {error}") from error
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    return TxnMarker(control_type == ControlType.ABORT, coordinator_epoch)


def encode_leader_change(
    leader_id: int, voters: Iterable[int], granting_voters: Iterable[int]
) -> KeyValue:
    """What a leader appends first: who it is, the voters' ids and who voted for it (version 0)."""
    cls = _schema("leader_change_message", 0)
    voter = _nested(cls, "voters")
    entity = cls(
        version=0,
        leader_id=leader_id,
        voters=tuple(voter(voter_id=v) for v in voters),
        granting_voters=tuple(voter(voter_id=v) for v in granting_voters),
    )
    return _key(ControlType.LEADER_CHANGE), encode_body(entity)


def encode_snapshot_header(last_contained_log_timestamp_ms: int) -> KeyValue:
    """A snapshot's first record: append time of the last batch that the snapshot covers."""
    entity = _schema("snapshot_header_record", 0)(
        version=0, last_contained_log_timestamp=last_contained_log_timestamp_ms
    )
    return _key(ControlType.SNAPSHOT_HEADER), encode_body(entity)


def encode_snapshot_footer() -> KeyValue:
    """A snapshot's last record; a snapshot file without it is incomplete."""
    return _key(ControlType.SNAPSHOT_FOOTER), encode_body(
        _schema("snapshot_footer_record", 0)(version=0)
    )


def encode_kraft_version(level: int) -> KeyValue:
    """The finalized kraft.version."""
    entity = _schema("k_raft_version_record", 0)(version=0, k_raft_version=level)
    return _key(ControlType.KRAFT_VERSION), encode_body(entity)


def encode_voters(voters: Sequence[Voter]) -> KeyValue:
    """The voter set, in the order given."""
    cls = _schema("voters_record", 0)
    voter_class = _nested(cls, "voters")
    endpoint_class = _nested(voter_class, "endpoints")
    range_class = voter_class.__dataclass_fields__["k_raft_version_feature"].type
    entity = cls(
        version=0,
        voters=tuple(
            voter_class(
                voter_id=voter.voter_id,
                voter_directory_id=voter.directory_id,
                endpoints=tuple(
                    endpoint_class(name=e.name, host=e.host, port=e.port) for e in voter.endpoints
                ),
                k_raft_version_feature=range_class(
                    min_supported_version=voter.min_kraft_version,
                    max_supported_version=voter.max_kraft_version,
                ),
            )
            for voter in voters
        ),
    )
    return _key(ControlType.KRAFT_VOTERS), encode_body(entity)


def voters_of(entity: Any) -> tuple[Voter, ...]:
    """The voters in a decoded VotersRecord."""
    return tuple(
        Voter(
            voter.voter_id,
            voter.voter_directory_id,
            tuple(Endpoint(e.name, e.host, e.port) for e in voter.endpoints),
            voter.k_raft_version_feature.min_supported_version,
            voter.k_raft_version_feature.max_supported_version,
        )
        for voter in entity.voters
    )


def _nested(cls: Any, field: str) -> Any:
    """The class of a tuple field's items."""
    return cls.__dataclass_fields__[field].type.__args__[0]


def decode_control(key: bytes | None, value: bytes | None) -> Control:
    """The control record of this key and value; DecodeError if malformed.

    A version newer than ours is read as our newest, as far as its fields go: Kafka promises that
    these only grow. Transaction markers too may be longer than we know.
    """
    if key is None or len(key) < _TWO_INT16.size:
        raise DecodeError(f"control record key {key!r}")
    key_version, control_type = _TWO_INT16.unpack_from(key)
    if key_version < 0 or value is None or len(value) < 2:
        raise DecodeError(f"control record of type {control_type} without a value")
    (version,) = _INT16.unpack_from(value)
    known = _SCHEMAS.get(control_type)
    if known is None:
        return Control(control_type, f"Unknown{control_type}", version, None)
    if version < 0:
        raise DecodeError(f"control record of type {control_type} with version {version}")
    schema_name, name, newest = known
    cls = _schema(schema_name, min(version, newest))
    is_marker = control_type in (ControlType.ABORT, ControlType.COMMIT)
    entity, end = read_entity(cls, value, 2 if is_marker else 0)
    if end != len(value) and version <= newest and not is_marker:
        raise DecodeError(f"{name}: {len(value) - end} trailing bytes")
    return Control(control_type, name, version, entity)
