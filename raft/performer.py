"""Carries out the core's effects, strictly in order, waiting where the disk must be waited for.

While a quorum-state write or a truncation is under way everything behind it waits, so nothing
is said that isn't durable. Fsyncs of the log run beside this and are told as events; one fsync
serves all appends made before it began (group commit).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ClassVar

import structlog

from net.handlers import CloseConnection, Later
from raft import effects as fx
from raft.applier import Applier, decode_batch
from raft.events import LogSynced, ServeParked, SnapshotFrozen, VoterProbed
from raft.hardening import Hardening
from raft.listener import CommittedBatch, LeaderAndEpoch
from raft.messages import FetchResponse, FetchSnapshotResponse, Response
from raft.records_server import Answer, RecordsServer
from raft.requests import Call, Slice
from raft.roles import Leader
from raft.snapshot_server import SnapshotServer
from raft.snapshots import SnapshotUnusable
from raft.voter_records import control_batch, encode_membership, membership_in
from raft.voters import MembershipRecord, OffsetAndEpoch
from wire import control
from wire.batch import read_header
from wire.errors import ErrorCode, FatalError, KafkaError
from wire.exits import EXIT_METADATA_DISK_FAILED
from wire.uuids import to_text
from world.env import DiskError, File

if TYPE_CHECKING:
    from raft.node import RaftNode

logger = structlog.get_logger("raft")


class OwnBatch:
    """A batch to append here, with what the listener gets when it is committed."""

    __slots__ = ("batch", "data")

    def __init__(self, data: bytearray, batch: CommittedBatch) -> None:
        self.data = data
        self.batch = batch


class Performer:
    """One per incarnation of a node."""

    def __init__(self, node: RaftNode, applier: Applier) -> None:
        self._node = node
        self._env = node.env
        self._log = node.log
        self._applier = applier
        self._records_server = RecordsServer(node.log, node.log_damaged, node.fail_for)
        self._snapshot_server = SnapshotServer(
            node.log.snapshots, node.snapshot_lost, node.fail_for
        )
        self._queue: deque[fx.Effect] = deque()
        self._running = False
        self._blocked_by: asyncio.Task[None] | None = None
        self._sync_task: asyncio.Task[None] | None = None
        self._sync_wanted = False
        self._hardening = Hardening(node.log, self._failed)
        self._failed_late = False
        self._truncations = 0
        self._serve_asked = False
        self._committed: int | None = None  # to be applied after the sync
        self._newest: OwnBatch | None = None  # what this leader appended last
        self._freezing: asyncio.Task[None] | None = None
        self._part: tuple[OffsetAndEpoch, File] | None = None
        self._probes: dict[int, asyncio.Task[None]] = {}
        self.calls: dict[int, tuple[Later, Call]] = {}
        self.upgrades: dict[int, asyncio.Future[None]] = {}
        self.resigned = asyncio.Event()
        self._refused_last: fx.MessageRefused | fx.ChangeRefused | None = None
        self.fsyncs = 0

    def perform(self, effects: list[fx.Effect]) -> None:
        """Queue effects, and do what can be done now."""
        self._queue.extend(effects)
        if self._running:
            return  # called from within an effect: the loop below goes on with these
        self._running = True
        try:
            while self._queue and self._blocked_by is None and not self._node.stopped:
                effect = self._queue.popleft()
                self._PERFORM[type(effect)](self, effect)
        except (DiskError, KafkaError) as error:
            self._node.fail(FatalError(EXIT_METADATA_DISK_FAILED, f"the metadata log: {error}"))
        finally:
            self._running = False
        if self._serve_asked and not self._queue:
            self._serve_asked = False
            self._node.tell(ServeParked())

    def _block(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Let everything behind wait until `work` is done."""
        self._blocked_by = asyncio.get_running_loop().create_task(work, name=name)
        self._blocked_by.add_done_callback(self._unblock)

    def _unblock(self, task: asyncio.Task[None]) -> None:
        self._blocked_by = None
        if self._went_well(task):
            self.perform([])

    def _went_well(self, task: asyncio.Task[None]) -> bool:
        """Whether it did, and its work is to be gone on with."""
        if task.cancelled():
            return False
        error = task.exception()
        if error is not None:
            self._failed(error)
        return error is None and not self._node.stopped

    def _failed(self, error: BaseException) -> None:
        if self._node.stopped:
            logger.error("failed_while_stopping", error=repr(error))
            self._failed_late = True
        else:
            self._node.fail_for(error)

    # Elections

    def _persist(self, effect: fx.PersistQuorumState) -> None:
        node = self._node
        self._block(
            node.election_file.save(effect.state, node.voters, node.kraft_version),
            "raft-persist",
        )

    def _leader_changed(self, effect: fx.LeaderChanged) -> None:
        node = self._node
        role = node.core.state.role
        leader_id = None if effect.leader_id < 0 else effect.leader_id
        logger.info("leader_changed", leader=leader_id, epoch=effect.epoch)
        after = 0
        if leader_id == node.node_id:
            if not isinstance(role, Leader) or node.core.state.epoch != effect.epoch:
                return  # lost again before it was taken up; what follows says so
            after = role.epoch_start + 1
        node.leader_known = LeaderAndEpoch(leader_id, effect.epoch)
        self._applier.tell_leader(node.leader_known, after)

    def _resigned(self, effect: fx.Resigned) -> None:
        self.resigned.set()

    def _message_refused(self, effect: fx.MessageRefused) -> None:
        if self._is_new(effect):
            logger.warning("message_refused", sender=effect.sender_id, reason=effect.reason)

    def _change_refused(self, effect: fx.ChangeRefused) -> None:
        if self._is_new(effect):
            logger.warning("voter_change_refused", leader=effect.leader_id, reason=effect.reason)

    def _is_new(self, effect: fx.MessageRefused | fx.ChangeRefused) -> bool:
        """There is a line for each, not for each time that it is repeated."""
        is_new = effect != self._refused_last
        self._refused_last = effect
        return is_new

    def _fatal(self, effect: fx.Fatal) -> None:
        self._node.fail(FatalError(effect.exit_code, effect.reason))

    # Messages

    def _send_request(self, effect: fx.SendRequest) -> None:
        self._node.peers.send(effect.peer_id, effect.request)

    def _send_response(self, effect: fx.SendResponse) -> None:
        entry = self.calls.pop(effect.token, None)
        if entry is None:
            return  # its connection is gone
        later, call = entry
        response = effect.response
        if isinstance(response, FetchResponse) and response.read_from is not None:
            self._serve_records(
                response, call, lambda filled, found: self._answer(later, call, filled, found)
            )
        elif isinstance(response, FetchSnapshotResponse) and response.error == ErrorCode.none:
            self._snapshot_server.serve(
                response,
                call.records_max_bytes,
                lambda filled, found: self._answer(later, call, filled, found),
            )
        else:
            self._answer(later, call, response, None)

    def _answer(self, later: Later, call: Call, response: Response, data: Slice | None) -> None:
        if not later.done:
            later.set(self._node.quorum_apis.reply(call, response, data))

    def _serve_records(self, response: FetchResponse, call: Call, answer: Answer) -> None:
        offset = response.read_from
        assert offset is not None, response
        most = min(call.records_max_bytes, self._node.config.fetch_max_bytes)
        newest = self._newest
        if newest is not None and newest.batch.base_offset == offset and len(newest.data) <= most:
            answer(response, Slice(newest.data, len(newest.data)))  # what others mostly wait for
        else:
            self._records_server.serve(response, offset, most, answer)

    def _serve_parked_soon(self, effect: fx.ServeParkedSoon) -> None:
        self._serve_asked = True

    # The log

    def _append_leader_change(self, effect: fx.AppendLeaderChange) -> None:
        change = control.encode_leader_change(self._node.node_id, effect.voters, effect.granting)
        more = () if effect.membership is None else encode_membership(*effect.membership)
        self._append_control([change, *more], effect.base_offset, effect.epoch)

    def _append_membership(self, effect: fx.AppendMembership) -> None:
        records = encode_membership(effect.kraft_version, effect.voters)
        self._append_control(records, effect.base_offset, effect.epoch)

    def _append_control(
        self, records: list[tuple[bytes, bytes]], base_offset: int, epoch: int
    ) -> None:
        data = control_batch(records, base_offset, epoch, self._env.clock.wall_ms())
        batch = decode_batch(data, 0, read_header(data))
        self._append(OwnBatch(bytearray(data), batch), epoch)

    def _append_batch(self, effect: fx.AppendBatch) -> None:
        self._append(effect.payload, effect.epoch)

    def _append(self, own: OwnBatch, epoch: int) -> None:
        assert own.batch.base_offset == self._log.log.end_offset, own.batch.base_offset
        self._log.append_own(own.data, epoch)
        self._applier.remember(own.batch)
        self._newest = own

    def _append_fetched(self, effect: fx.AppendFetched) -> None:
        self._log.append_fetched(effect.records)
        assert self._log.log.end_offset == effect.records.end_offset, effect.records.end_offset

    def _sync_log(self, effect: fx.SyncLog) -> None:
        self._sync_wanted = True
        self._start_sync()

    def _start_sync(self) -> None:
        if self._sync_wanted and self._sync_task is None:
            self._sync_task = asyncio.get_running_loop().create_task(self._sync(), name="raft-sync")
            self._sync_task.add_done_callback(self._sync_ended)

    async def _sync(self) -> None:
        while self._sync_wanted and not self._node.stopped:
            self._sync_wanted = False
            end, truncations = self._log.log.end_offset, self._truncations
            await self._log.sync()
            self.fsyncs += 1
            if truncations == self._truncations and not self._node.stopped:
                whole = self._node.core.state.needs_end is None
                self._log.note_synced(end, whole=whole)
                self._hardening.moved()
                self._node.tell(LogSynced(end, truncations))
            if self._committed is not None:
                asyncio.get_running_loop().call_soon(self._apply_committed)

    def _sync_ended(self, task: asyncio.Task[None]) -> None:
        self._sync_task = None
        if self._went_well(task):
            self._start_sync()  # asked for after the task had made its last round

    def _truncate(self, effect: fx.TruncateLog) -> None:
        logger.info("log_truncated", offset=effect.offset, end=self._log.log.end_offset)
        self._truncations = effect.truncations
        self._newest = None
        self._applier.forget_from(effect.offset)
        self._block(self._log.truncate(effect.offset), "raft-truncate")

    def _committed_told(self, effect: fx.CommittedTold) -> None:
        self._node.committed_told.set()

    def _high_watermark(self, effect: fx.HighWatermarkAdvanced) -> None:
        if self._sync_wanted and not self._node.is_leader:
            # Others wait for what was appended just now, and nobody for this: it is applied
            # when our next fetch has promised that, while we wait for its answer.
            self._committed = effect.offset
        else:
            self._applier.advance(effect.offset)

    def _apply_committed(self) -> None:
        offset, self._committed = self._committed, None
        if offset is not None and not self._node.stopped:
            self._applier.advance(offset)

    # Snapshots

    def _write_slice(self, effect: fx.WriteSnapshotSlice) -> None:
        if effect.position == 0:
            self._drop_part()
            mark = f"from-{self._node.core.state.leader_id}"
            self._part = (effect.snapshot, self._log.snapshots.new_part(effect.snapshot, mark))
        assert self._part is not None, effect
        snapshot, file = self._part
        assert (snapshot, file.size()) == (effect.snapshot, effect.position), effect
        file.append([effect.payload])

    def _drop_part(self) -> None:
        if self._part is not None:
            self._log.snapshots.discard(self._part[1])
            self._part = None

    def _freeze(self, effect: fx.FreezeSnapshot) -> None:
        self._freezing = asyncio.get_running_loop().create_task(
            self._freeze_part(effect.snapshot), name="raft-freeze"
        )
        self._freezing.add_done_callback(self._went_well)

    async def _freeze_part(self, snapshot: OffsetAndEpoch) -> None:
        assert self._part is not None, snapshot
        part, self._part = self._part[1], None
        membership: MembershipRecord | None = None
        complete = True
        try:
            membership = membership_in(await self._log.snapshots.freeze(part, snapshot))
        except SnapshotUnusable as error:
            logger.warning("fetched_snapshot_unusable", reason=str(error))
            complete = False
        logger.info("snapshot_fetched", offset=snapshot.offset, complete=complete)
        self._node.tell(SnapshotFrozen(snapshot, complete, membership))

    def _restart_log(self, effect: fx.RestartLog) -> None:
        self._truncations = effect.truncations
        self._committed = self._newest = None
        self._applier.hold()
        self._block(self._restart(effect.snapshot), "raft-restart-log")

    async def _restart(self, snapshot: OffsetAndEpoch) -> None:
        await self._log.restart_at(snapshot)
        self._applier.load_snapshot(snapshot)

    # Reads

    def _confirmed(self, effect: fx.LeadershipConfirmed) -> None:
        self._node.reads.confirmed(effect.token, effect.offset)

    def _refused(self, effect: fx.LeadershipRefused) -> None:
        self._node.reads.refused(effect.token)

    # Voters

    def _voters_in_force(self, effect: fx.VotersInForce) -> None:
        keys = [
            f"{voter.key.node_id}:{voter.key.directory_id and to_text(voter.key.directory_id)}"
            for voter in effect.voters
        ]
        logger.info("voters_in_force", voters=keys, kraft_version=effect.kraft_version)

    def _probe_voter(self, effect: fx.ProbeVoter) -> None:
        task = asyncio.get_running_loop().create_task(self._probe(effect), name="raft-probe")
        self._probes[effect.token] = task
        task.add_done_callback(lambda task: self._probes.pop(effect.token, None))
        task.add_done_callback(self._went_well)

    async def _probe(self, effect: fx.ProbeVoter) -> None:
        levels, serves_quorum = await self._node.peers.probe(effect.voter)
        self._node.tell(VoterProbed(effect.token, levels, serves_quorum))

    def _upgrade_answered(self, effect: fx.UpgradeAnswered) -> None:
        future = self.upgrades.pop(effect.token)
        if future.done():
            return  # its caller has gone
        if effect.error is ErrorCode.none:
            future.set_result(None)
        else:
            future.set_exception(KafkaError(effect.error, effect.message))

    _PERFORM: ClassVar[dict[type[Any], Callable[[Performer, Any], None]]] = {
        fx.PersistQuorumState: _persist,
        fx.SendRequest: _send_request,
        fx.SendResponse: _send_response,
        fx.AppendLeaderChange: _append_leader_change,
        fx.AppendMembership: _append_membership,
        fx.AppendBatch: _append_batch,
        fx.AppendFetched: _append_fetched,
        fx.SyncLog: _sync_log,
        fx.ServeParkedSoon: _serve_parked_soon,
        fx.TruncateLog: _truncate,
        fx.WriteSnapshotSlice: _write_slice,
        fx.FreezeSnapshot: _freeze,
        fx.RestartLog: _restart_log,
        fx.HighWatermarkAdvanced: _high_watermark,
        fx.CommittedTold: _committed_told,
        fx.LeaderChanged: _leader_changed,
        fx.LeadershipConfirmed: _confirmed,
        fx.LeadershipRefused: _refused,
        fx.VotersInForce: _voters_in_force,
        fx.ProbeVoter: _probe_voter,
        fx.UpgradeAnswered: _upgrade_answered,
        fx.Resigned: _resigned,
        fx.MessageRefused: _message_refused,
        fx.ChangeRefused: _change_refused,
        fx.Fatal: _fatal,
    }

    def drop_calls(self, reason: str) -> None:
        """Close the connections of those who wait for an answer: we have none any more, and they
        find out sooner than by waiting."""
        for token in list(self.calls):
            entry = self.calls.pop(token, None)
            if entry is not None:
                entry[0].fail(CloseConnection(reason))

    async def close(self) -> bool:
        """End what is under way; a sync or a write that has begun is waited for. False if one
        failed: what it was about can't be made durable by trying again."""
        for probe in self._probes.values():
            probe.cancel()
        for future in self.upgrades.values():
            if not future.done():
                future.set_exception(KafkaError(ErrorCode.not_controller, "the node has stopped"))
        tasks = [
            task
            for task in (
                self._blocked_by,
                self._sync_task,
                self._freezing,
                *self._probes.values(),
            )
            if task is not None and not task.done()
        ]
        if tasks:
            await asyncio.wait(tasks)
        await self._hardening.close()
        await self._snapshot_server.close()
        await self._records_server.close()
        self._drop_part()
        return not self._failed_late
