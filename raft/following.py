"""What a follower or observer does: find the leader, fetch, cut what diverges, load snapshots.

Sources: Raft paper §5.3, §7; KIP-595, KIP-630. One Fetch or FetchSnapshot is in flight at a
time. A voter fetches again only when what it got is durable: its fetch offset is its promise.
"""

from __future__ import annotations

from raft.effects import (
    AppendFetched,
    CommittedTold,
    FreezeSnapshot,
    MessageRefused,
    RestartLog,
    SendRequest,
    SyncLog,
    TruncateLog,
    WriteSnapshotSlice,
)
from raft.elections import learn
from raft.events import SnapshotFrozen
from raft.log_view import UNKNOWN_END
from raft.messages import (
    NO_LEADER,
    FetchedRecords,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
)
from raft.roles import FetchSlot, Follower, Leader, Prospective, SnapshotDownload, Unattached
from raft.state import Quorum
from raft.voters import MembershipRecord, OffsetAndEpoch, ReplicaKey
from wire.errors import ErrorCode

_NAMELESS = ReplicaKey(-1)
_BEYOND = 2**62  # an offset that no log reaches
_RESIGNED = (
    ErrorCode.not_leader_or_follower,
    ErrorCode.broker_not_available,
    ErrorCode.unknown_leader_epoch,
)
_UNKNOWN_QUESTION = (
    ErrorCode.invalid_request,
    ErrorCode.offset_out_of_range,
    ErrorCode.unknown_server_error,
)


def fetch(q: Quorum) -> None:
    """Send the next Fetch or FetchSnapshot if it is due."""
    role = q.role
    if not isinstance(role, Unattached | Follower):
        return
    slot = role.slot
    if slot.in_flight is not None or slot.next_at_ms is None or slot.next_at_ms > q.now_ms:
        return
    peer_id = _fetch_from(q, role)
    download = q.download
    # A fetch offset is a promise, of a controller that isn't a voter too: the leader may count it
    # as soon as it is made one. So it waits for the sync that is under way; and while a snapshot
    # is made durable there is nothing to ask for.
    if (
        peer_id is None
        or (q.can_vote and q.log.synced_end < q.log.end)
        or (download is not None and download.freezing)
    ):
        slot.next_at_ms = None
        return
    # A node that misses part of its log counts for nothing, so it fetches without a name.
    key = q.key if q.needs_end is None else _NAMELESS
    request: FetchRequest | FetchSnapshotRequest
    if _asks_for_end(q, role):
        request = FetchRequest(key, q.epoch, _BEYOND, q.epoch, 0, q.high_watermark)
    elif download is not None and download.leader_id == peer_id:
        request = FetchSnapshotRequest(key, q.epoch, download.snapshot, download.position)
    else:
        lost = not isinstance(role, Follower) or role.lost
        request = FetchRequest(
            key,
            q.epoch,
            q.log.end,
            q.log.last_epoch,
            0 if lost else q.config.fetch_max_wait_ms,
            q.high_watermark,
        )
    slot.in_flight, slot.peer_id, slot.next_at_ms = request, peer_id, None
    q.emit(SendRequest(peer_id, request))


def _fetch_from(q: Quorum, role: Unattached | Follower) -> int | None:
    """The leader; or anyone who may know of one, while there is none to follow."""
    if isinstance(role, Follower) and not (role.lost and q.asks_around):
        return role.leader_id
    asked = [key.node_id for key in q.others()]
    if isinstance(role, Follower) and role.leader_id not in asked:
        asked.append(role.leader_id)  # it may be back, and no voter of the set known here
    asked += q.bootstrap
    return q.chance.choice(asked) if asked else None


def _slot_of(
    q: Quorum, peer_id: int, request: FetchRequest | FetchSnapshotRequest
) -> FetchSlot | None:
    """The slot in which this very request is in flight; None if it is an old one."""
    role = q.role
    slot = role.slot if isinstance(role, Unattached | Follower | Prospective) else None
    if slot is None or slot.peer_id != peer_id or slot.in_flight is not request:
        return None
    return slot


def on_fetch_failed(q: Quorum, peer_id: int, request: FetchRequest | FetchSnapshotRequest) -> None:
    slot = _slot_of(q, peer_id, request)
    if slot is None:
        return
    slot.in_flight, slot.next_at_ms = None, q.retry_at_ms()
    role = q.role
    if isinstance(role, Follower) and q.asks_around:
        role.lost = True


def on_disconnected(q: Quorum, peer_id: int) -> None:
    """The connection to the leader dropped: it may be dead, so don't wait for the timeout.

    Others' pre-votes are granted from now on and we stand soon, unless a fetch succeeds before;
    a leader that others still follow stays leader, since they refuse our pre-vote.
    """
    role = q.role
    if isinstance(role, Follower) and role.leader_id == peer_id and not role.lost:
        leader_lost(q, stand_at_ms=q.now_ms + q.random_lost_leader_wait_ms())


def leader_lost(q: Quorum, *, stand_at_ms: int) -> None:
    role = q.role
    assert isinstance(role, Follower), role
    role.lost = True
    if q.is_voter and role.deadline_ms is not None:
        role.deadline_ms = min(role.deadline_ms, stand_at_ms)


def on_fetch_response(
    q: Quorum, peer_id: int, request: FetchRequest, response: FetchResponse
) -> None:
    slot = _slot_of(q, peer_id, request)
    if slot is not None:
        slot.in_flight = None
    told = response.leader_id, response.epoch, response.leader_address
    if learn(q, peer_id, *told) or slot is None:
        return
    _look_whether_back(q, peer_id, slot, response)
    role = q.role
    if response.error != ErrorCode.none:
        if request.offset == _BEYOND and response.error in _UNKNOWN_QUESTION:
            slot.leader_end = UNKNOWN_END  # it doesn't know such questions: don't ask it again
        _on_fetch_error(q, peer_id, slot, response.error)
        return
    if (
        not isinstance(role, Follower)
        or peer_id != role.leader_id
        or response.leader_id not in (NO_LEADER, peer_id)
        or response.epoch != q.epoch
        or request.epoch != q.epoch
    ):
        slot.next_at_ms = q.retry_at_ms()
        return
    _heard_leader(q, role)
    slot.next_at_ms = q.now_ms
    if request.offset == _BEYOND:
        slot.leader_end = UNKNOWN_END if response.diverging is None else response.diverging.offset
    elif response.diverging is not None:
        _truncate(q, role, response.diverging)
    elif response.snapshot is not None:
        _begin_download(q, role, response.snapshot)
    else:
        if response.records is not None:
            _append(q, slot, response.records)
        offset = min(q.log.end, response.high_watermark)
        if offset > q.high_watermark:
            q.advance_high_watermark(offset)
        if q.committed_told is None and response.high_watermark >= 0:
            q.committed_told = response.high_watermark
            q.emit(CommittedTold())
        _look_whether_enough(q, slot, response.high_watermark)


# A log that misses nobody knows how much


def _asks_for_end(q: Quorum, role: Unattached | Follower) -> bool:
    """A fetch from where no log reaches is answered with the place where the leader's ends."""
    return (
        q.needs_end == UNKNOWN_END
        and isinstance(role, Follower)
        and role.has_fetched
        and not role.lost
        and role.slot.leader_end is None
    )


def _look_whether_enough(q: Quorum, slot: FetchSlot, high_watermark: int) -> None:
    """Say up to where our log was lost, if the leader shows it.

    Whatever we have promised, to this leader or to one before it, is in its log, if there is none
    of a later epoch; that we might have forgotten one, too, where quorum-state is lost. What it
    commits of later appends shows that there is none: a majority followed it since we ask, without
    us. (Of two voters, the other is in every majority.) Its high watermark as such wouldn't do: it
    may yet count on what we told it of before.
    """
    end = slot.leader_end
    if q.needs_end != UNKNOWN_END or end is None or q.log.end < end:
        return
    changed = q.history.voters_offset
    committed = changed is None or changed < max(high_watermark, q.high_watermark)
    if high_watermark > end or (len(q.voters) <= 2 and committed):
        q.needs_end = end
        q.heal()


def _on_fetch_error(q: Quorum, peer_id: int, slot: FetchSlot, error: ErrorCode) -> None:
    slot.next_at_ms = q.retry_at_ms()
    role = q.role
    if (
        isinstance(role, Follower)
        and peer_id == role.leader_id
        and error in _RESIGNED
        and not role.lost
    ):
        # It says itself that it leads no longer: it resigned, or was started again.
        leader_lost(q, stand_at_ms=q.now_ms + q.random_lost_leader_wait_ms())


def _look_whether_back(
    q: Quorum, peer_id: int, slot: FetchSlot, response: FetchResponse | FetchSnapshotResponse
) -> None:
    """While we ask whether we would win without it, the leader answers after all. On a slow network
    it may never do so in between."""
    if (
        isinstance(q.role, Prospective)
        and response.error == ErrorCode.none
        and (peer_id, response.epoch) == (q.leader_id, q.epoch)
        and response.leader_id in (NO_LEADER, peer_id)
    ):
        q.become_follower(q.epoch, peer_id, slot=slot)


def _heard_leader(q: Quorum, role: Follower) -> None:
    role.lost, role.has_fetched = False, True
    role.deadline_ms = q.fetch_deadline_ms()
    q.failed_elections = 0


def _on_contradiction(q: Quorum, role: Follower, reason: str) -> None:
    """The leader has not what is committed. If it is one of the voters known here, the quorum has
    lost what it promised to keep. Any other may be none: a request has named it, perhaps."""
    if q.is_listed(role.leader_id):
        q.fail(reason)
        return
    q.emit(MessageRefused(role.leader_id, reason))
    role.slot.next_at_ms = q.retry_at_ms()
    leader_lost(q, stand_at_ms=q.now_ms + q.random_lost_leader_wait_ms())


def _truncate(q: Quorum, role: Follower, leader_end: OffsetAndEpoch) -> None:
    offset = q.log.truncation_point(leader_end)
    if offset < q.high_watermark:
        _on_contradiction(
            q,
            role,
            f"the leader of epoch {q.epoch} would have us cut committed records: "
            f"to {offset}, below the high watermark {q.high_watermark}",
        )
        return
    if offset >= q.log.end:
        role.slot.next_at_ms = q.retry_at_ms()  # nothing to cut: asking again at once won't help
        return
    q.log.truncate(offset)
    q.emit(TruncateLog(offset, q.log.truncations))
    q.history.truncate(offset)
    q.adopt_voters()


def _append(q: Quorum, slot: FetchSlot, records: FetchedRecords) -> None:
    epochs = [q.log.last_epoch, *(epoch for epoch, _ in records.epochs), q.epoch]
    if records.base_offset != q.log.end or epochs != sorted(epochs):
        slot.next_at_ms = q.retry_at_ms()
        return
    for index, (epoch, start) in enumerate(records.epochs):
        following = records.epochs[index + 1 :]
        q.log.append(epoch, start, following[0][1] if following else records.end_offset)
    q.emit(AppendFetched(records))
    if q.can_vote or q.needs_end is not None:
        q.emit(SyncLog())
    if records.membership:
        for record in records.membership:
            q.history.add(record)
        q.adopt_voters()


def on_synced(q: Quorum) -> None:
    """More of our log is durable: a voter that waited for it fetches again."""
    role = q.role
    if isinstance(role, Unattached | Follower):
        slot = role.slot
        if slot.in_flight is None and slot.next_at_ms is None:
            slot.next_at_ms = q.now_ms


# Snapshots


def _begin_download(q: Quorum, role: Follower, snapshot: OffsetAndEpoch) -> None:
    if snapshot.offset < q.high_watermark:
        _on_contradiction(
            q,
            role,
            f"the leader of epoch {q.epoch} offers snapshot {snapshot}, which ends below our "
            f"high watermark {q.high_watermark}",
        )
        return
    download = q.download
    if download is not None and (
        download.freezing
        or (download.snapshot == snapshot and download.leader_id == role.leader_id)
    ):
        return
    q.download = SnapshotDownload(snapshot, role.leader_id)


def on_snapshot_response(
    q: Quorum, peer_id: int, request: FetchSnapshotRequest, response: FetchSnapshotResponse
) -> None:
    slot = _slot_of(q, peer_id, request)
    if slot is not None:
        slot.in_flight = None
    told = response.leader_id, response.epoch, response.leader_address
    if learn(q, peer_id, *told) or slot is None:
        return
    _look_whether_back(q, peer_id, slot, response)
    role, download = q.role, q.download
    slot.next_at_ms = q.retry_at_ms()
    if not isinstance(role, Follower) or download is None or download.freezing:
        return
    if response.error in (ErrorCode.snapshot_not_found, ErrorCode.position_out_of_range):
        q.download = None  # a fetch tells which one there is now
        return
    if response.error != ErrorCode.none:
        _on_fetch_error(q, peer_id, slot, response.error)
        return
    if (
        response.snapshot != download.snapshot
        or response.position != download.position
        or download.size not in (-1, response.size)
        or not 0 < response.length <= response.size - response.position
    ):
        q.download = None
        return
    _heard_leader(q, role)
    q.emit(WriteSnapshotSlice(download.snapshot, download.position, response.payload))
    download.position += response.length
    download.size = response.size
    if download.position == download.size:
        download.freezing = True
        slot.next_at_ms = None
        q.emit(FreezeSnapshot(download.snapshot))
    else:
        slot.next_at_ms = q.now_ms


def on_snapshot_frozen(q: Quorum, event: SnapshotFrozen) -> None:
    """A download is complete and durable, or was found unusable."""
    q.download = None
    role = q.role
    if isinstance(role, Unattached | Follower) and role.slot.in_flight is None:
        role.slot.next_at_ms = q.now_ms if event.complete else q.retry_at_ms()
    if not event.complete:
        return
    snapshot = event.snapshot
    log = q.log
    held = log.start <= snapshot.offset <= log.end and (
        log.epoch_at(snapshot.offset) == snapshot.epoch
    )
    if held or snapshot.offset < q.high_watermark:
        # Since the download began, the log has come to hold what the snapshot does.
        if held:
            log.add_snapshot(snapshot)
        return
    assert not isinstance(role, Leader), q.describe()
    log.restart_at(snapshot)
    q.emit(RestartLog(snapshot, log.truncations))
    q.history.restart(event.membership or MembershipRecord(snapshot.offset - 1))
    q.adopt_voters()
    if snapshot.offset > q.high_watermark:
        q.advance_high_watermark(snapshot.offset)
    q.heal()
