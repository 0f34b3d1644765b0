"""The leader's side of KIP-853: voters are added, removed and updated, kraft.version rises.

One change at a time: none begins before this leader has committed a record of its own epoch, nor
while the last change is uncommitted. Two sets that follow each other then always share a member
of any two of their majorities.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from raft.effects import ProbeVoter, SendResponse, UpgradeAnswered
from raft.events import UpgradeKraftVersion, VoterProbed
from raft.leading import answer_change, append_membership, step_down
from raft.messages import (
    AddVoterRequest,
    RemoveVoterRequest,
    UpdateVoterRequest,
    VoterChangeRequest,
    VoterChangeResponse,
)
from raft.roles import Leader, PendingChange, RollCall
from raft.serving import leader_error, serve_parked
from raft.state import Quorum
from raft.voters import MAX_KRAFT_VERSION, ReplicaKey, Voter, VoterSet, nothing_committed
from wire.errors import ErrorCode
from wire.uuids import to_text


class _Refusal(NamedTuple):
    error: ErrorCode
    message: str | None


_MOST_LISTED = 10  # observers in a message, those that fetched last
_NO_LEADER = "this node doesn't lead the quorum"


def on_request(q: Quorum, token: int, request: VoterChangeRequest) -> None:
    """Begin a change, or say why not."""
    epoch = request.epoch if isinstance(request, UpdateVoterRequest) else q.epoch
    error = leader_error(q, epoch)
    role = q.role
    refusal: _Refusal | None
    if error != ErrorCode.none or not isinstance(role, Leader):
        refusal = _Refusal(error, _NO_LEADER)
    elif isinstance(request, AddVoterRequest):
        refusal = _add(q, role, token, request)
    elif isinstance(request, RemoveVoterRequest):
        refusal = _remove(q, role, token, request)
    else:
        # Who asks here waits for nothing: the record, where there is one, will reach it.
        refusal = _update(q, role, request) or _Refusal(ErrorCode.none, None)
    if refusal is not None:
        response = VoterChangeResponse(refusal.error, *q.told, refusal.message)
        q.emit(SendResponse(token, response))


def _not_yet(q: Quorum, role: Leader) -> _Refusal | None:
    """Why nothing can be changed just now."""
    if role.change is not None:
        return _Refusal(ErrorCode.request_timed_out, "another change of the voters is under way")
    if not role.committed_in_epoch:
        return _Refusal(ErrorCode.request_timed_out, nothing_committed(q.epoch))
    return None


def _uncommitted(q: Quorum) -> _Refusal | None:
    offset = q.history.voters_offset
    if offset is None or offset >= q.high_watermark:
        return _Refusal(
            ErrorCode.request_timed_out,
            f"the last change of the voters, at offset {offset}, isn't committed yet: "
            f"the high watermark is {q.high_watermark}",
        )
    return None


def _not_dynamic(q: Quorum) -> _Refusal | None:
    if q.history.kraft_version == 0:
        return _Refusal(
            ErrorCode.unsupported_version,
            "the voters are static: kraft.version is 0, and 1 is needed to change them",
        )
    return None


def _add(q: Quorum, role: Leader, token: int, request: AddVoterRequest) -> _Refusal | None:
    voter = request.voter
    refusal = (
        _incomplete(q, voter.key)
        or _unreachable(q, voter)
        or _not_yet(q, role)
        or _not_dynamic(q)
        or _uncommitted(q)
    )
    if refusal is not None:
        return refusal
    if q.voters.get(voter.key.node_id) is not None:
        return _Refusal(
            ErrorCode.duplicate_voter,
            f"node {voter.key.node_id} is a voter already, with directory id "
            f"{_directory(q.voters.key_of(voter.key.node_id))}",
        )
    refusal = _taken(q, role, voter)
    if refusal is not None:
        return refusal
    role.change = PendingChange(
        token,
        q.now_ms + min(request.timeout_ms, q.config.voter_change_ms),
        answer_by_ms=q.now_ms + request.timeout_ms,
        adding=voter,
        until_committed=request.until_committed,
    )
    q.emit(ProbeVoter(token, voter))
    return None


def _incomplete(q: Quorum, key: ReplicaKey) -> _Refusal | None:
    if key.node_id < 0 or key.directory_id is None:
        return _Refusal(
            ErrorCode.invalid_request,
            f"a voter is named by node id and directory id, not {_describe(key)}",
        )
    return None


def _unreachable(q: Quorum, voter: Voter) -> _Refusal | None:
    name = q.config.listener_name
    if name not in voter.endpoints:
        listed = ", ".join(voter.endpoints) or "none"
        return _Refusal(
            ErrorCode.invalid_request, f"a voter must have listener {name}; given: {listed}"
        )
    return None


def _taken(q: Quorum, role: Leader, voter: Voter) -> _Refusal | None:
    """An address at which another voter lives would answer as a controller does, but as another
    one. That of a dead one may have got a new node."""
    name = q.config.listener_name
    address = voter.endpoints[name]
    for other in q.voters:
        if other.endpoints.get(name) == address and _lives(q, role, other.key.node_id):
            return _Refusal(
                ErrorCode.invalid_request,
                f"{address[0]}:{address[1]} is where {_describe(other.key)} is reached, a voter "
                f"already; {_describe(voter.key)} needs an address of its own",
            )
    return None


def _lives(q: Quorum, role: Leader, node_id: int) -> bool:
    """Whether a voter is this leader, or has fetched from it of late."""
    if node_id == q.node_id:
        return True
    last_fetch_ms = role.voters[node_id].last_fetch_ms
    return last_fetch_ms >= 0 and last_fetch_ms > q.now_ms - q.config.fetch_timeout_ms


def _remove(q: Quorum, role: Leader, token: int, request: RemoveVoterRequest) -> _Refusal | None:
    key = request.voter
    refusal = _incomplete(q, key) or _not_yet(q, role) or _not_dynamic(q) or _uncommitted(q)
    if refusal is not None:
        return refusal
    voter = q.voters.get(key.node_id)
    if voter is None or voter.key != key:
        listed = ", ".join(_describe(one.key) for one in q.voters)
        return _Refusal(
            ErrorCode.voter_not_found, f"{_describe(key)} is no voter; these are: {listed}"
        )
    if len(q.voters) == 1:
        return _Refusal(
            ErrorCode.voter_not_found, f"{_describe(key)} is the only voter and has to stay"
        )
    refusal = _too_few(q, role, q.voters.without(key))
    if refusal is not None:
        return refusal
    # A voter that died just now seems to live, by its last fetch.
    role.change = PendingChange(
        token, q.now_ms + q.config.voter_change_ms, removing=key, roll_call=RollCall()
    )
    return None


def _too_few(q: Quorum, role: Leader, voters: VoterSet) -> _Refusal | None:
    """A set without a living majority could not commit itself, nor elect anybody ever after."""
    living = [one.key for one in voters if _lives(q, role, one.key.node_id)]
    if len(living) >= voters.majority:
        return None
    told = f"{_who_would_be_left(voters, living)} fetch at present, and {voters.majority} have to. "
    silent = _not_among(living, voters)
    return _Refusal(
        ErrorCode.request_timed_out, f"{told}Not so (down, cut off or far behind): {silent}"
    )


def _who_would_be_left(voters: VoterSet, living: list[ReplicaKey]) -> str:
    return f"only {len(living)} of the {len(voters)} voters that would be left"


def _not_among(living: list[ReplicaKey], voters: VoterSet) -> str:
    return ", ".join(_describe(one.key) for one in voters if one.key not in living)


def _answering(q: Quorum, role: Leader, change: PendingChange) -> list[ReplicaKey]:
    """Of the voters that a removal would leave, those that fetch and have answered since."""
    assert change.removing is not None
    assert change.roll_call is not None
    heard = (q.node_id, *change.roll_call.confirmed)
    left = [one.key for one in q.voters.without(change.removing)]
    # Who answers, but doesn't fetch, commits nothing.
    return [key for key in left if key.node_id in heard and _lives(q, role, key.node_id)]


def _remove_when_sure(q: Quorum, role: Leader, change: PendingChange, key: ReplicaKey) -> None:
    left = q.voters.without(key)
    if len(_answering(q, role, change)) < left.majority:
        return
    change.offset, change.roll_call = append_membership(q, role, left), None
    change.deadline_ms = q.now_ms + q.config.voter_change_ms


def _update(q: Quorum, role: Leader, request: UpdateVoterRequest) -> _Refusal | None:
    voter, level = request.voter, q.history.kraft_version
    refusal = _incomplete(q, voter.key) or _unreachable(q, voter) or _not_yet(q, role)
    if refusal is not None:
        return refusal
    if not 0 <= voter.min_kraft_version <= level <= voter.max_kraft_version:
        return _Refusal(ErrorCode.invalid_request, _wrong_range(voter, level))
    if level == 0:
        told = role.told_voters
        if told is None or told.get(voter.key.node_id) is None:
            return _Refusal(ErrorCode.voter_not_found, f"{_describe(voter.key)} is no voter")
        role.told_voters = told.with_voter(voter)
        return None
    refusal = _uncommitted(q)
    if refusal is not None:
        return refusal
    if not q.voters.contains(voter.key):
        return _Refusal(ErrorCode.voter_not_found, f"{_describe(voter.key)} is no voter")
    if q.voters.get(voter.key.node_id) != voter:
        append_membership(q, role, q.voters.with_voter(voter))
    return None


def _wrong_range(voter: Voter, level: int) -> str:
    return (
        f"{_describe(voter.key)} supports kraft.version {voter.min_kraft_version} to "
        f"{voter.max_kraft_version}, but {level} is finalised"
    )


def on_probed(q: Quorum, event: VoterProbed) -> None:
    """The node to be added has said what it supports, or nothing."""
    role = q.role
    change = role.change if isinstance(role, Leader) else None
    if change is None or change.token != event.token or change.adding is None:
        return
    if change.probed_ms is not None:
        return
    assert isinstance(role, Leader)
    if event.kraft_versions is None:
        address = change.adding.endpoints[q.config.listener_name]
        _end(
            q,
            role,
            ErrorCode.request_timed_out,
            f"{_describe(change.adding.key)} doesn't answer at {address[0]}:{address[1]}",
        )
        return
    if not event.serves_quorum:
        host, port = change.adding.endpoints[q.config.listener_name]
        _end(
            q,
            role,
            ErrorCode.invalid_request,
            f"{host}:{port} is no controller's listener: it doesn't serve Vote, "
            "BeginQuorumEpoch, EndQuorumEpoch and FetchSnapshot",
        )
        return
    low, high = event.kraft_versions
    change.adding = replace(change.adding, min_kraft_version=low, max_kraft_version=high)
    assert change.answer_by_ms is not None
    change.probed_ms = q.now_ms
    change.deadline_ms = min(q.now_ms + q.config.voter_change_ms, change.answer_by_ms)
    level = q.history.kraft_version
    if not low <= level <= high:
        _end(q, role, ErrorCode.invalid_request, _wrong_range(change.adding, level))
        return
    if change.until_committed:
        _have_it_fetch(q, role, change.adding.key)


def _have_it_fetch(q: Quorum, role: Leader, key: ReplicaKey) -> None:
    """It fetches again as soon as its last fetch is answered."""
    for parked in role.parked.values():
        if parked.request.replica == key:
            parked.deadline_ms = q.now_ms
    serve_parked(q)


def on_abandoned(q: Quorum, token: int) -> None:
    """Who asked for a change is gone: one of which nothing is written ends here, so that it is in
    nobody's way."""
    role = q.role
    if isinstance(role, Leader) and role.change is not None:
        change = role.change
        if change.token == token and not change.upgrade and change.offset is None:
            role.change = None


def advance(q: Quorum) -> None:
    """Take the change under way as far as it goes now; a leader that isn't a voter resigns once
    that, and something of its epoch, is committed."""
    role = q.role
    if not isinstance(role, Leader) or (role.change is None and q.is_voter):
        return
    change = role.change
    if change is not None and change.adding is not None and change.offset is None:
        _add_when_caught_up(q, role, change, change.adding)
    elif change is not None and change.removing is not None and change.offset is None:
        _remove_when_sure(q, role, change, change.removing)
    elif change is not None and change.offset is not None and change.offset < q.high_watermark:
        _end(q, role, ErrorCode.none, None)
    change = role.change
    if change is not None and change.deadline_ms is not None and change.deadline_ms <= q.now_ms:
        _end(q, role, ErrorCode.request_timed_out, _why_late(q, role, change))
    if not q.is_voter and role.committed_in_epoch and _uncommitted(q) is None:
        step_down(q, role)


def _add_when_caught_up(q: Quorum, role: Leader, change: PendingChange, voter: Voter) -> None:
    if change.probed_ms is None:
        return
    if _has_caught_up(q, role, change, voter.key):
        change.offset = append_membership(q, role, q.voters.with_voter(voter))
        change.deadline_ms = change.answer_by_ms
        if not change.until_committed:
            _end(q, role, ErrorCode.none, None)
    elif voter.key not in role.observers:
        latest = list(role.observers)[-_MOST_LISTED:]
        listed = ", ".join(_describe(key) for key in latest) or "none"
        reason = f"{_describe(voter.key)} doesn't fetch from this leader; those that do: {listed}"
        _end(q, role, ErrorCode.request_timed_out, reason)
    elif not change.until_committed:
        _end(q, role, ErrorCode.request_timed_out, _why_late(q, role, change))


def _has_caught_up(q: Quorum, role: Leader, change: PendingChange, key: ReplicaKey) -> bool:
    """A voter that lags would hold up every commit that needs it.

    What was so before the probe may be so no more: its disk may have lost what it had.
    """
    progress = role.observers.get(key)
    if progress is None or progress.caught_up_ms < 0:
        return False
    assert change.probed_ms is not None
    if change.until_committed:
        return progress.caught_up_ms >= change.probed_ms
    # It asks for itself, so it fetches, and on the same connection: not while it is answered.
    return progress.caught_up_ms >= q.now_ms - q.config.fetch_timeout_ms


def _why_late(q: Quorum, role: Leader, change: PendingChange) -> str:
    if change.offset is not None:
        return f"the change, at offset {change.offset}, isn't committed yet"
    if change.removing is not None:
        left, answering = q.voters.without(change.removing), _answering(q, role, change)
        return (
            f"{_who_would_be_left(left, answering)} fetch and have answered since, and "
            f"{left.majority} have to. Not so (down, cut off or far behind): "
            f"{_not_among(answering, left)}"
        )
    assert change.adding is not None, change
    name = _describe(change.adding.key)
    return f"{name} doesn't answer" if change.probed_ms is None else f"{name} hasn't caught up"


def _end(q: Quorum, role: Leader, error: ErrorCode, message: str | None) -> None:
    change, role.change = role.change, None
    assert change is not None
    answer_change(q, change, error, message)


def upgrade(q: Quorum, event: UpgradeKraftVersion) -> None:
    """kraft.version 0 to 1: the static voters become those in the log, under the directory ids
    that they have told this leader."""
    refusal = _why_no_upgrade(q, event.level)
    role = q.role
    if refusal is None and not event.validate_only and q.history.kraft_version != event.level:
        assert isinstance(role, Leader)
        assert role.told_voters is not None
        offset = append_membership(q, role, role.told_voters, event.level)
        role.change = PendingChange(event.token, None, upgrade=True, offset=offset)
        return
    error, message = refusal or _Refusal(ErrorCode.none, None)
    q.emit(UpgradeAnswered(event.token, error, message or ""))


def _why_no_upgrade(q: Quorum, level: int) -> _Refusal | None:
    role = q.role
    error = leader_error(q, q.epoch)
    if error != ErrorCode.none or not isinstance(role, Leader):
        return _Refusal(error, _NO_LEADER)
    refusal = _not_yet(q, role)
    now = q.history.kraft_version
    if refusal is not None or level == now:
        return refusal
    wanted = f"kraft.version can't be set to {level}"
    if level < now:
        reason = f"it is at {now} and never goes down"
    elif level > MAX_KRAFT_VERSION:
        reason = f"0 to {MAX_KRAFT_VERSION} are supported"
    else:
        assert role.told_voters is not None, q.describe()
        behind = [
            str(voter.key.node_id)
            for voter in role.told_voters
            if voter.key.directory_id is None or voter.max_kraft_version < level
        ]
        if not behind:
            return None
        reason = f"voters {', '.join(behind)} haven't told that they support it (who is down can't)"
    return _Refusal(ErrorCode.invalid_update_version, f"{wanted}: {reason}")


def _directory(key: ReplicaKey) -> str:
    return "unknown" if key.directory_id is None else to_text(key.directory_id)


def _describe(key: ReplicaKey) -> str:
    return f"node {key.node_id} with directory id {_directory(key)}"
