"""Votes and pre-votes, both sides of them (Raft paper §5.2, §5.4.1; KIP-595, KIP-996)."""

from __future__ import annotations

from raft import leading
from raft.effects import MessageRefused, SendRequest, SendResponse
from raft.messages import NO_LEADER, Address, VoteRequest, VoteResponse
from raft.quorum import Outcome, is_leap, outcome
from raft.roles import Candidate, Follower, Leader, Prospective, Unattached
from raft.state import Quorum
from raft.voters import ReplicaKey
from wire.errors import ErrorCode
from wire.uuids import to_text


def learn(
    q: Quorum, peer_id: int, leader_id: int, epoch: int, address: Address | None = None
) -> bool:
    """Take up what `peer_id` says of leader and epoch; True if our role changed by it.

    A leader can be followed that is among our voters, or that somebody gave an address for: our
    voter set may lag behind the one that elected it (KIP-853).
    """
    reachable = q.voters.get(leader_id) is not None or address is not None
    if not q.is_listed(peer_id) and refuses_epoch(q, peer_id, epoch):
        return False
    if epoch > q.epoch:
        if leader_id == q.node_id:
            # They saw us lead an epoch that we have forgotten: never vote in it.
            q.become_unattached(epoch, voted=q.key)
        elif leader_id != NO_LEADER and reachable:
            q.become_follower(epoch, leader_id, address)
        else:
            q.become_unattached(epoch)
        return True
    if epoch < q.epoch or leader_id in (NO_LEADER, q.node_id):
        return False
    if leader_id == q.leader_id:
        role = q.role
        if address is not None and isinstance(role, Follower) and role.lost:
            q.leader_address = address
        return False
    if q.leader_id not in (NO_LEADER, peer_id) or (q.leader_id == peer_id and not reachable):
        refuse_leader(q, peer_id, leader_id, epoch)
        return False
    if not reachable:
        return False
    # Where it is the one that we follow who names another, it never led this epoch.
    q.leader_id = NO_LEADER
    q.become_follower(epoch, leader_id, address)
    return True


def refuse_leader(q: Quorum, peer_id: int, leader_id: int, epoch: int) -> None:
    """An epoch has one leader. Which of two that are named isn't, can't be told: anybody may have
    named the first. If it was wrong, an election ends this epoch."""
    reason = f"two leaders in epoch {epoch}: {q.leader_id} and {leader_id}"
    q.emit(MessageRefused(peer_id, reason))


def on_vote_request(q: Quorum, token: int, request: VoteRequest) -> None:
    if is_doubted(q, request.candidate.node_id, request.voter):
        refusal = VoteResponse(ErrorCode.invalid_voter_key, *q.told, granted=False)
        q.emit(SendResponse(token, refusal))
        return
    error = _vote_error(q, request)
    granted = False
    if error == ErrorCode.none:
        if request.epoch > q.epoch:
            q.become_unattached(request.epoch)
        if not names(q.key, request.voter):
            error = ErrorCode.invalid_voter_key
        elif request.pre_vote:
            granted = _grants_pre_vote(q, request)
            if granted:
                _give_way(q)
        elif _grants_vote(q, request):
            granted = True
            q.become_unattached(q.epoch, voted=request.candidate)
    q.emit(SendResponse(token, VoteResponse(error, *q.told, granted)))


def _vote_error(q: Quorum, request: VoteRequest) -> ErrorCode:
    last = request.last
    # A candidate has raised its epoch above all of its log; a pre-voter hasn't yet.
    highest_epoch = request.epoch if request.pre_vote else request.epoch - 1
    if last.offset < 0 or last.epoch < 0 or last.epoch > highest_epoch:
        return ErrorCode.invalid_request
    if request.epoch < q.epoch:
        return ErrorCode.fenced_leader_epoch
    if refuses_epoch(q, request.candidate.node_id, request.epoch):
        return ErrorCode.invalid_request
    if request.candidate.node_id < 0 or request.candidate.node_id == q.node_id:
        return ErrorCode.invalid_request
    return ErrorCode.none


def refuses_epoch(q: Quorum, sender_id: int, epoch: int) -> bool:
    """Whether a request, or the answer of one that isn't listed, would use up epochs that the
    quorum needs to elect with. Who really is that far behind hears of the epoch when it asks the
    voters itself."""
    if not is_leap(q.epoch, epoch):
        return False
    q.emit(MessageRefused(sender_id, f"it leaps from epoch {q.epoch} to {epoch}"))
    return True


def names(key: ReplicaKey, receiver: ReplicaKey | None) -> bool:
    """Whether a request meant for `receiver` is for `key` (an unknown directory id fits all)."""
    if receiver is None:
        return True
    if receiver.node_id != key.node_id:
        return False
    return None in (receiver.directory_id, key.directory_id) or receiver == key


def is_doubted(
    q: Quorum, sender_id: int, receiver: ReplicaKey | None, leads_epoch: int = -1
) -> bool:
    """Whether a request says that this node leads what can't be its cluster's quorum. From now on,
    for a while, nobody hears from us of leader and epoch: one ahead, and the others would follow.

    The sender knows the voter of our id by another directory id, so it has voters in its log
    (kraft.version 1), and our disk is another one. That can't be if we lead by configured voters,
    with no set in our log, nor if the sender leads a later epoch: it has everything that was
    committed before. But a candidate, or the leader of an earlier epoch, may not have heard yet
    that our disk was replaced in order; and who leads without being a voter knows that it isn't.

    Anybody may say so, and a leader that is its quorum's only voter has nobody to ask whether it
    is true. So it leads on for those who follow it already.
    """
    if not isinstance(q.role, Leader) or receiver is None or names(q.key, receiver):
        return False
    if receiver.node_id != q.node_id:
        return False
    if q.history.voters_offset is not None and (leads_epoch <= q.epoch or not q.is_voter):
        return False
    q.doubted_until_ms = q.now_ms + q.config.doubt_ms
    reason = (
        f"this node leads epoch {q.epoch} with directory id {_text(q.key)}, but node {sender_id} "
        f"knows voter {q.node_id} by directory id {_text(receiver)}. If node {sender_id} is of "
        "this cluster, this disk was formatted to begin a quorum where there is one: format it "
        "anew, with --no-initial-controllers and without controller.quorum.voters"
    )
    q.emit(MessageRefused(sender_id, reason))
    return True


def _text(key: ReplicaKey) -> str:
    return "none" if key.directory_id is None else to_text(key.directory_id)


def _is_up_to_date(q: Quorum, request: VoteRequest) -> bool:
    own = q.log.last
    return (request.last.epoch, request.last.offset) >= (own.epoch, own.offset)


def _grants_vote(q: Quorum, request: VoteRequest) -> bool:
    if q.needs_end is not None or q.leader_id != NO_LEADER:
        return False
    if not isinstance(q.role, Unattached | Prospective):
        return False
    if q.voted is not None:
        # Asked again by the one we voted for: the same answer.
        return names(request.candidate, q.voted)
    return _is_up_to_date(q, request)


def _grants_pre_vote(q: Quorum, request: VoteRequest) -> bool:
    """Refused by who still hears from its leader: a flapping peer deposes nobody."""
    if q.needs_end is not None or not _is_up_to_date(q, request):
        return False
    role = q.role
    if isinstance(role, Follower):
        return role.lost or not role.has_fetched
    return isinstance(role, Unattached | Prospective | Candidate)


def _give_way(q: Quorum) -> None:
    """Having promised a vote, leave the peer time to come and ask for it."""
    role = q.role
    pause_ms = q.now_ms + q.chance.randint(1, 3) * q.config.lost_leader_wait_max_ms
    if isinstance(role, Unattached):
        if role.election_at_ms is not None:
            role.election_at_ms = max(role.election_at_ms, pause_ms)
    elif isinstance(role, Follower | Candidate) and role.lost and role.deadline_ms is not None:
        role.deadline_ms = max(role.deadline_ms, pause_ms)


def stand(q: Quorum) -> None:
    """Begin an election: pre-vote first."""
    if q.has_next_epoch():
        q.become_prospective()
        count_votes(q)


def count_votes(q: Quorum) -> None:
    role = q.role
    assert isinstance(role, Prospective | Candidate), role
    result = outcome(q.voters.ids, role.ballot.tally)
    is_lost = isinstance(role, Candidate) and role.lost
    if result is Outcome.LOST and not is_lost:
        lose(q)
    elif result is Outcome.WON and isinstance(role, Prospective):
        q.become_candidate()
        count_votes(q)
    elif result is Outcome.WON:  # late, perhaps: a vote given counts as long as its epoch does
        leading.take_over(q, role.ballot)


def lose(q: Quorum) -> None:
    """Votes can't reach a majority, or time is up: wait a random time, longer each time."""
    role = q.role
    q.failed_elections += 1
    most_ms = q.config.lost_leader_wait_max_ms << min(q.failed_elections, 8)
    if isinstance(role, Candidate):
        most_ms = min(most_ms, q.config.election_backoff_max_ms)
        role.lost = True
        role.deadline_ms = q.now_ms + q.chance.randint(0, most_ms)
        return
    most_ms = min(most_ms, q.config.pre_vote_backoff_max_ms)
    again_at_ms = q.now_ms + q.chance.randint(most_ms // 4, most_ms)
    if q.leader_id != NO_LEADER:
        slot = role.slot if isinstance(role, Prospective) else None
        if slot is not None and slot.in_flight is None:
            slot = None  # what it waited for may have happened meanwhile
        q.become_follower(q.epoch, q.leader_id, lost_until_ms=again_at_ms, slot=slot)
    else:
        q.become_unattached(q.epoch, election_at_ms=again_at_ms)


def ask_for_votes(q: Quorum) -> None:
    """Send the vote requests that are due."""
    role = q.role
    if not isinstance(role, Prospective | Candidate) or (isinstance(role, Candidate) and role.lost):
        return
    for peer_id, at_ms in role.ballot.ask_at_ms.items():
        if at_ms is not None and at_ms <= q.now_ms:
            role.ballot.ask_at_ms[peer_id] = None
            request = VoteRequest(
                q.voters.key_of(peer_id),
                q.epoch,
                q.key,
                q.log.last,
                isinstance(role, Prospective),
            )
            q.emit(SendRequest(peer_id, request))


def _wait_no_longer(q: Quorum, role: Prospective | Candidate) -> None:
    """A peer refuses, so it may take those who haven't answered. One that stands still, as a leader
    may that is to be replaced, is not worth the whole time of an election. Where answers are but
    late, as long as this one took is waited again, and longer after each election that fails."""
    if isinstance(role, Prospective) or not role.lost:
        wait_ms = q.config.lost_leader_wait_max_ms << min(q.failed_elections + 1, 8)
        wait_ms = max(wait_ms, q.now_ms - role.ballot.began_ms)
        role.deadline_ms = min(role.deadline_ms, q.now_ms + wait_ms)


def _current_ballot(q: Quorum, request: VoteRequest) -> Prospective | Candidate | None:
    role = q.role
    wanted = Prospective if request.pre_vote else Candidate
    voter = request.voter
    if voter is not None and voter != q.voters.key_of(voter.node_id):
        return None  # another disk has its place now, or nobody
    if isinstance(role, wanted) and request.epoch == q.epoch:
        assert isinstance(role, Prospective | Candidate)
        return role
    return None


def on_vote_response(q: Quorum, peer_id: int, request: VoteRequest, response: VoteResponse) -> None:
    if learn(q, peer_id, response.leader_id, response.epoch, response.leader_address):
        return
    role = _current_ballot(q, request)
    if role is None or peer_id in role.ballot.votes:
        return
    # An error is a refusal: the peer has seen our request and won't change its mind by itself.
    granted = response.error == ErrorCode.none and response.granted
    role.ballot.votes[peer_id] = granted
    if not granted:
        _wait_no_longer(q, role)
    count_votes(q)


def on_vote_failed(
    q: Quorum, peer_id: int, request: VoteRequest, unsupported_version: bool
) -> None:
    role = _current_ballot(q, request)
    if role is None or peer_id in role.ballot.votes or q.voters.get(peer_id) is None:
        return
    if unsupported_version and request.pre_vote:
        # It knows no pre-vote, so it would have voted: mixed versions must elect (KIP-996).
        role.ballot.votes[peer_id] = True
        count_votes(q)
        return
    role.ballot.ask_at_ms[peer_id] = q.retry_at_ms()
    role.ballot.unreachable[peer_id] = None
    count_votes(q)


def on_election_tick(q: Quorum) -> None:
    """Time for one who stands, or waits to."""
    role = q.role
    if isinstance(role, Unattached):
        if role.election_at_ms is not None and role.election_at_ms <= q.now_ms:
            if q.may_stand:
                stand(q)
            else:
                role.election_at_ms = None
    elif isinstance(role, Follower):
        if role.deadline_ms is not None and role.deadline_ms <= q.now_ms:
            if q.may_stand:
                stand(q)
            else:
                role.deadline_ms = None
                role.lost = True
    elif isinstance(role, Prospective | Candidate) and role.deadline_ms <= q.now_ms:
        if isinstance(role, Candidate) and role.lost:
            if q.may_stand:
                stand(q)
            else:
                q.become_unattached(q.epoch)
        else:
            lose(q)
