"""One simulated quorum member: a real core, and a shell that acts on the simulated world."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from raft import effects as fx
from raft.core import QuorumCore
from raft.events import (
    Event,
    LogStartAdvanced,
    LogSynced,
    SnapshotFrozen,
    SnapshotWritten,
    Started,
    VoterProbed,
)
from raft.messages import (
    FetchedRecords,
    FetchResponse,
    FetchSnapshotResponse,
    Request,
    Response,
)
from raft.roles import Leader
from raft.voter_history import VoterHistory
from raft.voters import MembershipRecord, OffsetAndEpoch, ReplicaKey, Voter, VoterSet
from simulation.raft_disk import Entry, RaftDisk, Snapshot
from wire.errors import ErrorCode

if TYPE_CHECKING:
    from simulation.raft_core import RaftWorld

SLICE_BYTES = 10
FETCH_RECORDS_MAX = 8


class SimulatedMember:
    """Carries out effects strictly in order, waiting where the real shell waits for the disk."""

    def __init__(self, world: RaftWorld, key: ReplicaKey) -> None:
        self.world = world
        self.key = key
        self.node_id = key.node_id
        self.static = world.voters  # as its configuration has them
        self.disk = RaftDisk(world.bootstrap)
        self.core: QuorumCore | None = None
        self.incarnation = 0
        self.paused_until_ms = 0
        self.deaf = False  # down without a word: nobody answers for it
        self.applied = 0
        self.digest = 0
        self._reset()

    def _reset(self) -> None:
        self.queue: deque[fx.Effect] = deque()
        self.busy = False
        self.sync_running = False
        self.tick_at_ms: int | None = None
        self.outgoing: dict[int, tuple[int, Request]] = {}
        self.incoming: dict[int, tuple[int, int, int, Request]] = {}
        self.reads: dict[int, int] = {}

    # Life

    def boot(self) -> None:
        self.incarnation += 1
        self._reset()
        log, needs_end = self.disk.recover()
        newest = self.disk.snapshots[-1] if self.disk.snapshots else None
        self.applied = 0 if newest is None else newest.snapshot_id.offset
        self.digest = 0 if newest is None else newest.digest
        self.core = QuorumCore(
            own=Voter(self.key, self.world.endpoints_of(self), 0, 1),
            history=VoterHistory(self.static, self.disk.membership()),
            config=self.world.config,
            chance=random.Random(f"{self.world.seed}/{self.node_id}/{self.incarnation}"),
            log=log,
            stored=self.disk.election,
            needs_end=needs_end,
            can_vote=self.world.can_vote(self),
            bootstrap=tuple(i for i in self.world.bootstrap_ids if -1 - i != self.node_id),
        )
        self.world.deliver(self, Started())

    def replace_disk(self, key: ReplicaKey) -> None:
        """Be another replica, with nothing on its disk, under the same node id; it is down. Its
        configuration has no voters any more: with them it would take itself for one."""
        assert self.core is None, self.node_id
        self.key, self.static = key, VoterSet(())
        self.disk = RaftDisk()

    def die(self, *, keep_all: bool) -> None:
        self.core = None
        self.incarnation += 1
        self._reset()
        self.disk.crash(self.world.chance, keep_all=keep_all)

    @property
    def voters(self) -> VoterSet:
        """The set in force, by what is on its disk."""
        return self.disk.voters(self.static)

    @property
    def is_leader(self) -> bool:
        return self.core is not None and isinstance(self.core.state.role, Leader)

    # Effects

    def perform(self, effects: list[fx.Effect]) -> None:
        self.queue.extend(effects)
        while self.queue and not self.busy:
            effect = self.queue.popleft()
            self._PERFORM[type(effect)](self, effect)

    def _persist(self, effect: fx.PersistQuorumState) -> None:
        self.busy = True
        self.disk.writing = effect.state
        self.world.after(self, self.world.disk_delay_ms(), self._persisted)

    def _persisted(self) -> None:
        assert self.disk.writing is not None
        self.disk.election, self.disk.writing = self.disk.writing, None
        self.busy = False
        self.perform([])

    def _send_request(self, effect: fx.SendRequest) -> None:
        promises = self.world.can_vote(self)
        self.world.checks.on_request(self.key, self.disk, effect.request, promises=promises)
        self.world.send_request(self, effect.peer_id, effect.request)

    def _send_response(self, effect: fx.SendResponse) -> None:
        pending = self.incoming.pop(effect.token, None)
        if pending is None:
            return
        response = self._filled(effect.response)
        self.world.checks.on_response(self.key, self.disk, pending[3], response)
        self.world.send_response(self, pending, response)

    def _filled(self, response: Response) -> Response:
        """What the real shell adds to a leader's answer: records, or a slice of a snapshot."""
        if isinstance(response, FetchResponse) and response.read_from is not None:
            return response._replace(records=self._read(response.read_from), read_from=None)
        if isinstance(response, FetchSnapshotResponse) and response.error == ErrorCode.none:
            snapshot = self.disk.find(response.snapshot)
            if snapshot is None:
                return response._replace(error=ErrorCode.snapshot_not_found)
            if response.position >= snapshot.size:
                return response._replace(error=ErrorCode.position_out_of_range)
            return response._replace(
                size=snapshot.size,
                length=min(SLICE_BYTES, snapshot.size - response.position),
                payload=snapshot,
            )
        return response

    def _read(self, offset: int) -> FetchedRecords | None:
        if not self.disk.start <= offset < self.disk.end:
            return None
        index = offset - self.disk.start
        entries = self.disk.entries[index : index + FETCH_RECORDS_MAX]
        while entries[-1].joined:
            entries.append(self.disk.entries[index + len(entries)])
        epochs: list[tuple[int, int]] = []
        for place, entry in enumerate(entries):
            if not epochs or epochs[-1][0] != entry.epoch:
                epochs.append((entry.epoch, offset + place))
        found = tuple(e.value for e in entries if isinstance(e.value, MembershipRecord))
        return FetchedRecords(offset, offset + len(entries), tuple(epochs), entries, found)

    def _append_leader_change(self, effect: fx.AppendLeaderChange) -> None:
        self.world.checks.on_leader(self.key, effect, self.disk)
        more = [] if effect.membership is None else self._membership(effect, *effect.membership)
        opening = Entry(effect.epoch, f"leader {self.node_id}", bool(more))
        self._append(effect.base_offset, [opening, *more])

    def _append_membership(self, effect: fx.AppendMembership) -> None:
        self.world.checks.on_change(self.node_id, effect, self.disk)
        self._append(
            effect.base_offset, self._membership(effect, effect.kraft_version, effect.voters)
        )

    def _membership(
        self,
        effect: fx.AppendLeaderChange | fx.AppendMembership,
        kraft_version: int | None,
        voters: VoterSet,
    ) -> list[Entry]:
        """The records of a change, at the end of the log or behind a LeaderChange there."""
        offset = effect.base_offset + isinstance(effect, fx.AppendLeaderChange)
        records = []
        if kraft_version is not None:
            level = MembershipRecord(offset, kraft_version=kraft_version)
            records.append(Entry(effect.epoch, level, joined=True))
        records.append(Entry(effect.epoch, MembershipRecord(offset + len(records), voters=voters)))
        return records

    def _append_batch(self, effect: fx.AppendBatch) -> None:
        self._append(effect.base_offset, [Entry(effect.epoch, value) for value in effect.payload])

    def _append_fetched(self, effect: fx.AppendFetched) -> None:
        self._append(effect.records.base_offset, effect.records.payload)

    def _append(self, base_offset: int, entries: list[Entry]) -> None:
        self.disk.append(base_offset, entries)
        self.world.checks.on_append(self.node_id, self.disk, base_offset)

    def _sync(self, effect: fx.SyncLog | None = None) -> None:
        """One fsync at a time; appends that come while it runs are covered by the next."""
        if self.core is not None and self.core.state.needs_end is None:
            self.disk.know()
        if self.sync_running or self.disk.synced_end >= self.disk.end:
            return
        self.sync_running = True
        end, truncations = self.disk.end, self.disk.truncations
        self.world.after(self, self.world.disk_delay_ms(), lambda: self._synced(end, truncations))

    def _synced(self, end: int, truncations: int) -> None:
        self.sync_running = False
        if self.disk.sync(end, truncations):
            self.world.deliver(self, LogSynced(end, truncations - self._truncations_at_boot()))
        self._sync()

    def _truncations_at_boot(self) -> int:
        """The core counts from its own start, the disk for ever."""
        assert self.core is not None
        pending = sum(isinstance(e, fx.TruncateLog | fx.RestartLog) for e in self.queue)
        return self.disk.truncations + pending - self.core.state.log.truncations

    def _committed_told(self, effect: fx.CommittedTold) -> None: ...

    def _serve_parked_soon(self, effect: fx.ServeParkedSoon) -> None:
        self.world.serve_parked_soon(self)

    def _truncate(self, effect: fx.TruncateLog) -> None:
        self.world.counts["truncations"] += 1
        before = self.voters
        self.disk.truncate(effect.offset)
        self.world.counts["voter sets undone"] += self.voters != before

    def _write_slice(self, effect: fx.WriteSnapshotSlice) -> None:
        snapshot: Snapshot = effect.payload
        part = self.disk.part
        if effect.position == 0:
            position = 0
        else:
            assert part is not None
            assert part[0] == effect.snapshot
            assert part[1] == effect.position, (part, effect)
            position = part[1]
        length = min(SLICE_BYTES, snapshot.size - position)
        self.disk.part = (effect.snapshot, position + length, snapshot)

    def _freeze(self, effect: fx.FreezeSnapshot) -> None:
        self.world.after(self, self.world.disk_delay_ms(), lambda: self._frozen(effect.snapshot))

    def _frozen(self, snapshot_id: OffsetAndEpoch) -> None:
        part = self.disk.part
        assert part is not None
        assert part[:2] == (snapshot_id, part[2].size), (part, snapshot_id)
        complete = self.world.chance.random() >= self.world.faults.spoiled_download
        if complete:
            self.disk.add(part[2])
            self.world.counts["snapshots fetched"] += 1
        self.disk.part = None
        membership = part[2].membership if complete else None
        self.world.deliver(self, SnapshotFrozen(snapshot_id, complete, membership))

    def _restart_log(self, effect: fx.RestartLog) -> None:
        self.disk.restart(effect.snapshot)
        snapshot = self.disk.find(effect.snapshot)
        assert snapshot is not None
        self.applied, self.digest = effect.snapshot.offset, snapshot.digest

    def _high_watermark(self, effect: fx.HighWatermarkAdvanced) -> None:
        if effect.offset <= self.applied:
            return  # the snapshot just loaded says as much
        checks = self.world.checks
        self.digest = checks.on_high_watermark(
            self.node_id, self.applied, effect.offset, self.disk, self.digest
        )
        self.applied = effect.offset
        if self.is_leader:
            checks.on_commit(self.disk, self.world.disk_of, effect.offset)

    def _confirmed(self, effect: fx.LeadershipConfirmed) -> None:
        before = self.reads.pop(effect.token)
        self.world.counts["reads confirmed"] += 1
        self.world.checks.on_confirmed(self.node_id, effect.offset, before)

    def _refused(self, effect: fx.LeadershipRefused) -> None:
        self.reads.pop(effect.token)

    def _leader_changed(self, effect: fx.LeaderChanged) -> None:
        if effect.leader_id == self.node_id:
            self.world.counts["elections"] += 1

    def _voters_in_force(self, effect: fx.VotersInForce) -> None:
        expected = self.voters
        self.world.checks.require(
            effect.voters == expected,
            "the latest voter set of the log is in force",
            self.node_id,
            effect.voters,
            expected,
        )

    def _probe_voter(self, effect: fx.ProbeVoter) -> None:
        self.world.probe(self, effect)

    def _upgrade_answered(self, effect: fx.UpgradeAnswered) -> None:
        self.world.counts["kraft upgrades"] += effect.error == ErrorCode.none

    def probed(self, token: int, levels: tuple[int, int] | None) -> None:
        """The node that is to be added answers, or doesn't."""
        self.world.deliver(self, VoterProbed(token, levels))

    def _resigned(self, effect: fx.Resigned) -> None:
        self.world.counts["resignations"] += 1

    def _message_refused(self, effect: fx.MessageRefused) -> None:
        self.world.checks.require(
            False, "what members say makes sense", self.node_id, effect.sender_id, effect.reason
        )

    def _change_refused(self, effect: fx.ChangeRefused) -> None:
        self.world.note(f"{self.node_id}: {effect.leader_id} refuses {effect.reason}")

    def _fatal(self, effect: fx.Fatal) -> None:
        self.world.checks.require(False, "no member stops for good", self.node_id, effect.reason)

    _PERFORM: ClassVar[dict[type[Any], Callable[[SimulatedMember, Any], None]]] = {
        fx.PersistQuorumState: _persist,
        fx.SendRequest: _send_request,
        fx.SendResponse: _send_response,
        fx.AppendLeaderChange: _append_leader_change,
        fx.AppendMembership: _append_membership,
        fx.AppendBatch: _append_batch,
        fx.AppendFetched: _append_fetched,
        fx.SyncLog: _sync,
        fx.ServeParkedSoon: _serve_parked_soon,
        fx.TruncateLog: _truncate,
        fx.WriteSnapshotSlice: _write_slice,
        fx.FreezeSnapshot: _freeze,
        fx.RestartLog: _restart_log,
        fx.HighWatermarkAdvanced: _high_watermark,
        fx.CommittedTold: _committed_told,
        fx.LeadershipConfirmed: _confirmed,
        fx.LeadershipRefused: _refused,
        fx.LeaderChanged: _leader_changed,
        fx.VotersInForce: _voters_in_force,
        fx.ProbeVoter: _probe_voter,
        fx.UpgradeAnswered: _upgrade_answered,
        fx.Resigned: _resigned,
        fx.MessageRefused: _message_refused,
        fx.ChangeRefused: _change_refused,
        fx.Fatal: _fatal,
    }

    # What the world does to it

    def take_snapshot(self, *, trim: bool) -> None:
        """Write a snapshot of what is applied, as the state machine above would."""
        if self.core is None or self.queue or self.applied <= self.disk.start:
            return
        snapshot_id = OffsetAndEpoch(self.applied, self.disk.epoch_before(self.applied))
        if self.disk.find(snapshot_id) is not None:
            return
        history = self.core.state.history
        membership = MembershipRecord(
            self.applied - 1,
            history.kraft_version_before(self.applied),
            history.voters_before(self.applied),
        )
        if membership.kraft_version == 0:
            membership = membership._replace(voters=None)
        self.world.checks.on_snapshot(self.node_id, membership)
        self.disk.add(Snapshot(snapshot_id, self.digest, 5 + self.applied % 30, membership))
        self.world.counts["snapshots written"] += 1
        self.world.deliver(self, SnapshotWritten(snapshot_id))
        if trim and not self.queue:
            earliest = self.disk.trim()
            if earliest is not None:
                self.world.deliver(self, LogStartAdvanced(earliest))

    def handle(self, event: Event, now_ms: int) -> list[fx.Effect]:
        assert self.core is not None
        return self.core.handle(event, now_ms)
