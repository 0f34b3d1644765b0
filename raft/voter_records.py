"""Voters and kraft.version as control records: found in batches, in snapshots, in the whole log."""

from __future__ import annotations

from collections.abc import Iterable

from raft.snapshots import SnapshotFacts, SnapshotStore
from raft.voter_history import VoterHistory
from raft.voters import MembershipRecord, VoterSet, membership_of, record_of, voter_set_of
from storage.log import Log
from wire import control
from wire.batch import BatchHeader, build_batch, decode_records, iter_headers
from world.env import Env

_SLICE_BYTES = 1 << 20

KeyValue = tuple[bytes, bytes]


def records_in(
    data: bytes | memoryview, position: int, header: BatchHeader
) -> list[MembershipRecord]:
    """What the batch at `position` says of membership. Raises DecodeError."""
    if not header.is_control:
        return []
    found = []
    for index, record in enumerate(decode_records(data, position, header)):
        decoded = control.decode_control(record.key, record.value)
        membership = membership_of(header.base_offset + index, decoded)
        if membership is not None:
            found.append(membership)
    return found


def encode_membership(kraft_version: int | None, voters: VoterSet) -> list[KeyValue]:
    """The control records of a change: kraft.version where it is given, then the voters."""
    records = [] if kraft_version is None else [control.encode_kraft_version(kraft_version)]
    return [*records, control.encode_voters(record_of(voters))]


def control_batch(records: Iterable[KeyValue], base_offset: int, epoch: int, wall_ms: int) -> bytes:
    """One control batch of the log."""
    return build_batch(
        [(wall_ms, key, value, ()) for key, value in records],
        base_offset=base_offset,
        leader_epoch=epoch,
        control=True,
    )


def membership_in(facts: SnapshotFacts) -> MembershipRecord:
    """What a snapshot says, at the last offset that it covers."""
    voters = None if facts.voters is None else voter_set_of(facts.voters)
    return MembershipRecord(facts.snapshot.offset - 1, facts.kraft_version, voters)


async def read_history(
    env: Env, log: Log, snapshots: SnapshotStore, static: VoterSet
) -> VoterHistory:
    """The voter sets of the newest snapshot and of the log behind it."""
    latest = snapshots.latest
    facts = snapshots.bootstrap if latest is None else snapshots.complete[latest]
    history = VoterHistory(static, () if facts is None else (membership_in(facts),))
    for older in (snapshots.bootstrap, *snapshots.complete.values()):
        if older is not None and older is not facts and older.voters is not None:
            history.remember(voter_set_of(older.voters))
    offset = log.log_start_offset if latest is None else max(latest.offset, log.log_start_offset)
    while offset < log.end_offset:
        part = log.read(offset, _SLICE_BYTES)
        if part is None:
            break
        data = await env.run_blocking(part.file.pread, part.length, part.position)
        for position, header in iter_headers(data):
            if header.base_offset >= offset:
                for record in records_in(data, position, header):
                    history.add(record)
        offset = part.next_offset
    return history
