"""What must always hold in a quorum, checked from outside after every event.

The checker sees disks and messages, not what the cores believe of themselves.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Callable
from typing import Any

from raft.effects import AppendLeaderChange, AppendMembership
from raft.messages import (
    AddVoterRequest,
    FetchRequest,
    RemoveVoterRequest,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from raft.voters import MembershipRecord, ReplicaKey, VoterSet
from simulation.raft_disk import Entry, RaftDisk


class Violation(AssertionError):
    """A rule is broken."""


def fold(digest: int, entry: Entry) -> int:
    """The state after `entry`, given the state before: what a replica's image stands for."""
    return zlib.crc32(repr(entry).encode(), digest)


class RaftChecks:
    """The history that all members together must agree with."""

    def __init__(self, voters: VoterSet, bootstrap: MembershipRecord | None = None) -> None:
        """`voters`: the configured ones; `bootstrap`: what voters were formatted with."""
        self.voters = voters
        self.bootstrap = bootstrap
        self.leaders: dict[int, int] = {}
        # By epoch: for whom who voted; None: that was forgotten since.
        self.votes: dict[int, dict[ReplicaKey, list[ReplicaKey | None]]] = {}
        self.committed: list[Entry] = []
        self.committed_in: list[int] = []  # the epoch of the leader that committed it
        self.digests: list[int] = [0]  # digests[n]: the state after n committed records
        self.placed: dict[tuple[int, int], tuple[Any, int]] = {}

    def require(self, holds: bool, rule: str, *details: object) -> None:
        if not holds:
            raise Violation(f"{rule}: {', '.join(repr(detail) for detail in details)}")

    def on_leader(self, key: ReplicaKey, effect: AppendLeaderChange, disk: RaftDisk) -> None:
        """At most one leader an epoch; a majority of the set in force voted for it; it holds all
        that earlier leaders committed.

        (One elected late, while a later epoch has a leader already, may lack what that one
        committed, and can't commit anything itself.)
        """
        node_id, epoch = key.node_id, effect.epoch
        first = self.leaders.setdefault(epoch, node_id)
        voters = disk.voters(self.voters)
        given = [who for who, whom in self.votes.get(epoch, {}).items() if key in whom]
        granting = [one for one in given if voters.contains(one)]
        if not any(one == key for one in granting) and len(voters) == 1:
            granting.append(key)  # alone, it need not write a vote down before it leads
        self.require(
            len(granting) >= voters.majority, "a majority elects", key, epoch, granting, voters
        )
        self.require(first == node_id, "one leader per epoch", epoch, first, node_id)
        end = bisect_left(self.committed_in, epoch)
        self.require(disk.end >= end, "leader completeness", node_id, epoch, disk.end, end)
        for offset in range(disk.start, end):
            self.require(
                disk.entry(offset) == self.committed[offset],
                "leader completeness",
                node_id,
                epoch,
                offset,
            )

    def on_change(self, node_id: int, effect: AppendMembership, disk: RaftDisk) -> None:
        """One change at a time: the set before is committed, and something of the leader's own
        epoch is; the new set has one voter more or one less, or the same ones (KIP-853)."""
        sets = [record for record in disk.membership() if record.voters is not None]
        ends = [effect.base_offset for record in sets[-1:] if record.offset >= len(self.committed)]
        self.require(not ends, "one change of the voters at a time", node_id, effect, sets)
        committed_in = self.committed_in[-1] if self.committed_in else 0
        self.require(
            committed_in >= effect.epoch, "no change before a commit of one's own", node_id, effect
        )
        if sets and sets[-1].voters is not None:
            before, after = ({v.key: None for v in s} for s in (sets[-1].voters, effect.voters))
            differing = [k for k in before if k not in after] + [
                k for k in after if k not in before
            ]
            self.require(len(differing) <= 1, "one voter at a time", node_id, effect, differing)

    def on_snapshot(self, node_id: int, membership: MembershipRecord) -> None:
        """A snapshot holds the set as of its end."""
        log = [self.bootstrap, *(entry.value for entry in self.committed[: membership.offset + 1])]
        records = [one for one in log if isinstance(one, MembershipRecord)]
        levels = [one.kraft_version for one in records if one.kraft_version is not None]
        sets = [one.voters for one in records if one.voters is not None]
        self.require(
            membership.kraft_version == (levels[-1] if levels else 0)
            and membership.voters == (sets[-1] if sets else None),
            "a snapshot holds the voters as of its end",
            node_id,
            membership,
        )

    def on_append(self, node_id: int, disk: RaftDisk, base_offset: int) -> None:
        """Logs that agree on (offset, epoch) agree before it: by induction over appends."""
        epoch_before = disk.epoch_before(base_offset)
        for offset in range(base_offset, disk.end):
            entry = disk.entry(offset)
            placed = (entry.value, epoch_before)
            first = self.placed.setdefault((offset, entry.epoch), placed)
            self.require(first == placed, "log matching", node_id, offset, entry, first, placed)
            epoch_before = entry.epoch

    def on_high_watermark(
        self, node_id: int, before: int, after: int, disk: RaftDisk, digest: int
    ) -> int:
        """It only rises, and what it passes is what every other member committed there.

        Returns the member's state after applying what is new, from `digest` before it.
        """
        self.require(after > before, "high watermark never goes back", node_id, before, after)
        self.require(after <= disk.end, "high watermark within the log", node_id, after)
        for offset in range(before, after):
            entry = disk.entry(offset)
            if offset == len(self.committed):
                self.committed.append(entry)
                # A leader commits by a record of its own epoch, the last one.
                self.committed_in.append(disk.entry(after - 1).epoch)
                self.digests.append(fold(self.digests[-1], entry))
            self.require(
                self.committed[offset] == entry, "committed never changes", node_id, offset
            )
            digest = fold(digest, entry)
        self.require(self.digests[after] == digest, "same prefix, same state", node_id, after)
        return digest

    def on_commit(
        self, leaders: RaftDisk, disk_of: Callable[[ReplicaKey], RaftDisk], offset: int
    ) -> None:
        """What a leader commits is durable on a majority of the set that is in force on its own
        disk, whatever else happens now. A lost disk had it, if it had it when it was lost."""
        last = self.committed[offset - 1]
        voters = leaders.voters(self.voters)
        holders = 0
        for voter in voters:
            disk = disk_of(voter.key)
            # One whose disk was damaged since it promised the record had it, too.
            holders += disk.needs_end >= offset or (
                disk.synced_end >= offset
                and (disk.start >= offset or disk.entry(offset - 1) == last)
            )
        self.require(
            holders >= voters.majority,
            "committed is durable on a majority",
            offset,
            holders,
            voters,
        )

    def on_request(
        self, key: ReplicaKey, disk: RaftDisk, request: Request, *, promises: bool
    ) -> None:
        """State is durable before it is spoken of. `promises`: it can be a voter."""
        node_id = key.node_id
        durable = disk.election
        if isinstance(request, VoteRequest) and not request.pre_vote:
            self._vote(key, request.epoch, request.candidate)
            self.require(
                (durable.epoch, durable.voted) == (request.epoch, request.candidate),
                "own vote durable before asking for others",
                node_id,
                request,
                durable,
            )
        if not isinstance(request, AddVoterRequest | RemoveVoterRequest):
            self.require(
                durable.epoch >= request.epoch, "epoch durable before it is sent", node_id, request
            )
        if isinstance(request, FetchRequest) and request.replica.node_id >= 0 and promises:
            self.require(
                request.offset <= disk.synced_end,
                "log durable before its end is promised",
                node_id,
                request,
                disk.synced_end,
            )

    def on_response(
        self, key: ReplicaKey, disk: RaftDisk, request: Request, response: Response
    ) -> None:
        node_id = key.node_id
        self.require(
            disk.election.epoch >= response.epoch,
            "epoch durable before it is sent",
            node_id,
            response,
            disk.election,
        )
        if (
            isinstance(request, VoteRequest)
            and isinstance(response, VoteResponse)
            and response.granted
            and not request.pre_vote
        ):
            self._vote(key, request.epoch, request.candidate)
            durable = disk.election
            self.require(not disk.robbed, "nobody votes who has forgotten", node_id, request)
            self.require(
                durable.epoch == request.epoch and durable.voted == request.candidate,
                "vote durable before it is given",
                node_id,
                request,
                durable,
            )

    def forget_votes(self, key: ReplicaKey) -> None:
        """It may vote twice, for it has forgotten; and must not elect anybody by that."""
        for given in self.votes.values():
            if key in given:
                given[key].append(None)

    def _vote(self, key: ReplicaKey, epoch: int, candidate: ReplicaKey) -> None:
        votes = self.votes.setdefault(epoch, {}).setdefault(key, [None])
        if votes[-1] is None:
            votes.append(candidate)
        self.require(votes[-1] == candidate, "one vote an epoch", key, epoch, votes, candidate)

    def on_confirmed(self, node_id: int, offset: int, committed_before: int) -> None:
        """A linearizable read sees all that was committed anywhere when it was asked for."""
        self.require(
            offset >= committed_before, "reads are linearizable", node_id, offset, committed_before
        )
