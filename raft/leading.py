"""What a leader does: open its epoch, count replicas, commit, notice that it is alone, resign.

Sources: Raft paper §5.3, §5.4.2, §6.4 (read index); KIP-595, KIP-853, KIP-996.
"""

from __future__ import annotations

from raft.effects import (
    AppendBatch,
    AppendLeaderChange,
    AppendMembership,
    LeadershipConfirmed,
    LeadershipRefused,
    Resigned,
    SendRequest,
    SendResponse,
    ServeParkedSoon,
    SyncLog,
    UpgradeAnswered,
)
from raft.events import ConfirmLeadership, LeaderAppend, LogSynced, Resign
from raft.messages import (
    BeginEpochRequest,
    BeginEpochResponse,
    EndEpochRequest,
    EndEpochResponse,
    FetchResponse,
    VoterChangeResponse,
)
from raft.quorum import replicated_offset
from raft.roles import (
    Announcement,
    Ballot,
    Leader,
    PendingChange,
    PendingRead,
    Progress,
    ResignedLeader,
)
from raft.state import Quorum
from raft.voter_history import BOOTSTRAP_OFFSET
from raft.voters import MembershipRecord, ReplicaKey, VoterSet
from wire.errors import ErrorCode

MAX_OBSERVERS = 1000
"""Observers that a leader remembers, the longest silent going first: anybody may fetch under any
name, and the largest Kafka clusters have some hundreds of nodes. One that is forgotten is known
again by its next fetch; only DescribeQuorum and the catching up of a voter to be look at it."""


def take_over(q: Quorum, ballot: Ballot) -> None:
    """Become leader and open the epoch with its LeaderChange record."""
    q.become_leader()
    role = q.role
    assert isinstance(role, Leader)
    base_offset = q.log.end
    granting = tuple(voter_id for voter_id in q.voters.ids if ballot.votes.get(voter_id))
    membership = _first_membership(q)
    end_offset = base_offset + (1 if membership is None else 3)
    q.log.append(q.epoch, base_offset, end_offset)
    q.emit(AppendLeaderChange(base_offset, q.epoch, q.voters.ids, granting, membership))
    q.emit(SyncLog())
    if membership is not None:
        _note_membership(q, role, end_offset, *membership)


def _first_membership(q: Quorum) -> tuple[int, VoterSet] | None:
    """kraft.version and voters, where the log doesn't have them yet (the voters' own bootstrap
    snapshots do, and may differ), or where what it says of us isn't true any more."""
    level = q.history.kraft_version
    if level == 0 or not q.is_voter:
        return None
    own = q.own if q.own.endpoints else q.voters.get(q.node_id)
    assert own is not None, q.describe()
    in_log = q.history.voters_offset not in (None, BOOTSTRAP_OFFSET)
    if in_log and q.voters.get(q.node_id) == own:
        return None
    return level, q.voters.with_voter(own)


def append_membership(
    q: Quorum, role: Leader, voters: VoterSet, kraft_version: int | None = None
) -> int:
    """Append a voter set, which is in force from now on, after the level of kraft.version if that
    rises; the offset of the set's record."""
    base_offset = q.log.end
    end_offset = base_offset + (1 if kraft_version is None else 2)
    q.log.append(q.epoch, base_offset, end_offset)
    q.emit(AppendMembership(base_offset, q.epoch, kraft_version, voters))
    q.emit(ServeParkedSoon())
    q.emit(SyncLog())
    _note_membership(q, role, end_offset, kraft_version, voters)
    return end_offset - 1


def _note_membership(
    q: Quorum, role: Leader, end_offset: int, kraft_version: int | None, voters: VoterSet
) -> None:
    if kraft_version is not None:
        q.history.add(MembershipRecord(end_offset - 2, kraft_version=kraft_version))
        role.told_voters = None
    q.history.add(MembershipRecord(end_offset - 1, voters=voters))
    q.adopt_voters()
    _regroup(q, role)


def _regroup(q: Quorum, role: Leader) -> None:
    """Another voter set is in force: what is known of each replica stays, who counts may not."""
    before, announcements = role.voters, role.announcements
    role.voters, role.announcements = {}, {}
    for key in q.others():
        progress = before.get(key.node_id)
        # A static voter's directory id is unknown until it has fetched.
        if progress is None or progress.key.directory_id not in (None, key.directory_id):
            progress = role.observers.get(key) or Progress(key)
        progress.key = key
        role.voters[key.node_id] = progress
        role.announcements[key.node_id] = announcements.get(key.node_id) or Announcement(q.now_ms)
    left = [p for p in before.values() if p.last_fetch_ms >= 0]
    known = {progress.key: progress for progress in left} | role.observers
    role.observers = {
        key: known[key]
        for key in sorted(known, key=lambda key: known[key].last_fetch_ms)
        if not q.voters.contains(key)
    }
    for node_id in [n for n in role.fetched_since_check if q.voters.get(n) is None]:
        del role.fetched_since_check[node_id]
    if not q.others():
        role.check_quorum_at_ms = None
    elif role.check_quorum_at_ms is None:
        role.check_quorum_at_ms = q.now_ms + q.config.check_quorum_ms
    commit(q, role)


def append(q: Quorum, event: LeaderAppend) -> None:
    """Append a batch; nothing happens unless we lead that epoch (the caller looks first)."""
    if not isinstance(q.role, Leader) or event.epoch != q.epoch:
        return
    base_offset = q.log.end
    q.log.append(q.epoch, base_offset, base_offset + event.record_count)
    q.emit(AppendBatch(base_offset, q.epoch, event.payload))
    q.emit(ServeParkedSoon())
    q.emit(SyncLog())


def on_log_synced(q: Quorum, event: LogSynced) -> None:
    """More of our own log is durable, and counts from now on."""
    if not q.log.synced(event.end_offset, event.truncations):
        return
    q.heal()
    if isinstance(q.role, Leader):
        commit(q, q.role)


def commit(q: Quorum, role: Leader) -> None:
    """Advance the high watermark to what a majority holds durably.

    Only once a record of this epoch is among it: an older epoch's record may be on a majority
    and still be overwritten (Raft paper §5.4.2, figure 8).
    """
    ends = [progress.end_offset for progress in role.voters.values()]
    if q.is_voter:
        ends.append(q.log.synced_end)
    elif q.voters.get(q.node_id) is not None:
        ends.append(-1)  # another disk of this node is the voter
    offset = replicated_offset(ends)
    if offset <= role.epoch_start or offset <= q.high_watermark:
        return
    if not role.committed_in_epoch:
        role.committed_in_epoch = True
        for read in role.reads:
            read.offset = offset
    q.advance_high_watermark(offset)
    q.emit(ServeParkedSoon())
    finish_reads(q, role)


def others_needed(q: Quorum) -> int:
    """How many other voters make a majority with us."""
    return q.voters.majority - (1 if q.is_voter else 0)


def heard_from(q: Quorum, role: Leader, key: ReplicaKey) -> None:
    """A voter fetched: with enough of them the leader stays one."""
    if key.node_id == q.node_id or not q.voters.contains(key):
        return
    role.fetched_since_check[key.node_id] = None
    if len(role.fetched_since_check) >= others_needed(q):
        role.fetched_since_check.clear()
        if role.check_quorum_at_ms is not None:
            role.check_quorum_at_ms = q.now_ms + q.config.check_quorum_ms


def progress_of(q: Quorum, role: Leader, key: ReplicaKey) -> Progress | None:
    """What is known of a replica; None for one without a name, or that isn't remembered."""
    if key.node_id < 0 or key.node_id == q.node_id:
        return None
    if q.voters.contains(key):
        return role.voters[key.node_id]
    return role.observers.get(key)


def fetching(q: Quorum, role: Leader, key: ReplicaKey) -> Progress | None:
    """Where to note a fetch that a replica has just sent; None for one without a name."""
    if key.node_id < 0 or key.node_id == q.node_id or q.voters.contains(key):
        return progress_of(q, role, key)
    # The last to have fetched is the last of the observers.
    progress = role.observers.pop(key, None)
    if progress is None:
        progress = Progress(key)
        if len(role.observers) >= MAX_OBSERVERS:
            del role.observers[next(iter(role.observers))]
    role.observers[key] = progress
    return progress


# Reads


def confirm(q: Quorum, event: ConfirmLeadership) -> None:
    """Begin a linearizable read (Raft paper §6.4): enough voters must answer an announcement
    sent after this. (A fetch doesn't tell whether it was sent before the read or after.)"""
    role = q.role
    if not isinstance(role, Leader):
        q.emit(LeadershipRefused(event.token))
        return
    role.reads.append(
        PendingRead(event.token, q.high_watermark if role.committed_in_epoch else None)
    )
    finish_reads(q, role)


def answer_fetch(
    q: Quorum,
    role: Leader,
    token: int,
    key: ReplicaKey,
    read_from: int | None = None,
) -> None:
    """Answer a fetch whose position is valid, with records from `read_from` or without."""
    told = q.high_watermark if role.committed_in_epoch else -1
    progress = progress_of(q, role, key)
    if progress is not None:
        progress.told_high_watermark = told
    q.emit(
        SendResponse(
            token,
            FetchResponse(ErrorCode.none, q.told[0], q.epoch, told, read_from=read_from),
        )
    )


def finish_reads(q: Quorum, role: Leader) -> None:
    needed = others_needed(q)
    waiting: list[PendingRead] = []
    for read in role.reads:
        answered = read.roll_call.confirmed
        confirmed = sum(q.voters.get(voter_id) is not None for voter_id in answered)
        if read.offset is not None and confirmed >= needed:
            q.emit(LeadershipConfirmed(read.token, read.offset))
        else:
            waiting.append(read)
    role.reads = waiting


# Giving up


def resign(q: Quorum, event: Resign) -> None:
    q.leaving = q.leaving or event.leaving
    if isinstance(q.role, Leader):
        step_down(q, q.role)
    elif event.leaving:
        q.wait_to_stand()
        q.emit(Resigned())


def step_down(q: Quorum, role: Leader) -> None:
    """Resign; the voters that hold most of the log are asked to stand first (KIP-595)."""
    ranked = sorted(
        role.voters.values(), key=lambda progress: (-progress.end_offset, progress.key.node_id)
    )
    q.become_resigned(tuple(progress.key for progress in ranked))
    leave_role(q, role)
    if not q.others():
        q.emit(Resigned())


def leave_role(q: Quorum, role: Leader) -> None:
    """Let go of those who wait for a leader that we no longer are."""
    for read in role.reads:
        q.emit(LeadershipRefused(read.token))
    for token in role.parked:
        q.emit(
            SendResponse(
                token,
                FetchResponse(ErrorCode.not_leader_or_follower, *q.told),
            )
        )
    role.reads, role.parked = [], {}
    if role.change is not None:
        change, role.change = role.change, None
        answer_change(q, change, ErrorCode.not_leader_or_follower, "the leader has resigned")


def answer_change(
    q: Quorum, change: PendingChange, error: ErrorCode = ErrorCode.none, message: str | None = None
) -> None:
    """Tell who waits for a change of membership how it ended."""
    if change.upgrade:
        q.emit(UpgradeAnswered(change.token, error, message or ""))
        return
    response = VoterChangeResponse(error, *q.told, message)
    q.emit(SendResponse(change.token, response))


# Announcements: BeginQuorumEpoch while leading, EndQuorumEpoch once resigned


def announce(q: Quorum) -> None:
    """Send the announcements that are due."""
    role = q.role
    if not isinstance(role, Leader | ResignedLeader):
        return
    roll_calls = role.roll_calls() if isinstance(role, Leader) else []
    for peer_id, announcement in role.announcements.items():
        if announcement.at_ms is None:
            continue
        due = announcement.at_ms <= q.now_ms
        if isinstance(role, ResignedLeader):
            if due:
                announcement.at_ms = None
                q.emit(SendRequest(peer_id, EndEpochRequest(q.node_id, q.epoch, role.successors)))
            continue
        unasked = [one for one in roll_calls if peer_id not in one.asked]
        if not due and (announcement.failed or not unasked):
            continue
        if not unasked and _is_fetching(q, role, peer_id):
            announcement.at_ms = q.now_ms + q.config.announce_interval_ms
            continue
        announcement.at_ms = None
        for one in unasked:
            one.asked[peer_id] = None
        key = q.voters.key_of(peer_id)
        q.emit(SendRequest(peer_id, BeginEpochRequest(key, q.node_id, q.epoch)))


def _is_fetching(q: Quorum, role: Leader, peer_id: int) -> bool:
    last_fetch_ms = role.voters[peer_id].last_fetch_ms
    return last_fetch_ms >= 0 and last_fetch_ms > q.now_ms - q.config.announce_interval_ms


def on_announced(
    q: Quorum,
    peer_id: int,
    epoch: int,
    response: BeginEpochResponse | EndEpochResponse | None,
) -> None:
    """An announcement of ours was answered, or failed (None)."""
    role = q.role
    if not isinstance(role, Leader | ResignedLeader) or epoch != q.epoch:
        return
    announcement = role.announcements.get(peer_id)
    if announcement is None or announcement.done:
        return
    announcement.failed = response is None
    if response is None:
        announcement.at_ms = q.retry_at_ms() + q.config.lost_leader_wait_max_ms
        if isinstance(role, Leader):
            for one in role.roll_calls():
                one.asked.pop(peer_id, None)
    elif isinstance(role, Leader):
        announcement.at_ms = q.now_ms + q.config.announce_interval_ms
        if response.error == ErrorCode.none and response.leader_id == q.node_id:
            for one in role.roll_calls():
                if peer_id in one.asked:
                    one.confirmed[peer_id] = None
            finish_reads(q, role)
        else:
            # It may confirm later what it can't now, but isn't asked in a circle.
            announcement.failed = True
            for one in role.roll_calls():
                one.asked.pop(peer_id, None)
    elif isinstance(response, EndEpochResponse):
        announcement.done = True
        if all(entry.done for entry in role.announcements.values()):
            q.emit(Resigned())


def on_leader_tick(q: Quorum) -> None:
    role = q.role
    if isinstance(role, Leader):
        if role.check_quorum_at_ms is not None and role.check_quorum_at_ms <= q.now_ms:
            # A majority may follow another leader by now: whoever waits for us shall know.
            step_down(q, role)
            return
        expired_ms = q.now_ms - q.config.observer_session_ms
        while role.observers:
            key, progress = next(iter(role.observers.items()))
            if progress.last_fetch_ms >= expired_ms:
                break
            del role.observers[key]
    elif isinstance(role, ResignedLeader) and role.deadline_ms <= q.now_ms:
        if not all(entry.done for entry in role.announcements.values()):
            q.emit(Resigned())
        if not q.has_next_epoch():
            return
        soon_ms = q.now_ms + q.chance.randint(0, q.config.election_timeout_ms)
        q.become_unattached(q.epoch + 1, election_at_ms=soon_ms)
