"""What must always hold in a quorum, checked from outside after every event.

The checker sees disks and messages, not what the cores believe of themselves.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from typing import Any

from raft.messages import (
    AddVoterRequest,
    FetchRequest,
    RemoveVoterRequest,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from raft.voters import ReplicaKey, VoterSet
from simulation.raft_disk import Entry, RaftDisk


class Violation(AssertionError):
    """A rule is broken."""


def fold(digest: int, entry: Entry) -> int:
    """The state after `entry`, given the state before: what a replica's image stands for."""
    return zlib.crc32(repr(entry).encode(), digest)


class RaftChecks:
    """The history that all members together must agree with."""

    def __init__(self, voters: VoterSet) -> None:
        self.voters = voters
        self.leaders: dict[int, int] = {}
        self.votes: dict[tuple[int, int], ReplicaKey] = {}
        self.committed: list[Entry] = []
        self.committed_in: list[int] = []  # the epoch of the leader that committed it
        self.digests: list[int] = [0]  # digests[n]: the state after n committed records
        self.placed: dict[tuple[int, int], tuple[Any, int]] = {}

    def require(self, holds: bool, rule: str, *details: object) -> None:
        if not holds:
            raise Violation(f"{rule}: {', '.join(repr(detail) for detail in details)}")

    def on_leader(self, node_id: int, epoch: int, disk: RaftDisk) -> None:
        """At most one leader an epoch, and it holds all that earlier leaders committed.

        (One elected late, while a later epoch has a leader already, may lack what that one
        committed, and can't commit anything itself.)
        """
        first = self.leaders.setdefault(epoch, node_id)
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

    def on_commit(self, disks: dict[int, RaftDisk], offset: int) -> None:
        """What a leader commits is durable on a majority, whatever else happens now."""
        last = self.committed[offset - 1]
        holders = 0
        for voter_id in self.voters.ids:
            disk = disks[voter_id]
            # One whose disk was damaged since it promised the record had it, too.
            holders += disk.needs_end >= offset or (
                disk.synced_end >= offset
                and (disk.start >= offset or disk.entry(offset - 1) == last)
            )
        self.require(
            holders >= self.voters.majority, "committed is durable on a majority", offset, holders
        )

    def on_request(self, node_id: int, disk: RaftDisk, request: Request) -> None:
        """State is durable before it is spoken of."""
        durable = disk.election
        if isinstance(request, VoteRequest) and not request.pre_vote:
            self._vote(node_id, request.epoch, request.candidate)
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
        if isinstance(request, FetchRequest) and request.replica.node_id in self.voters.ids:
            self.require(
                request.offset <= disk.synced_end,
                "log durable before its end is promised",
                node_id,
                request,
                disk.synced_end,
            )

    def on_response(
        self, node_id: int, disk: RaftDisk, request: Request, response: Response
    ) -> None:
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
            self._vote(node_id, request.epoch, request.candidate)
            durable = disk.election
            self.require(
                durable.epoch == request.epoch and durable.voted == request.candidate,
                "vote durable before it is given",
                node_id,
                request,
                durable,
            )

    def _vote(self, node_id: int, epoch: int, candidate: ReplicaKey) -> None:
        first = self.votes.setdefault((node_id, epoch), candidate)
        self.require(first == candidate, "one vote an epoch", node_id, epoch, first, candidate)

    def on_confirmed(self, node_id: int, offset: int, committed_before: int) -> None:
        """A linearizable read sees all that was committed anywhere when it was asked for."""
        self.require(
            offset >= committed_before, "reads are linearizable", node_id, offset, committed_before
        )
