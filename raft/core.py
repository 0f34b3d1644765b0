"""The one door of the quorum's pure half: `handle(event, now_ms) -> effects`.

The core opens no file, socket, clock or random source. It is told what happened, and answers
with what is to be done, in order (`effects`). `deadline_ms` says when it wants a `Tick`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from raft import elections, following, joining, leading, serving, voter_changes
from raft.effects import Effect, ElectionState
from raft.events import (
    ConfirmLeadership,
    Disconnected,
    Event,
    LeaderAppend,
    LogStartAdvanced,
    LogSynced,
    RequestAbandoned,
    RequestFailed,
    RequestReceived,
    Resign,
    ResponseReceived,
    ServeParked,
    SnapshotFrozen,
    SnapshotWritten,
    Started,
    Tick,
    UpgradeKraftVersion,
    VoterProbed,
)
from raft.log_view import LogView
from raft.messages import (
    AddVoterRequest,
    BeginEpochRequest,
    BeginEpochResponse,
    EndEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveVoterRequest,
    UpdateVoterRequest,
    VoterChangeResponse,
    VoteRequest,
    VoteResponse,
)
from raft.roles import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    ResignedLeader,
    Unattached,
)
from raft.state import Quorum, QuorumConfig
from raft.voter_history import VoterHistory
from raft.voters import Voter


class QuorumCore:
    """One member of the quorum, voter or observer."""

    def __init__(
        self,
        *,
        own: Voter,
        history: VoterHistory,
        config: QuorumConfig,
        chance: random.Random,
        log: LogView,
        stored: ElectionState,
        needs_end: int | None = None,
        can_vote: bool = True,
        bootstrap: tuple[int, ...] = (),
    ) -> None:
        """`own`: this member as it would be as a voter; it is one only if it `can_vote`.
        `history`: the voter sets of the log. `stored`: what the quorum-state file says.
        `needs_end`: set if the log was damaged before this offset, its old end; the node takes no
        part until it is past it again. `bootstrap`: ids, below -1, of servers that may know the
        quorum."""
        self.state = Quorum(
            own=own,
            history=history,
            config=config,
            chance=chance,
            log=log,
            stored=stored,
            needs_end=needs_end,
            can_vote=can_vote,
            bootstrap=bootstrap,
        )
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            Started: self._on_started,
            Tick: self._on_tick,
            RequestReceived: self._on_request,
            RequestAbandoned: self._on_abandoned,
            ResponseReceived: self._on_response,
            RequestFailed: self._on_failed,
            Disconnected: self._on_disconnected,
            LeaderAppend: self._on_append,
            ServeParked: self._on_serve_parked,
            LogSynced: self._on_log_synced,
            SnapshotWritten: self._on_snapshot_written,
            SnapshotFrozen: self._on_snapshot_frozen,
            LogStartAdvanced: self._on_log_start_advanced,
            VoterProbed: self._on_voter_probed,
            UpgradeKraftVersion: self._on_upgrade,
            ConfirmLeadership: self._on_confirm,
            Resign: self._on_resign,
        }

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Take in one event; the effects are to be carried out in order."""
        q = self.state
        assert now_ms >= q.now_ms, (now_ms, q.now_ms)
        q.now_ms = now_ms
        was = q.role
        self._handlers[type(event)](event)
        voter_changes.advance(q)
        if isinstance(was, Leader) and q.role is not was:
            leading.leave_role(q, was)
        elections.ask_for_votes(q)
        leading.announce(q)
        following.fetch(q)
        joining.tell_leader(q)
        effects = q.effects
        q.effects = []
        return effects

    @property
    def deadline_ms(self) -> int | None:
        """When the next `Tick` is wanted; None: not before something else happens."""
        return _earliest(self.state)

    def check_invariants(self) -> None:
        """AssertionError if the state contradicts itself."""
        self.state.check_invariants()

    # Handlers of one event each

    def _on_started(self, event: Started) -> None:
        self.state.start()

    def _on_tick(self, event: Tick) -> None:
        elections.on_election_tick(self.state)
        leading.on_leader_tick(self.state)
        serving.serve_parked(self.state)

    def _on_request(self, event: RequestReceived) -> None:
        q, request = self.state, event.request
        if isinstance(request, FetchRequest):
            serving.on_fetch(q, event.token, request)
        elif isinstance(request, VoteRequest):
            elections.on_vote_request(q, event.token, request)
        elif isinstance(request, FetchSnapshotRequest):
            serving.on_fetch_snapshot(q, event.token, request)
        elif isinstance(request, BeginEpochRequest):
            serving.on_begin_epoch(q, event.token, request)
        elif isinstance(request, AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest):
            voter_changes.on_request(q, event.token, request)
        else:
            serving.on_end_epoch(q, event.token, request)

    def _on_abandoned(self, event: RequestAbandoned) -> None:
        role = self.state.role
        if isinstance(role, Leader):
            role.parked.pop(event.token, None)
            voter_changes.on_abandoned(self.state, event.token)

    def _on_response(self, event: ResponseReceived) -> None:
        q, request, response = self.state, event.request, event.response
        if isinstance(request, FetchRequest):
            assert isinstance(response, FetchResponse), response
            following.on_fetch_response(q, event.peer_id, request, response)
        elif isinstance(request, VoteRequest):
            assert isinstance(response, VoteResponse), response
            elections.on_vote_response(q, event.peer_id, request, response)
        elif isinstance(request, FetchSnapshotRequest):
            assert isinstance(response, FetchSnapshotResponse), response
            following.on_snapshot_response(q, event.peer_id, request, response)
        elif isinstance(request, AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest):
            assert isinstance(response, VoterChangeResponse), response
            joining.on_response(q, event.peer_id, request, response)
        else:
            assert isinstance(response, BeginEpochResponse | EndEpochResponse), response
            address = response.leader_address
            if not elections.learn(q, event.peer_id, response.leader_id, response.epoch, address):
                leading.on_announced(q, event.peer_id, request.epoch, response)

    def _on_failed(self, event: RequestFailed) -> None:
        q, request = self.state, event.request
        if isinstance(request, FetchRequest | FetchSnapshotRequest):
            following.on_fetch_failed(q, event.peer_id, request)
        elif isinstance(request, VoteRequest):
            elections.on_vote_failed(q, event.peer_id, request, event.unsupported_version)
        elif isinstance(request, AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest):
            joining.on_failed(q, event.peer_id, request)
        else:
            leading.on_announced(q, event.peer_id, request.epoch, None)

    def _on_disconnected(self, event: Disconnected) -> None:
        following.on_disconnected(self.state, event.peer_id)

    def _on_append(self, event: LeaderAppend) -> None:
        leading.append(self.state, event)

    def _on_serve_parked(self, event: ServeParked) -> None:
        serving.serve_parked(self.state)

    def _on_log_synced(self, event: LogSynced) -> None:
        leading.on_log_synced(self.state, event)
        following.on_synced(self.state)

    def _on_snapshot_written(self, event: SnapshotWritten) -> None:
        self.state.log.add_snapshot(event.snapshot)

    def _on_snapshot_frozen(self, event: SnapshotFrozen) -> None:
        following.on_snapshot_frozen(self.state, event)

    def _on_log_start_advanced(self, event: LogStartAdvanced) -> None:
        self.state.log.advance_start(event.earliest)
        self.state.history.trim(event.earliest.offset)

    def _on_voter_probed(self, event: VoterProbed) -> None:
        voter_changes.on_probed(self.state, event)

    def _on_upgrade(self, event: UpgradeKraftVersion) -> None:
        voter_changes.upgrade(self.state, event)

    def _on_confirm(self, event: ConfirmLeadership) -> None:
        leading.confirm(self.state, event)

    def _on_resign(self, event: Resign) -> None:
        leading.resign(self.state, event)


def _earliest(q: Quorum) -> int | None:
    """The earliest time that anything in the present role waits for."""
    role = q.role
    times: list[int | None] = []
    if isinstance(role, Unattached):
        times = [role.election_at_ms, role.slot.next_at_ms]
    elif isinstance(role, Follower):
        times = [role.deadline_ms, role.slot.next_at_ms, joining.deadline_ms(q, role)]
    elif isinstance(role, Prospective):
        times = [role.deadline_ms, *role.ballot.ask_at_ms.values()]
    elif isinstance(role, Candidate):
        times = [role.deadline_ms]
        if not role.lost:
            times += role.ballot.ask_at_ms.values()
    elif isinstance(role, Leader):
        times = [role.check_quorum_at_ms]
        times += [parked.deadline_ms for parked in role.parked.values()]
        times += [entry.at_ms for entry in role.announcements.values()]
        if role.change is not None:
            times.append(role.change.deadline_ms)
    elif isinstance(role, ResignedLeader):
        times = [role.deadline_ms, *(entry.at_ms for entry in role.announcements.values())]
    return min((at_ms for at_ms in times if at_ms is not None), default=None)
