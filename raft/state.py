"""The quorum member's state, and the only code that switches its role.

What each transition is caused by (KIP-595, KIP-996):

    from          to            when
    any           Unattached    a higher epoch is seen and its leader isn't named
    any           Follower      a leader of this (none known so far) or a higher epoch is named
    Unattached    Unattached    a vote of this epoch is given away
    Prospective   Unattached    the same; or the pre-vote is lost and no leader is known
    Unattached    Prospective   its election time comes
    Follower      Prospective   no fetch succeeded in time, or the leader is lost
    Prospective   Follower      the pre-vote is lost and the epoch's leader is known
    Prospective   Candidate     a majority would vote for it
    Candidate     Prospective   the vote was lost, a random time ago
    Candidate     Leader        a majority voted for it
    Leader        Resigned      it resigns, or a majority stopped fetching
    Resigned      Unattached    everybody was told, or time is up; the epoch is left behind

The state below survives a crash as far as `ElectionState` holds it. A node that led an epoch
before it crashed is Resigned when it is back: it never leads, nor votes in, that epoch again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from raft.effects import (
    Effect,
    ElectionState,
    Fatal,
    HighWatermarkAdvanced,
    LeaderChanged,
    PersistQuorumState,
    SyncLog,
    VotersInForce,
)
from raft.log_view import LogView
from raft.messages import NO_LEADER, UNKNOWN_EPOCH, Address
from raft.quorum import MAX_EPOCH
from raft.roles import (
    Announcement,
    Ballot,
    Candidate,
    FetchSlot,
    Follower,
    Leader,
    Progress,
    Prospective,
    ResignedLeader,
    Role,
    SnapshotDownload,
    Unattached,
    VoterSlot,
)
from raft.voter_history import BOOTSTRAP_OFFSET, VoterHistory
from raft.voters import ReplicaKey, Voter, VoterSet
from wire.exits import EXIT_NO_EPOCH_LEFT

_TRANSITIONS: dict[type[Role], tuple[type[Role], ...]] = {
    Unattached: (Unattached, Prospective, Follower),
    Prospective: (Unattached, Candidate, Follower),
    Candidate: (Unattached, Prospective, Leader, Follower),
    Leader: (Unattached, Follower, ResignedLeader),
    Follower: (Unattached, Prospective, Follower),
    ResignedLeader: (Unattached, Follower),
}


@dataclass(frozen=True, slots=True)
class QuorumConfig:
    """Times in ms, with Kafka's names and defaults where Kafka has them."""

    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    # A voter that has lost its leader, or knows none at start, waits a random time up to this.
    lost_leader_wait_max_ms: int = 50
    # Pre-votes disturb nobody, so a lost one is tried again sooner than a lost vote.
    pre_vote_backoff_max_ms: int = 250
    observer_session_ms: int = 300_000
    # A voter hears of a higher high watermark with the next records, or after this.
    news_wait_max_ms: int = 5
    # The listener on which every voter must be reached.
    listener_name: str = "CONTROLLER"
    # Whether a controller that isn't a voter asks to be made one (KIP-853).
    auto_join: bool = False

    @property
    def check_quorum_ms(self) -> int:
        return self.fetch_timeout_ms * 3 // 2

    @property
    def outsider_wait_ms(self) -> int:
        """How long nobody has led, at least, when one that isn't a voter stands: long after voters
        that can elect one of themselves have done so."""
        return 5 * max(self.fetch_timeout_ms, self.election_timeout_ms)

    @property
    def announce_interval_ms(self) -> int:
        return self.fetch_timeout_ms // 2

    @property
    def doubt_ms(self) -> int:
        """How long a leader tells nobody that it leads after somebody knew it by another disk:
        longer than a quorum takes to lose a leader and to ask every voter again."""
        return 2 * self.check_quorum_ms

    @property
    def voter_change_ms(self) -> int:
        """How long a change of the voters may take, and a voter waits to ask for it again."""
        return self.fetch_timeout_ms


class Quorum:
    """State shared by the modules that decide; they change roles only by the methods here."""

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
        self.own = own
        self.key = own.key
        self.can_vote = can_vote
        self.bootstrap = bootstrap
        self.history = history
        self.voters = history.voters
        self.config = config
        self.chance = chance
        self.log = log
        self.epoch = stored.epoch
        self.leader_id = stored.leader_id
        self.leader_address: Address | None = None
        self.voted = stored.voted
        self.high_watermark = 0 if log.latest_snapshot is None else log.latest_snapshot.offset
        # How much was committed when a leader first told.
        self.committed_told: int | None = None
        # Set while part of our log, durable once, is missing: until it is back we take no part.
        self.needs_end = needs_end
        self.leaving = False
        self.doubted_until_ms = 0
        self.failed_elections = 0
        self.download: SnapshotDownload | None = None
        self.now_ms = 0
        self.effects: list[Effect] = []
        self.is_voter = can_vote and self.voters.contains(self.key)
        self.role: Role = Unattached(None, FetchSlot(0))
        self._kraft_version = history.kraft_version
        self._stored = stored
        self._announced = (NO_LEADER, stored.epoch)

    # What is asked of the state

    @property
    def node_id(self) -> int:
        return self.key.node_id

    @property
    def may_stand(self) -> bool:
        stands = self.is_voter or self.is_outsider
        return stands and self.needs_end is None and not self.leaving

    @property
    def is_outsider(self) -> bool:
        """Whether we are a controller that the voter set of its log leaves out.

        Such a one stands too, late and without a vote for itself. The latest log has to win an
        election, and only an outsider may have it: a leader removed it and crashed (Ongaro's
        dissertation, 4.2.2), or lost what none but outsiders had fetched, while a voter whose set
        counts one of them in, uncommitted, needs its vote. Whoever has the latest log among the
        healthy is granted a vote by each of them, so somebody can always be elected. An outsider
        leads until something of its epoch is committed; then any voter of a majority can follow it.

        Configured voters never change, so there the leader of a quorum is always one of them; and
        who has only what its disk was formatted with has no log to be followed for.
        """
        known_at = self.history.voters_offset
        if self.is_voter or not self.can_vote or known_at is None:
            return False
        return known_at > BOOTSTRAP_OFFSET

    @property
    def asks_around(self) -> bool:
        """Whether we look for another leader as soon as we can't reach ours, as those do who
        won't soon stand themselves."""
        return not (self.is_voter and self.may_stand)

    @property
    def told_leader_id(self) -> int:
        """The leader that we tell others of: one that has resigned isn't one."""
        return NO_LEADER if isinstance(self.role, ResignedLeader) else self.leader_id

    @property
    def told(self) -> tuple[int, int]:
        """Leader and epoch as we tell others of them; as long as we may lead a fork of the quorum,
        nothing that could move its members."""
        if isinstance(self.role, Leader) and self.now_ms < self.doubted_until_ms:
            return NO_LEADER, UNKNOWN_EPOCH
        return self.told_leader_id, self.epoch

    @property
    def reached_at(self) -> Address | None:
        """Where the leader is reached from here, if anybody or anything has told."""
        listed = self.voters.address(self.leader_id, self.config.listener_name)
        if self.leader_address is None:
            return listed
        # A leader itself knows best where it is, but for configured addresses, which may be
        # this node's own way to it.
        is_static = self.history.kraft_version == 0
        return listed if is_static and listed is not None else self.leader_address

    def is_listed(self, peer_id: int) -> bool:
        """Whether a peer is configured, or a voter that is reached where the voter set says: any
        other may be one that a stranger's request has named as leader."""
        if peer_id in self.bootstrap:
            return True
        listed = self.voters.address(peer_id, self.config.listener_name)
        reached_at = self.reached_at if peer_id == self.leader_id else listed
        return self.voters.get(peer_id) is not None and reached_at == listed

    def others(self) -> list[ReplicaKey]:
        return self.voters.others(self.node_id)

    def random_election_timeout_ms(self) -> int:
        timeout_ms = self.config.election_timeout_ms
        return self.chance.randrange(timeout_ms, 2 * timeout_ms)

    def fetch_deadline_ms(self) -> int | None:
        """When a follower stands, if it may, unless a fetch succeeds before."""
        if not self.may_stand:
            return None
        if self.is_voter:
            return self.now_ms + self.config.fetch_timeout_ms
        # Others that aren't voters have heard the leader as long as we have.
        return self._election_at_ms()

    def random_lost_leader_wait_ms(self) -> int:
        return self.chance.randint(0, self.config.lost_leader_wait_max_ms)

    def retry_at_ms(self) -> int:
        """A little later. Nobody to follow may stay so for long: then peers are asked less."""
        backoff_ms = self.config.retry_backoff_ms
        if isinstance(self.role, Unattached):
            backoff_ms *= 5
        return self.now_ms + backoff_ms + self.chance.randint(0, backoff_ms)

    # What is done to it

    def emit(self, effect: Effect) -> None:
        self.effects.append(effect)

    def fail(self, reason: str) -> None:
        self.emit(Fatal(reason))

    def has_next_epoch(self) -> bool:
        """Whether this epoch may be left behind for a higher one. The last that there is can only
        end with its leader: whoever would have to go further is stopped, and has kept its state
        readable."""
        if self.epoch < MAX_EPOCH:
            return True
        reason = f"epoch {self.epoch} is the last that there is: no leader can be elected after it"
        self.emit(Fatal(reason, EXIT_NO_EPOCH_LEFT))
        return False

    def advance_high_watermark(self, offset: int) -> None:
        assert self.high_watermark < offset <= self.log.end, (self.high_watermark, offset)
        self.high_watermark = offset
        self.emit(HighWatermarkAdvanced(offset))

    def adopt_voters(self) -> None:
        """Let the latest voter set of the log be in force, after the log has changed."""
        before = self.voters
        level = self.history.kraft_version
        if self.history.voters is before and level == self._kraft_version:
            return
        self._kraft_version = level
        self.voters = self.history.voters
        was_voter = self.is_voter
        self.is_voter = self.can_vote and self.voters.contains(self.key)
        self.emit(VotersInForce(self.voters, level))
        role = self.role
        if self.is_voter != was_voter or not self._has_time_to_stand:
            self.wait_to_stand()
        elif isinstance(role, Prospective | Candidate):
            self._adapt_ballot(role.ballot, before)

    @property
    def _has_time_to_stand(self) -> bool:
        role = self.role
        if isinstance(role, Follower):
            return role.deadline_ms is not None
        return not isinstance(role, Unattached) or role.election_at_ms is not None

    def wait_to_stand(self) -> None:
        """Whether we may stand in elections has changed, or whether as a voter."""
        role = self.role
        if isinstance(role, Follower):
            role.deadline_ms = self.fetch_deadline_ms()
        elif isinstance(role, Unattached):
            role.election_at_ms = self._election_at_ms()
        elif isinstance(role, Prospective | Candidate):
            self.become_unattached(self.epoch, election_at_ms=self._election_at_ms())

    def _election_at_ms(self) -> int | None:
        """When one that follows nobody stands, if it may, after a full wait."""
        if not self.may_stand:
            return None
        return self._election_deadline_ms() + (0 if self.is_voter else self.config.outsider_wait_ms)

    def _adapt_ballot(self, ballot: Ballot, before: VoterSet) -> None:
        """Votes of voters that another has replaced don't count; the new ones are asked."""
        for node_id in list(ballot.ask_at_ms):
            if self.voters.get(node_id) is None:
                del ballot.ask_at_ms[node_id]
        for key in self.others():
            if before.get(key.node_id) is None or before.key_of(key.node_id) != key:
                ballot.votes.pop(key.node_id, None)
                ballot.unreachable.pop(key.node_id, None)
                ballot.ask_at_ms[key.node_id] = self.now_ms

    def heal(self) -> None:
        """Take part again if what was lost of the log is back, and durable."""
        if self.needs_end is None or self.log.synced_end < self.needs_end:
            return
        self.needs_end = None
        self.wait_to_stand()
        self.emit(SyncLog())  # it is written down with it

    def _switch(self, role: Role) -> None:
        assert type(role) in _TRANSITIONS[type(self.role)], (self.role, role)
        self.role = role
        self._settle()

    def _settle(self) -> None:
        """Make what changed durable before anything that follows, and tell of a new leader."""
        state = ElectionState(self.epoch, self.leader_id, self.voted)
        told: Effect | None = None
        if state != self._stored:
            assert state.epoch >= self._stored.epoch, (state, self._stored)
            self._stored = state
            told = self._withdraw_last_state()
            self.emit(PersistQuorumState(state))
        announced = (self.told_leader_id, self.epoch)
        if announced != self._announced:
            self._announced = announced
            told = LeaderChanged(*announced)
        if told is not None:
            self.emit(told)

    def _withdraw_last_state(self) -> Effect | None:
        """A state that nothing was said about yet needs no write of its own: each costs an
        fsync. Returns what was told of its leader."""
        effects = self.effects
        told: Effect | None = None
        if len(effects) > 1 and isinstance(effects[-2], PersistQuorumState):
            if not isinstance(effects[-1], LeaderChanged):
                return None
            told = effects.pop()
        if effects and isinstance(effects[-1], PersistQuorumState):
            effects.pop()
        return told

    def become_unattached(
        self,
        epoch: int,
        *,
        voted: ReplicaKey | None = None,
        election_at_ms: int | None = None,
    ) -> None:
        """Follow nobody in `epoch`. `voted`: a vote given now. `election_at_ms`: when to stand.

        By default one who was about to stand keeps that time, so that a peer that cannot win
        doesn't hold it up; who has just voted, or followed or led before, waits a full timeout.
        One that isn't a voter has nothing to stand for sooner.
        """
        assert self.epoch <= epoch <= MAX_EPOCH, (epoch, self.epoch)
        if election_at_ms is None and voted is None:
            election_at_ms = self._pending_election_at_ms()
        elif not self.is_voter:
            election_at_ms = None
        if election_at_ms is None:
            election_at_ms = self._election_at_ms()
        if epoch > self.epoch:
            self.epoch, self.voted, self.leader_id = epoch, None, NO_LEADER
            self.leader_address = None
        if voted is not None and self.voted is None:
            self.voted = voted
        at_ms = election_at_ms if self.may_stand else None
        self._switch(Unattached(at_ms, FetchSlot(self.now_ms)))

    def _pending_election_at_ms(self) -> int | None:
        role = self.role
        if isinstance(role, Unattached):
            return role.election_at_ms
        if isinstance(role, Prospective | Candidate) or (isinstance(role, Follower) and role.lost):
            return role.deadline_ms
        return None

    def become_follower(
        self,
        epoch: int,
        leader_id: int,
        address: Address | None = None,
        *,
        lost_until_ms: int | None = None,
        slot: FetchSlot | None = None,
    ) -> None:
        """Follow `leader_id`, which said it is at `address`, if anybody did. `lost_until_ms`: it
        is the one we have lost; stand again then. `slot`: with what we asked it already."""
        assert epoch >= self.epoch, (epoch, self.epoch)
        assert leader_id != self.node_id, leader_id
        if epoch > self.epoch:
            self.epoch, self.voted = epoch, None
        else:
            assert self.leader_id in (NO_LEADER, leader_id), (self.leader_id, leader_id)
        if leader_id != self.leader_id or address is not None:
            self.leader_address = address
        self.leader_id = leader_id
        lost = lost_until_ms is not None
        deadline_ms = self.fetch_deadline_ms()
        if lost and self.is_voter and self.may_stand:
            deadline_ms = lost_until_ms
        download = self.download
        if download is not None and download.leader_id != leader_id and not download.freezing:
            self.download = None
        slots = slot or FetchSlot(self.now_ms), VoterSlot(self.now_ms)
        self._switch(Follower(leader_id, deadline_ms, *slots, lost))

    def become_prospective(self) -> None:
        assert self.may_stand, self.describe()
        slot = self.role.slot if isinstance(self.role, Follower) else None
        self._switch(Prospective(self._new_ballot(), self._election_deadline_ms(), slot))

    def become_candidate(self) -> None:
        assert self.may_stand, self.describe()
        assert self.epoch < MAX_EPOCH, self.describe()
        self.epoch += 1
        self.voted, self.leader_id, self.leader_address = self.key, NO_LEADER, None
        self._switch(Candidate(self._new_ballot(), self._election_deadline_ms()))

    def _election_deadline_ms(self) -> int:
        return self.now_ms + self.random_election_timeout_ms()

    def _new_ballot(self) -> Ballot:
        own = {self.node_id: True} if self.is_voter else {}
        return Ballot(own, {key.node_id: self.now_ms for key in self.others()}, self.now_ms)

    def become_leader(self) -> None:
        assert self.may_stand, self.describe()
        assert isinstance(self.role, Candidate), self.role
        self.leader_id = self.node_id
        self.failed_elections = 0
        alone = not self.others()
        self._switch(
            Leader(
                epoch_start=self.log.end,
                voters={
                    node_id: Progress(self.voters.key_of(node_id))
                    for node_id in self.voters.ids
                    if node_id != self.node_id
                },
                observers={},
                announcements={key.node_id: Announcement(self.now_ms) for key in self.others()},
                check_quorum_at_ms=None if alone else self.now_ms + self.config.check_quorum_ms,
                told_voters=None if self._kraft_version else self.voters.with_voter(self.own),
            )
        )

    def become_resigned(self, successors: tuple[ReplicaKey, ...]) -> None:
        announcements = {key.node_id: Announcement(self.now_ms) for key in self.others()}
        self._switch(ResignedLeader(self._election_deadline_ms(), successors, announcements))

    def start(self) -> None:
        """Take up the role that the stored state leaves us (KIP-595, KIP-996).

        A vote for ourselves isn't taken up again in the same epoch as Kafka would: what we sent
        as its leader, if we were it, may be lost here.
        """
        if self.log.last_epoch > self.epoch:
            self.epoch, self.voted, self.leader_id = self.log.last_epoch, None, NO_LEADER
        soon_ms = self.now_ms + self.random_lost_leader_wait_ms()
        if self.leader_id == self.node_id:
            if len(self.voters) == 1 and self.is_voter:
                # Alone, nobody has to be told: go on in the next epoch.
                if self.has_next_epoch():
                    self.become_unattached(self.epoch + 1, election_at_ms=self.now_ms)
            else:
                self.role = ResignedLeader(soon_ms, (), {})
                self._settle()
        elif self.leader_id != NO_LEADER and self.voters.get(self.leader_id) is not None:
            self.become_follower(self.epoch, self.leader_id)
        else:
            self.leader_id = NO_LEADER
            if len(self.voters) == 1 and self.is_voter:
                soon_ms = self.now_ms
            self.become_unattached(self.epoch, election_at_ms=soon_ms)

    # Checks

    def check_invariants(self) -> None:
        self.log.check_invariants()
        role = self.role
        assert self.high_watermark <= self.log.end, self.describe()
        assert self.log.last_epoch <= self.epoch, self.describe()
        if isinstance(role, Leader):
            assert self.leader_id == self.node_id, self.describe()
            assert self.voted == self.key, self.describe()
            # One that isn't a voter leads until its epoch, or its own removal, is committed.
            changed_at = self.history.voters_offset
            uncommitted = changed_at is not None and changed_at >= self.high_watermark
            assert self.is_voter or uncommitted or not role.committed_in_epoch, self.describe()
        elif isinstance(role, Candidate):
            assert self.voted == self.key, self.describe()
            assert self.leader_id == NO_LEADER, self.describe()
        elif isinstance(role, Follower):
            assert self.leader_id == role.leader_id != self.node_id, self.describe()
        elif isinstance(role, ResignedLeader):
            assert self.leader_id == self.node_id, self.describe()
        if self.needs_end is not None:
            assert not isinstance(role, Prospective | Candidate | Leader), self.describe()

    def describe(self) -> str:
        return (
            f"node {self.node_id} epoch {self.epoch} leader {self.leader_id} voted {self.voted} "
            f"{type(self.role).__name__} high watermark {self.high_watermark} "
            f"{self.log.describe()}"
        )
