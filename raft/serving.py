"""How a node answers Fetch, FetchSnapshot, BeginQuorumEpoch and EndQuorumEpoch.

A fetch is answered at once if there are records past its offset, or if its sender doesn't know
our high watermark yet (KIP-1166; a voter is told of it a little later if no records come);
otherwise it is parked until there are, or its wait is over.
"""

from __future__ import annotations

from raft.effects import SendResponse
from raft.elections import is_doubted, learn, names, refuse_leader, refuses_epoch
from raft.following import leader_lost
from raft.leading import answer_fetch, commit, fetching, heard_from, progress_of
from raft.log_view import UNKNOWN_END, Diverging, NeedsSnapshot
from raft.messages import (
    HIGH_WATERMARK_UNSUPPORTED,
    NO_LEADER,
    Address,
    BeginEpochRequest,
    BeginEpochResponse,
    EndEpochRequest,
    EndEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
)
from raft.quorum import backoff_ms
from raft.roles import Follower, Leader, ParkedFetch, Progress
from raft.state import Quorum
from wire.errors import ErrorCode


def leader_error(q: Quorum, epoch: int) -> ErrorCode:
    """Why a request that only the leader of its epoch answers can't be answered."""
    if q.leaving:
        return ErrorCode.broker_not_available
    if epoch < q.epoch:
        return ErrorCode.fenced_leader_epoch
    if epoch > q.epoch:
        return ErrorCode.unknown_leader_epoch
    if not isinstance(q.role, Leader):
        return ErrorCode.not_leader_or_follower
    return ErrorCode.none


def on_fetch(q: Quorum, token: int, request: FetchRequest) -> None:
    error = leader_error(q, request.epoch)
    if min(request.offset, request.last_epoch, request.max_wait_ms) < 0 or (
        request.last_epoch > max(request.epoch, 0)
    ):
        error = ErrorCode.invalid_request
    role = q.role
    if error != ErrorCode.none or not isinstance(role, Leader):
        q.emit(SendResponse(token, FetchResponse(error, *q.told)))
        return
    position = q.log.check_position(request.offset, request.last_epoch)
    if isinstance(position, Diverging | NeedsSnapshot):
        told = q.high_watermark if role.committed_in_epoch else -1
        response = FetchResponse(ErrorCode.none, q.told[0], q.epoch, told)
        if isinstance(position, Diverging):
            response = response._replace(diverging=position.end)
        else:
            response = response._replace(snapshot=position.snapshot)
        q.emit(SendResponse(token, response))
        return
    progress = fetching(q, role, request.replica)
    if progress is not None:
        progress.key = request.replica  # with static voters it tells its directory id only here
        _note_fetch(q, progress, request.offset)
        heard_from(q, role, request.replica)
        if q.voters.contains(request.replica):
            commit(q, role)
    _answer_or_park(
        q,
        role,
        progress,
        ParkedFetch(
            token, request, q.now_ms + min(request.max_wait_ms, q.config.fetch_max_wait_ms)
        ),
    )


def _note_fetch(q: Quorum, progress: Progress, offset: int) -> None:
    if offset < progress.end_offset:
        progress.caught_up_ms = -1  # it has lost some of what it had
    if offset >= q.log.end:
        progress.caught_up_ms = q.now_ms
    elif 0 <= progress.last_fetch_leader_end <= offset:
        progress.caught_up_ms = max(progress.caught_up_ms, progress.last_fetch_ms)
    progress.end_offset = offset
    progress.last_fetch_ms = q.now_ms
    progress.last_fetch_leader_end = q.log.end


def _knows_high_watermark(
    q: Quorum, role: Leader, request: FetchRequest, progress: Progress | None
) -> bool:
    if not role.committed_in_epoch:
        return True
    known = request.high_watermark
    if known == HIGH_WATERMARK_UNSUPPORTED:
        known = q.high_watermark if progress is None else progress.told_high_watermark
    return known >= q.high_watermark


def _answer_or_park(
    q: Quorum, role: Leader, progress: Progress | None, parked: ParkedFetch
) -> None:
    request = parked.request
    key = request.replica
    if request.offset < q.log.end:
        answer_fetch(q, role, parked.token, key, read_from=request.offset)
        return
    informed = _knows_high_watermark(q, role, request, progress)
    if not informed and q.voters.contains(key):
        # A voter's part in the commit is done: the news can wait for the next records, if they
        # come soon, and one round trip carries both.
        parked.deadline_ms = min(parked.deadline_ms, q.now_ms + q.config.news_wait_max_ms)
        informed = True
    if parked.deadline_ms <= q.now_ms or not informed:
        answer_fetch(q, role, parked.token, key)
        return
    role.parked[parked.token] = parked


def serve_parked(q: Quorum) -> None:
    """Answer the parked fetches that need wait no longer."""
    role = q.role
    if not isinstance(role, Leader) or not role.parked:
        return
    waiting = role.parked
    role.parked = {}
    for parked in waiting.values():
        _answer_or_park(q, role, progress_of(q, role, parked.request.replica), parked)


def on_fetch_snapshot(q: Quorum, token: int, request: FetchSnapshotRequest) -> None:
    error = leader_error(q, request.epoch)
    if error == ErrorCode.none:
        if request.position < 0:
            error = ErrorCode.position_out_of_range
        elif request.snapshot.offset <= 0:
            # The bootstrap snapshot is each node's own.
            error = ErrorCode.snapshot_not_found
    role = q.role
    if error == ErrorCode.none and isinstance(role, Leader):
        heard_from(q, role, request.replica)
    q.emit(
        SendResponse(
            token,
            FetchSnapshotResponse(error, *q.told, request.snapshot, request.position),
        )
    )


def on_begin_epoch(q: Quorum, token: int, request: BeginEpochRequest) -> None:
    if is_doubted(q, request.leader_id, request.voter, request.epoch):
        q.emit(SendResponse(token, BeginEpochResponse(ErrorCode.invalid_voter_key, *q.told)))
        return
    error = _announcement_error(q, request.leader_id, request.epoch, request.leader_address)
    if error == ErrorCode.none:
        learn(q, request.leader_id, request.leader_id, request.epoch, request.leader_address)
        if request.leader_id == q.leader_id and request.leader_address is not None:
            q.leader_address = request.leader_address  # it knows best where it is
        if not names(q.key, request.voter):
            error = ErrorCode.invalid_voter_key
    response = BeginEpochResponse(error, *q.told)
    if q.needs_end == UNKNOWN_END and error == ErrorCode.none:
        # It may have forgotten a later epoch, so nobody confirms a read by what it says.
        response = response._replace(leader_id=NO_LEADER)
    q.emit(SendResponse(token, response))


def on_end_epoch(q: Quorum, token: int, request: EndEpochRequest) -> None:
    """The leader resigned: stand when our place among its successors says."""
    error = _announcement_error(q, request.leader_id, request.epoch)
    if error == ErrorCode.none:
        learn(q, request.leader_id, request.leader_id, request.epoch)
        role = q.role
        if isinstance(role, Follower) and role.leader_id == request.leader_id:
            place = next((i for i, key in enumerate(request.successors) if names(q.key, key)), -1)
            wait_ms = backoff_ms(place, q.config.election_backoff_max_ms, len(q.voters))
            leader_lost(q, stand_at_ms=q.now_ms + wait_ms)
    q.emit(SendResponse(token, EndEpochResponse(error, *q.told)))


def _announcement_error(
    q: Quorum, leader_id: int, epoch: int, address: Address | None = None
) -> ErrorCode:
    if epoch < q.epoch:
        return ErrorCode.fenced_leader_epoch
    if refuses_epoch(q, leader_id, epoch):
        return ErrorCode.invalid_request
    if leader_id < 0 or leader_id == q.node_id:
        return ErrorCode.invalid_request
    if epoch == q.epoch and q.leader_id not in (NO_LEADER, leader_id):
        refuse_leader(q, leader_id, leader_id, epoch)
        return ErrorCode.invalid_request
    # A leader that isn't among our voters may be among those of a log longer than ours.
    known = q.voters.get(leader_id) is not None or leader_id == q.leader_id or address is not None
    return ErrorCode.none if known else ErrorCode.invalid_request
