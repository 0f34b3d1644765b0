"""What a controller that follows tells the leader of itself as a voter (KIP-853).

A voter whose listeners or kraft.version range differ from what the log says has them updated;
under kraft.version 0 it tells every leader once, which needs to know it to raise the level. With
auto-join, a controller that isn't a voter asks to be one, after it has had its former self, of the
same id but another disk, removed. One that has been a voter and was removed stays out.
"""

from __future__ import annotations

from raft.effects import ChangeRefused, SendRequest
from raft.elections import learn
from raft.messages import (
    AddVoterRequest,
    RemoveVoterRequest,
    UpdateVoterRequest,
    VoterChangeRequest,
    VoterChangeResponse,
)
from raft.roles import Follower
from raft.state import Quorum
from wire.errors import ErrorCode

# It leads no more, or something else goes first.
_PASSING = (
    ErrorCode.not_leader_or_follower,
    ErrorCode.fenced_leader_epoch,
    ErrorCode.request_timed_out,
)


def tell_leader(q: Quorum) -> None:
    """Send what the leader has to be told, if it is time."""
    role = q.role
    if not isinstance(role, Follower):
        return
    slot = role.voter_slot
    if slot.in_flight is not None or slot.next_at_ms > q.now_ms:
        return
    request = _wanted(q, role)
    if request is not None:
        slot.in_flight = request
        q.emit(SendRequest(role.leader_id, request))


def deadline_ms(q: Quorum, role: Follower) -> int | None:
    """When `tell_leader` has something to send next."""
    slot = role.voter_slot
    if slot.in_flight is not None or slot.next_at_ms <= q.now_ms or _wanted(q, role) is None:
        return None
    return slot.next_at_ms


def _wanted(q: Quorum, role: Follower) -> VoterChangeRequest | None:
    own = q.own
    if not (role.has_fetched and own.endpoints and q.can_vote) or role.lost or q.leaving:
        return None
    level = q.history.kraft_version
    if q.is_voter:
        told = role.voter_slot.told if level == 0 else q.voters.get(q.node_id) == own
        return None if told else UpdateVoterRequest(q.epoch, own)
    if not q.config.auto_join or level == 0 or q.needs_end is not None:
        return None
    if q.history.has_named(q.key):
        return None
    if q.voters.get(q.node_id) is not None:
        return RemoveVoterRequest(q.voters.key_of(q.node_id))
    return AddVoterRequest(own, q.config.voter_change_ms, until_committed=False)


def on_response(
    q: Quorum, peer_id: int, request: VoterChangeRequest, response: VoterChangeResponse
) -> None:
    """The leader answers; what it refused is asked again later."""
    _on_end(q, peer_id, request)
    role = q.role
    done = response.error == ErrorCode.none
    if not done and response.error not in _PASSING and q.history.kraft_version > 0:
        what = type(request).__name__.removesuffix("Request")
        reason = f"{what}: {response.error.name.upper()}"
        if response.message:
            reason += f": {response.message}"
        q.emit(ChangeRefused(peer_id, reason))
    if isinstance(role, Follower) and role.leader_id == peer_id and done:
        if isinstance(request, UpdateVoterRequest):
            role.voter_slot.told = role.voter_slot.told or request.epoch == q.epoch
        elif isinstance(request, RemoveVoterRequest):
            # The place is free as soon as we have the record that says so.
            role.voter_slot.next_at_ms = q.now_ms + q.config.fetch_max_wait_ms
    learn(q, peer_id, response.leader_id, response.epoch, response.leader_address)


def on_failed(q: Quorum, peer_id: int, request: VoterChangeRequest) -> None:
    """No answer came."""
    _on_end(q, peer_id, request)


def _on_end(q: Quorum, peer_id: int, request: VoterChangeRequest) -> None:
    role = q.role
    if (
        isinstance(role, Follower)
        and role.leader_id == peer_id
        and role.voter_slot.in_flight is request
    ):
        role.voter_slot.in_flight = None
        role.voter_slot.next_at_ms = q.now_ms + q.config.voter_change_ms
