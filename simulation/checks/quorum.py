"""What must always hold of the controller quorum, looked at in the live nodes and their disks.

`look` is called after every step of a node; it costs next to nothing where nothing changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from raft.node import RaftNode
from raft.roles import Candidate, Leader, Prospective, Role
from raft.snapshots import parse_name
from raft.voters import ReplicaKey
from simulation.checks import media as disks
from simulation.checks import require
from simulation.checks.logs import LogFacts, LogMirror
from simulation.damage import CoveredBatch
from storage.names import LOG, segment_file
from wire import quorum_state
from wire.batch import HEADER_SIZE, read_header
from wire.errors import DecodeError
from world.memory import Media


class _Watch:
    """What was seen last of one life of a node."""

    __slots__ = (
        "checked",
        "directory",
        "end",
        "epoch",
        "high_watermark",
        "leads",
        "mirror",
        "raft",
        "role",
        "start",
        "synced",
        "vote_due",
        "voted",
    )

    def __init__(self, raft: RaftNode) -> None:
        self.raft = raft
        self.mirror = LogMirror(raft.log.log, disks.peek)
        self.directory = raft.log.directory
        self.role: Role | None = None
        self.epoch = self.end = self.start = self.synced = -1
        self.high_watermark = self.checked = 0
        self.voted: ReplicaKey | None = None
        self.vote_due = False
        # The end that a new leader's log had in its own eyes: once the disk has it, it is judged.
        self.leads: int | None = None


def _is_up_to_date(raft: RaftNode) -> bool:
    """Whether the log on its disk is the one that the member speaks of."""
    performer = raft._performer
    return performer._blocked_by is None and not performer._queue


class QuorumChecks:
    """`media` is each node's disk. `spoiled` are nodes that lost what they had synced, with the
    offset up to which they must fetch it back: until then they are not asked for it, and must
    take no part. `counts` is what happened."""

    def __init__(self, media: Mapping[int, Media]) -> None:
        self.facts = LogFacts("__cluster_metadata")
        self.spoiled: dict[int, int] = {}
        self._unnoticed: dict[int, CoveredBatch] = {}
        self.counts: Counter[str] = Counter()
        self._media = media
        self._watches: dict[int, _Watch] = {}
        self._votes: dict[tuple[object, int], int] = {}
        # How far each node said that its log was durable, before it was spoiled if it is.
        self._claims: dict[int, int] = {}

    def look(self, node_id: int, raft: RaftNode) -> None:
        """After a step of a node whose quorum member is `raft`, open by now."""
        watch = self._watches.get(node_id)
        if watch is None or watch.raft is not raft:
            watch = self._watches[node_id] = _Watch(raft)
            self._look_for_notice(node_id, raft)
        state, log = raft.core.state, raft.log.log
        if log.end_offset != watch.end or log.log_start_offset != watch.start:
            self._log_changed(node_id, watch)
        if node_id in self.spoiled:
            self._look_at_spoiled(node_id, watch)
        if state.role is not watch.role or state.epoch != watch.epoch:
            self._role_changed(node_id, watch)
        if state.voted is not watch.voted:
            watch.voted = state.voted
            watch.vote_due = state.voted is not None
        if watch.vote_due:
            self._look_for_vote(node_id, watch)
        if watch.leads is not None and watch.end > watch.leads:
            watch.leads = None
            self.facts.leads(node_id, state.epoch, watch.mirror)
        if state.log.synced_end != watch.synced and _is_up_to_date(raft):
            watch.synced = state.log.synced_end
            self._synced(node_id, watch)
        if state.high_watermark != watch.high_watermark or (
            watch.checked < watch.high_watermark and watch.checked < watch.end
        ):
            self._committed(node_id, watch)

    def spoil(self, node_id: int, synced: int, batch: CoveredBatch) -> None:
        """A batch of a log that was durable below `synced` is damaged; its node is down."""
        self.spoiled[node_id] = synced
        self._unnoticed[node_id] = batch

    def noticed(self, node_id: int) -> None:
        """A node says that its log is damaged."""
        self._unnoticed.pop(node_id, None)

    def _look_for_notice(self, node_id: int, raft: RaftNode) -> None:
        """The first life that opens a damaged log has to say so, or to do without that part."""
        batch = self._unnoticed.pop(node_id, None)
        require(
            batch is None or batch.end <= raft.log.log.log_start_offset,
            "damage below the synced offset is noticed",
            f"node {node_id}, log from {raft.log.log.log_start_offset} to "
            f"{raft.log.log.end_offset}: {batch}",
        )

    def _look_at_spoiled(self, node_id: int, watch: _Watch) -> None:
        state = watch.raft.core.state
        if watch.end >= self.spoiled[node_id]:
            if state.needs_end is None and state.log.synced_end >= self.spoiled[node_id]:
                del self.spoiled[node_id]
            return
        if not _is_up_to_date(watch.raft):
            return  # it is about to begin anew behind a snapshot
        require(
            state.needs_end is not None
            and not isinstance(state.role, Prospective | Candidate | Leader),
            "a damaged voter takes no part until it is whole",
            f"node {node_id}, whose log ends at {watch.end} and ended at {self.spoiled[node_id]}: "
            f"{state.describe()}",
        )

    def _log_changed(self, node_id: int, watch: _Watch) -> None:
        log = watch.raft.log.log
        first = watch.end < 0
        if not first and log.log_start_offset > watch.end:
            self.counts["snapshots fetched"] += 1
        cut, fresh = watch.mirror.update()
        if cut and not first:
            self.counts["truncations of the metadata log"] += 1
        for before, batch in fresh:
            self.facts.appended(node_id, before, batch)
        if log.log_start_offset > max(0, watch.start):
            self._snapshot_durable(node_id, watch, log.log_start_offset)
        watch.end, watch.start = log.end_offset, log.log_start_offset

    def _snapshot_durable(self, node_id: int, watch: _Watch, start: int) -> None:
        """What the log does not have any more is in a snapshot that outlives a power loss."""
        names = disks.durable_files(self._media[node_id], watch.directory)
        ends = [found.offset for name in names if (found := parse_name(name)) is not None]
        require(
            any(end >= start for end in ends),
            "a snapshot stands for what the log leaves out",
            f"node {node_id}: the log begins at {start}, snapshots on the disk end at {ends}",
        )

    def _role_changed(self, node_id: int, watch: _Watch) -> None:
        state = watch.raft.core.state
        require(
            state.epoch >= watch.epoch,
            "a member's epoch never goes back",
            f"node {node_id}: {watch.epoch}, then {state.epoch}",
        )
        new = isinstance(state.role, Leader) and not (
            isinstance(watch.role, Leader) and watch.epoch == state.epoch
        )
        watch.role, watch.epoch = state.role, state.epoch
        watch.leads = None
        if new and isinstance(state.role, Leader):
            self.counts["elections"] += 1
            watch.leads = state.role.epoch_start
            first = self.facts.leaders.setdefault(state.epoch, node_id)
            require(
                first == node_id, "one leader per epoch", f"epoch {state.epoch}: {first}, {node_id}"
            )
            self._elected(node_id, watch.raft)
        state.check_invariants()

    def _look_for_vote(self, node_id: int, watch: _Watch) -> None:
        """A vote counts once it is on the disk: before that it is not given, and may be lost."""
        stored = self._stored_election(node_id)
        if stored is None or stored.leader_epoch < watch.epoch:
            return
        watch.vote_due = False
        if stored.leader_epoch > watch.epoch or stored.voted_id is None:
            return
        # A node with another disk is another voter.
        key = (watch.raft.config.directory_id, stored.leader_epoch)
        first = self._votes.setdefault(key, stored.voted_id)
        require(
            first == stored.voted_id,
            "one vote an epoch",
            f"node {node_id}, epoch {stored.leader_epoch}: {first}, then {stored.voted_id}",
        )

    def _elected(self, node_id: int, raft: RaftNode) -> None:
        """Who voted for it can't forget that: enough others have it on their disks."""
        state = raft.core.state
        holders = []
        for voter_id in state.voters.ids:
            if voter_id == node_id:
                continue
            stored = self._stored_election(voter_id)
            if stored is not None and (
                stored.leader_epoch > state.epoch
                or (stored.leader_epoch == state.epoch and stored.voted_id == node_id)
            ):
                holders.append(voter_id)
        needed = state.voters.majority - 1
        require(
            len(holders) >= needed,
            "votes are durable before they count",
            f"node {node_id} leads epoch {state.epoch}; of {needed} votes needed of others, "
            f"those of {holders} are on disk",
        )

    def _stored_election(self, node_id: int) -> quorum_state.QuorumState | None:
        watch, media = self._watches.get(node_id), self._media.get(node_id)
        if watch is None or media is None:
            return None
        path = f"{watch.directory}/quorum-state"
        data = disks.durable(media, path)
        return None if data is None else quorum_state.decode(bytes(data), path)

    def _committed(self, node_id: int, watch: _Watch) -> None:
        state, mirror = watch.raft.core.state, watch.mirror
        mark = state.high_watermark
        require(
            mark >= watch.high_watermark,
            "the high watermark never goes back",
            f"node {node_id}: {watch.high_watermark}, then {mark}",
        )
        watch.high_watermark = mark
        leads = isinstance(state.role, Leader)
        # A follower's disk may be behind what it knows, and its cuts, too, which it waits for: then
        # it is looked at once more. A leader cuts nothing, and others have read what it commits.
        end = min(mark, watch.end) if leads or _is_up_to_date(watch.raft) else watch.checked
        if end > watch.checked:
            self.facts.commits(node_id, state.epoch, mirror, watch.checked, end)
            watch.checked = end
            if leads:
                self._durable_on_majority(node_id, watch)

    def _synced(self, node_id: int, watch: _Watch) -> None:
        """What a member calls durable is what a power loss would leave."""
        if node_id not in self.spoiled:
            self._claims[node_id] = watch.synced
        last = watch.mirror.ending_at_or_before(min(watch.synced, watch.end))
        if last is None or last.next <= watch.raft.core.state.log.start:
            return  # a snapshot stands for it
        require(
            self._has_durably(node_id, last.base, last.id),
            "what counts as durable is on the disk",
            f"node {node_id}: {last} is not, though all below {watch.synced} is said to be",
        )

    def _durable_on_majority(self, node_id: int, watch: _Watch) -> None:
        voters = watch.raft.core.state.voters
        last = watch.mirror.ending_at_or_before(watch.checked)
        if last is None:
            return
        holders = [
            voter_id
            for voter_id in voters.ids
            if self._promised(voter_id, last.next)
            or self._has_durably(voter_id, last.base, last.id)
        ]
        require(
            len(holders) >= voters.majority,
            "committed is durable on a majority",
            f"node {node_id}: {last} is on the disks of {holders} of {list(voters.ids)}",
        )

    def _promised(self, node_id: int, end: int) -> bool:
        """Whether a node that was damaged since had it durably, when it told the leader so."""
        return node_id in self.spoiled and end <= self._claims.get(node_id, 0)

    def _has_durably(self, node_id: int, base: int, wanted: tuple[int, int, int, int]) -> bool:
        watch, media = self._watches.get(node_id), self._media.get(node_id)
        if watch is None or media is None:
            return False
        batch = watch.mirror.find(base)
        if batch is None:
            return watch.mirror.start > base
        path = f"{watch.directory}/{segment_file(batch.segment, LOG)}"
        data = disks.durable(media, path)
        if data is None or len(data) < batch.position + HEADER_SIZE:
            return False
        try:
            header = read_header(bytes(data[batch.position : batch.position + HEADER_SIZE]))
        except DecodeError:
            return False  # other bytes, or none, were there when the power went
        return (header.base_offset, header.next_offset, header.leader_epoch, header.crc) == wanted
