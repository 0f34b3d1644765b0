"""Who changes the membership of a simulated quorum: voters come and go, disks are replaced.

The fault budget: of every voter set that is in force anywhere, a minority has lost its disk or a
part of it. An operator keeps to it, too: who removes a healthy voter while another's disk is lost
may be left with a set that has no healthy majority.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from raft.events import RequestReceived, UpgradeKraftVersion
from raft.messages import AddVoterRequest, RemoveVoterRequest, VoterChangeRequest
from raft.voters import ReplicaKey, Voter, VoterSet
from simulation.raft_node import SimulatedMember
from wire.errors import ErrorCode

if TYPE_CHECKING:
    from simulation.raft_core import RaftWorld

EVERY_MS = 150
TIMEOUT_MS = 600
OPERATOR_ID = 0  # no member's


class Operator:
    """Asks leaders for changes, one after the other and not seldom at a bad moment."""

    def __init__(self, world: RaftWorld) -> None:
        self.world = world
        self.chance = world.chance
        self._disks = 0

    def begin(self) -> None:
        self.world.at(self.chance.randint(100, 400), self._act)

    def _act(self) -> None:
        world = self.world
        if world.calm:
            return
        world.at(world.now_ms + self.chance.randint(1, 2 * EVERY_MS), self._act)
        leaders = [member for member in world.members.values() if member.is_leader]
        kind = self.chance.choice(("add", "add", "remove", "remove", "disk"))
        if kind == "disk":
            self._replace_a_disk()
            return
        if not leaders:
            return
        leader = self.chance.choice(leaders)
        assert leader.core is not None
        if leader.core.state.history.kraft_version == 0:
            world.deliver(leader, UpgradeKraftVersion(world.next_number(), 1, False))
        elif kind == "add":
            self._add(leader)
        else:
            self._remove(leader)

    def _ask(self, leader: SimulatedMember, request: VoterChangeRequest) -> None:
        """The operator's own connection loses nothing; leaders may die, though."""
        token = self.world.next_number()
        leader.incoming[token] = (OPERATOR_ID, 0, 0, request)
        self.world.note(f"operator asks {leader.node_id}: {request!r}")
        self.world.deliver(leader, RequestReceived(token, request))

    def answered(self, request: object, error: ErrorCode) -> None:
        if error == ErrorCode.none:
            self.world.counts["changes answered"] += 1
        else:
            self.world.counts["changes refused"] += 1

    def _add(self, leader: SimulatedMember) -> None:
        voters = leader.voters
        spare = [m for m in self.world.members.values() if not voters.contains(m.key)]
        if spare:
            member = self.chance.choice(spare)
            voter = Voter(member.key, self.world.endpoints_of(member))
            self._ask(leader, AddVoterRequest(voter, TIMEOUT_MS))

    def _remove(self, leader: SimulatedMember) -> None:
        voters = leader.voters
        lost = [one.key for one in voters if one.key in self.world.lost]
        some = lost or [one.key for one in voters]
        key = leader.key if self.chance.random() < 0.2 else self.chance.choice(some)
        left = self._once_removed(leader).without(key)
        if left and self._bears(voters.without(key), 0) and self._bears(left, 0):
            self._ask(leader, RemoveVoterRequest(key))

    # Disks

    def bears_one_more(self) -> bool:
        """Whether one more voter may lose what it has."""
        members = self._members()
        sets = [m.voters for m in members] + [self._once_removed(m) for m in members]
        sets += [voters for m in members for voters in self._once_added(m)]
        return all(self._bears(voters, 1) for voters in {repr(s): s for s in sets}.values())

    def _once_removed(self, member: SimulatedMember) -> VoterSet:
        """Its voters without those whose removal it has been asked for: one that is paused does it
        when it goes on."""
        voters = member.voters
        for _, _, _, request in member.incoming.values():
            if isinstance(request, RemoveVoterRequest):
                voters = voters.without(request.voter)
        return voters

    def _once_added(self, member: SimulatedMember) -> list[VoterSet]:
        """Its voters with each that it has been asked to add: who is found whole may be hit before
        that is written."""
        return [
            member.voters.with_voter(request.voter)
            for _, _, _, request in member.incoming.values()
            if isinstance(request, AddVoterRequest)
        ]

    def _members(self) -> list[SimulatedMember]:
        return list(self.world.members.values())

    def _bears(self, voters: VoterSet, more: int) -> bool:
        """Whether a majority of the set is healthy, though `more` get lost."""
        weak = sum(self._is_weak(voter.key) for voter in voters)
        return weak + more <= (len(voters) - 1) // 2

    def _is_weak(self, key: ReplicaKey) -> bool:
        member = self.world.members.get(key.node_id)
        if member is None or key in self.world.lost:
            return True
        damaged = member.disk.robbed or bool(member.disk.needs_end)
        return damaged or (member.core is not None and member.core.state.needs_end is not None)

    def _replace_a_disk(self) -> None:
        """A voter's disk is gone: the node comes back with an empty one, under another id."""
        world = self.world
        if any(member.core is None for member in self._members()) or not self.bears_one_more():
            return
        sets = [member.voters for member in self._members()]
        everywhere = [
            member
            for member in self._members()
            if all(any(voter.key == member.key for voter in voters) for voters in sets)
        ]
        if not everywhere:
            return
        member = self.chance.choice(everywhere)
        world.kill(member, power=True)
        world.lost[member.key] = member.disk
        self._disks += 1
        world.counts["disks replaced"] += 1
        directory_id = UUID(int=10_000 * self._disks + member.node_id)
        member.replace_disk(ReplicaKey(member.node_id, directory_id))
        world.disks[member.node_id] = member.disk
        world.note(f"disk of {member.node_id} replaced: {member.key!r}")
