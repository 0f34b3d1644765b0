"""A member of the quorum, voter or observer: the shell around `core.QuorumCore`.

    node = RaftNode(env, config, directory, listener, on_fatal=stop)
    await node.start()            # after it, and not before, serve node.apis()
    base, last = node.append([record], epoch)
    await node.stop()

Everything runs on one event loop. The listener is called from there, in the order of the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import structlog

from net.controller_channel import Endpoint
from net.handlers import Api, CloseConnection, HandlerTable, Later, Request
from raft import snapshot_writer
from raft.applier import Applier
from raft.burst import Burst
from raft.config import RaftConfig
from raft.core import QuorumCore
from raft.describe import DescribeQuorum
from raft.election_file import ElectionFile
from raft.events import (
    Event,
    LeaderAppend,
    LogStartAdvanced,
    RequestAbandoned,
    RequestReceived,
    Resign,
    SnapshotWritten,
    Started,
    Tick,
    UpgradeKraftVersion,
)
from raft.listener import CommittedBatch, LeaderAndEpoch, RaftListener
from raft.log_view import UNKNOWN_END
from raft.messages import Request as Message
from raft.metadata_log import MetadataLog
from raft.peers import Peers
from raft.performer import OwnBatch, Performer
from raft.reads import NotLeader, Reads
from raft.requests import Call, QuorumApis
from raft.roles import Follower, Leader
from raft.snapshots import SnapshotUnusable
from raft.voters import OffsetAndEpoch, VoterSet, record_of
from wire.apis import ApiKey
from wire.batch import build_batch
from wire.errors import FatalError, KafkaError
from wire.exits import EXIT_BAD_DIRECTORY, EXIT_LOG_DAMAGED, EXIT_METADATA_DISK_FAILED
from world.env import DiskError, DiskFull, Env

__all__ = ["NotLeader", "RaftNode"]

logger = structlog.get_logger("raft")
_CLEANING_MS = 60_000
_DAMAGE_PAUSE_MS = 1_000  # between two attempts to replace what is damaged
_RESIGN_WAIT_MS = 1_000


class RaftNode:
    """`directory` is the metadata log directory's parent (`metadata.log.dir`).

    `on_fatal` is called once if the node cannot go on (disk failed, protocol broken); it has
    stopped taking part by then, and its owner should stop the process.
    """

    def __init__(
        self,
        env: Env,
        config: RaftConfig,
        directory: str,
        listener: RaftListener,
        *,
        on_fatal: Callable[[FatalError], None],
    ) -> None:
        self.env = env
        self.config = config
        self.node_id = config.node_id
        self.log = MetadataLog(env, config, directory)
        self.election_file = ElectionFile(env.disk, self.log.directory)
        self.core: QuorumCore
        self.peers = Peers(env, config, self._address_of, self.tell, self._of_other_cluster)
        self.quorum_apis = QuorumApis(config, self._told_address_of, self._ask)
        # Servers to ask for the quorum, by ids that no node has.
        listed = (address for address in config.bootstrap if address != config.own_address)
        self._bootstrap = {-2 - place: address for place, address in enumerate(listed)}
        self._describe = DescribeQuorum(config, env.clock, lambda: self.core)
        self.reads = Reads(self.tell)
        self.leader_known = LeaderAndEpoch(None, 0)
        self.committed_told = asyncio.Event()
        self._is_current = False
        self.stopped = False
        self._started = False
        self._listener = listener
        self._on_fatal = on_fatal
        self._applier = Applier(self.log, listener, self.fail_for)
        self._performer = Performer(self, self._applier)
        self._burst = Burst(self._write_burst)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0
        self._cleaning: asyncio.TimerHandle | None = None
        self._cleaning_task: asyncio.Task[None] | None = None
        self._damage_heeded_ms = -_DAMAGE_PAUSE_MS
        self._tokens = 0
        self._tokens_by_link: dict[int, dict[int, None]] = {}

    # Life

    async def start(self) -> None:
        """Open the log, begin to load the newest snapshot, take up a role.

        Raises FatalError if the directory can't be gone on with.
        """
        static = VoterSet.static(self.config.voters, self.config.listener_name)
        try:
            stored = self.election_file.load(votes=not self.config.observer)
            opened = await self.log.open(static, stored)
        except DiskError as error:
            raise FatalError(EXIT_METADATA_DISK_FAILED, f"the metadata log: {error}") from error
        latest = self.log.snapshots.latest
        if latest is not None:
            self._applier.load_snapshot(latest)
        else:
            self._applier.loaded.set()
        self.core = QuorumCore(
            own=self.config.own_voter,
            history=opened.history,
            config=self.config.quorum,
            chance=self.env.chance,
            log=opened.view,
            stored=stored,
            needs_end=opened.needs_end,
            can_vote=not self.config.observer,
            bootstrap=tuple(self._bootstrap),
        )
        lost_up_to = "unknown" if opened.needs_end == UNKNOWN_END else opened.needs_end
        logger.info("raft_started", state=self.core.state.describe(), lost_up_to=lost_up_to)
        if self.config.voters and opened.history.voters_offset is not None:
            # Harmless now, not so on the day on which this disk is replaced by an empty one.
            logger.warning(
                "static_voters_ignored",
                reason="the voters are in the metadata log, so controller.quorum.voters counts no "
                "more, but with an empty log it would: set controller.quorum.bootstrap.servers "
                "in its place",
            )
        self._started = True
        self.tell(Started())
        self._plan_cleaning()

    async def wait_loaded(self) -> None:
        """Until the listener has the snapshot that was there at `start`, if there was one; the node
        takes part meanwhile. Returns too if it stops before."""
        await self._applier.loaded.wait()

    async def stop(self, *, resign_wait_ms: int = _RESIGN_WAIT_MS) -> None:
        """Hand leadership over, make everything durable, close all files.

        Does nothing if the node never started.
        """
        if not self._started:
            return
        if not self.stopped and isinstance(self.core.state.role, Leader):
            try:
                async with asyncio.timeout(resign_wait_ms / 1000):
                    self.tell(Resign(leaving=True))
                    await self._performer.resigned.wait()
            except TimeoutError:
                logger.info("resigned_unheard")
        failed = self.stopped
        self._halt()
        await self._close(clean=not failed)

    async def kill(self) -> None:
        """Stop as a crash would, as far as that is possible within a process (for tests)."""
        self._halt()
        await self._close(clean=False)

    async def _close(self, *, clean: bool) -> None:
        went_well = await self._performer.close()
        await self._applier.close()
        if self._cleaning_task is not None and not self._cleaning_task.done():
            await asyncio.wait([self._cleaning_task])
        await self.log.close(clean=clean and went_well)

    def _halt(self) -> None:
        """Take part no more."""
        self.stopped = True
        self.peers.close()
        self.reads.close()
        for timer in (self._timer, self._cleaning):
            if timer is not None:
                timer.cancel()
        self._applier.loaded.set()
        self._performer.drop_calls(f"node {self.node_id} takes part in the quorum no more")

    def fail(self, error: FatalError) -> None:
        """This node cannot go on."""
        if not self.stopped:
            self._halt()
            logger.critical("raft_failed", reason=error.reason)
            self._on_fatal(error)

    def snapshot_lost(self) -> None:
        """One that others need is damaged; ours to give is what the state machine holds now."""
        if not self.stopped:
            self._listener.on_snapshot_lost()

    def log_damaged(self, offset: int, where: str) -> None:
        """The batch at `offset`, which others need, is unsound on the disk. What it said is in the
        state machine, so a snapshot takes the place of all up to there; but where that hasn't had
        it yet, nobody will, and others have to lead."""
        now_ms = self.env.clock.now_ms()
        if self.stopped or now_ms < self._damage_heeded_ms + _DAMAGE_PAUSE_MS:
            return
        self._damage_heeded_ms = now_ms
        latest = self.log.snapshots.latest
        if offset >= max(self.applied_offset, 0 if latest is None else latest.offset):
            self.fail(FatalError(EXIT_LOG_DAMAGED, f"the metadata log is damaged: {where}"))
            return
        if self.log.note_damage(offset):
            logger.error("metadata_log_damaged", where=where, replaced_by="a snapshot")
        self._trim()
        if offset >= self.log.log.log_start_offset:
            self.snapshot_lost()

    def _of_other_cluster(self, peers: Sequence[int]) -> None:
        """Voters who say that our directory isn't of their cluster: without them there would be
        no majority."""
        voters = self.voters.ids
        asked = [voter_id for voter_id in voters or self._bootstrap if voter_id != self.node_id]
        strangers = [peer for peer in peers if peer in asked]
        if len(strangers) > len(asked) // 2:
            kind = "voters" if voters else "bootstrap servers"
            names = strangers if voters else [self._bootstrap_address(id_) for id_ in strangers]
            self.fail(
                FatalError(
                    EXIT_BAD_DIRECTORY,
                    f"{self.log.directory} is of cluster {self.config.cluster_id}, but {kind} "
                    f"{', '.join(map(str, names))} are of another one",
                )
            )

    def _bootstrap_address(self, id_: int) -> str:
        host, port = self._bootstrap[id_]
        return f"{host}:{port}"

    def fail_for(self, error: BaseException) -> None:
        """As `fail`, for an error that ended a task."""
        if isinstance(error, FatalError):
            self.fail(error)
            return
        self.fail(FatalError(EXIT_METADATA_DISK_FAILED, f"the metadata log: {error}"))
        if not isinstance(error, DiskError | KafkaError | SnapshotUnusable):
            raise error

    # Events

    def tell(self, event: Event) -> None:
        """Bring an event to the core, and do what it wants done."""
        if self.stopped:
            return
        self._burst.end()
        effects = self.core.handle(event, self.env.clock.now_ms())
        self._performer.perform(effects)
        self._arm()

    def _arm(self) -> None:
        """Have the next tick come when the core wants it (an early one does no harm)."""
        deadline_ms = self.core.deadline_ms
        if deadline_ms is None or self.stopped:
            return
        if self._timer is not None:
            if self._timer_at_ms <= deadline_ms:
                return
            self._timer.cancel()
        wait_ms = max(1, deadline_ms - self.env.clock.now_ms())
        self._timer_at_ms = deadline_ms
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.tell(Tick())

    def _ask(self, request: Request, message: Message, call: Call) -> Later:
        """A request of another member comes in. Raises CloseConnection once we have stopped."""
        if self.stopped:
            raise CloseConnection(f"node {self.node_id} takes part in the quorum no more")
        self._tokens += 1
        token, link = self._tokens, request.connection.number
        later = Later()
        if link not in self._tokens_by_link:
            self._tokens_by_link[link] = {}
            request.connection.on_close(lambda: self._link_closed(link))
        tokens = self._tokens_by_link[link]
        if len(tokens) > 64:
            for old in [old for old in tokens if old not in self._performer.calls]:
                del tokens[old]
        tokens[token] = None
        self._performer.calls[token] = (later, call)
        self.tell(RequestReceived(token, message))
        return later

    def _link_closed(self, link: int) -> None:
        for token in self._tokens_by_link.pop(link, {}):
            if self._performer.calls.pop(token, None) is not None:
                self.tell(RequestAbandoned(token))

    def apis(self) -> list[Api]:
        """The handlers for the controller listener."""
        return [*self.quorum_apis.apis(), *self._describe.apis()]

    def forwarded_apis(self) -> HandlerTable:
        """Those of them that a client may ask of a broker, which sends them on in an Envelope."""
        forwarded = (ApiKey.DESCRIBE_QUORUM, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER)
        return HandlerTable(api for api in self.apis() if api.key in forwarded)

    # What is known

    def leader(self) -> LeaderAndEpoch:
        """The leader as known now; None in it while unknown."""
        if not self._started:
            return LeaderAndEpoch(None, 0)
        state = self.core.state
        leader_id = state.told_leader_id
        return LeaderAndEpoch(None if leader_id < 0 else leader_id, state.epoch)

    def leader_endpoint(self) -> Endpoint | None:
        """The leader's controller listener, None while unknown."""
        leader_id, epoch = self.leader()
        if leader_id is None:
            return None
        address = self._address_of(leader_id)
        return None if address is None else Endpoint(leader_id, *address, epoch)

    def _address_of(self, node_id: int) -> tuple[str, int] | None:
        """Where a member or a bootstrap server is reached from here."""
        if node_id in self._bootstrap:
            return self._bootstrap[node_id]
        state = self.core.state
        if node_id == state.leader_id:
            return state.reached_at
        return state.voters.address(node_id, self.config.listener_name)

    def _told_address_of(self, node_id: int) -> tuple[str, int] | None:
        """Where others are told that a member can be reached."""
        if node_id == self.node_id and self.config.advertised is not None:
            return self.config.advertised
        return self._address_of(node_id)

    @property
    def voters(self) -> VoterSet:
        """The voter set in force, committed or not."""
        return self.core.state.voters

    @property
    def kraft_version(self) -> int:
        """The level of kraft.version in force, committed or not."""
        return self.core.state.history.kraft_version if self._started else 0

    @property
    def is_leader(self) -> bool:
        return self._started and isinstance(self.core.state.role, Leader)

    @property
    def in_touch(self) -> bool:
        """Whether this node leads, or follows a leader that answers it."""
        role = self.core.state.role
        return isinstance(role, Leader) or (isinstance(role, Follower) and not role.lost)

    @property
    def high_watermark(self) -> int:
        """All below it is committed, as far as known here."""
        return self.core.state.high_watermark if self._started else 0

    @property
    def applied_offset(self) -> int:
        """All below it was handed to the listener."""
        return self._applier.applied

    @property
    def is_current(self) -> bool:
        """Whether this node has handed on all that was committed when a leader first told it of
        that in this life, or up to its own epoch as leader. Until then its listener knows but the
        past."""
        if not self._is_current:
            state = self.core.state
            told = state.committed_told
            if isinstance(state.role, Leader):
                told = state.role.epoch_start + 1
            self._is_current = told is not None and self.applied_offset >= told
        return self._is_current

    @property
    def catching_up(self) -> bool:
        """Whether more is known to be committed than was handed to the listener."""
        return self.applied_offset < self.high_watermark

    @property
    def end_offset(self) -> int:
        """Where the next record goes."""
        return self.core.state.log.end + len(self._burst) if self._started else 0

    @property
    def log_start_offset(self) -> int:
        """Where the log begins; what was before is in a snapshot."""
        return self.core.state.log.start

    async def read_committed(self, offset: int, max_bytes: int) -> list[CommittedBatch]:
        """Committed batches that were handed to the listener, from the one that holds `offset`
        on, at least one while there is any; none at the end."""
        return await self._applier.read(offset, max_bytes)

    @property
    def latest_snapshot_id(self) -> OffsetAndEpoch | None:
        return self.log.snapshots.latest

    @property
    def fsyncs(self) -> int:
        """How often the log was made durable; appends share fsyncs."""
        return self._performer.fsyncs

    # What the state machine above asks for

    def append(self, values: Sequence[bytes], epoch: int) -> tuple[int, int]:
        """Append records as one atomic batch; (first, last) offset. Leader only.

        They are committed once the listener is given them. Raises NotLeader if this node doesn't
        lead `epoch` (any more), RECORD_LIST_TOO_LARGE if they don't fit a batch of 8 MiB.
        """
        if not self._started:
            raise NotLeader(f"node {self.node_id} hasn't started")
        state = self.core.state
        if self.stopped or not isinstance(state.role, Leader) or state.epoch != epoch:
            raise NotLeader(f"node {self.node_id} doesn't lead epoch {epoch}")
        self._burst.add(values, epoch)
        end_offset = state.log.end + len(self._burst)
        return end_offset - len(values), end_offset - 1

    def _write_burst(self, values: list[bytes], epoch: int) -> None:
        """Append the records of one batch; they are lost with the leadership that they were
        appended under."""
        state = self.core.state
        if not isinstance(state.role, Leader) or state.epoch != epoch:
            return
        base_offset, now_ms = state.log.end, self.env.clock.wall_ms()
        data = build_batch(
            [(now_ms, None, value, ()) for value in values],
            base_offset=base_offset,
            leader_epoch=epoch,
        )
        last_offset = base_offset + len(values) - 1
        batch = CommittedBatch(base_offset, last_offset, epoch, now_ms, values, [], len(data))
        self.tell(LeaderAppend(epoch, len(values), OwnBatch(bytearray(data), batch)))

    async def confirm_leadership(self) -> int:
        """A read index: everything committed when this was called is below the offset returned,
        confirmed by a majority since. Raises NotLeader."""
        if self.stopped or not self._started:
            raise NotLeader(f"node {self.node_id} isn't running")
        return await self.reads.confirm()

    async def upgrade_kraft_version(self, level: int, *, validate_only: bool) -> None:
        """Raise kraft.version to `level`; returns once that is committed. With `validate_only`
        nothing is changed, and it returns if it could be. At `level` already, nothing is done.

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, INVALID_UPDATE_VERSION where a voter hasn't
        told this leader that it supports the level, or the level is a lower or unknown one, or
        REQUEST_TIMED_OUT while another change of the voters is under way.
        """
        if self.stopped or not self._started:
            raise NotLeader(f"node {self.node_id} isn't running")
        self._tokens += 1
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._performer.upgrades[self._tokens] = future
        self.tell(UpgradeKraftVersion(self._tokens, level, validate_only))
        await future

    def resign(self) -> None:
        """Give up leadership; the others are told who should follow."""
        self.tell(Resign())

    async def write_snapshot(
        self, offset: int, epoch: int, last_timestamp_ms: int, slices: Iterable[Sequence[bytes]]
    ) -> bool:
        """Keep the state as of `offset` (exclusive) and `epoch` as a snapshot, and drop what
        retention no longer wants. `offset` ends a batch that was handed to the listener; others
        have their turn after each of the `slices`, which hold the records' values.

        Whether it was: if the disk is full nothing is kept, and all goes on; if it failed this node
        stops.
        """
        snapshot = OffsetAndEpoch(offset, epoch)
        assert offset <= self.applied_offset, (offset, self.applied_offset)
        latest = self.latest_snapshot_id
        if self.stopped or offset == 0 or (latest is not None and latest >= snapshot):
            return False
        history = self.core.state.history
        try:
            await snapshot_writer.write(
                self.env,
                self.log.snapshots,
                snapshot,
                last_timestamp_ms,
                slices,
                kraft_version=history.kraft_version_before(offset),
                voters=record_of(history.voters_before(offset)),
            )
        except DiskFull as error:
            # The log is still whole: a later snapshot will stand for this one.
            logger.error("snapshot_not_written", offset=offset, reason=str(error))
            return False
        except DiskError as error:
            self.fail_for(error)
            return False
        if not self.stopped:
            self.tell(SnapshotWritten(snapshot))
            self._trim()
        return True

    def _trim(self, *, leave_damaged: bool = False) -> None:
        try:
            self.log.trim(leave_damaged=leave_damaged)
        except DiskFull as error:
            # The log may begin later all the same: with its files there still.
            logger.error("log_not_trimmed", reason=str(error))
        except DiskError as error:
            self.fail_for(error)
            return
        earliest = self.log.snapshots.earliest
        known, start = self.core.state.log.start, self.log.log.log_start_offset
        # A core that is about to begin behind a downloaded snapshot is further than the oldest.
        if earliest is not None and known < earliest.offset <= start:
            logger.info("log_trimmed", start=start)
            self.tell(LogStartAdvanced(earliest))

    def _plan_cleaning(self) -> None:
        self._cleaning = asyncio.get_running_loop().call_later(_CLEANING_MS / 1000, self._clean)

    def _clean(self) -> None:
        if self.stopped:
            return
        self._plan_cleaning()
        self._trim(leave_damaged=True)
        if self.log.is_damaged:
            self.snapshot_lost()
        self._cleaning_task = asyncio.get_running_loop().create_task(
            self._delete_files(), name="raft-clean"
        )

    async def _delete_files(self) -> None:
        try:
            await self.log.snapshots.remove_dropped()
            await self.log.log.delete_due_files(self.env.clock.now_ms())
        except DiskError as error:
            logger.warning("old_files_not_deleted", reason=str(error))

    def status(self) -> dict[str, Any]:
        """Figures for metrics and logs; empty before the start."""
        if not self._started:
            return {}
        state = self.core.state
        return {
            "role": type(state.role).__name__.lower(),
            "epoch": state.epoch,
            "leader_id": state.told_leader_id,
            "high_watermark": state.high_watermark,
            "end_offset": state.log.end,
            "log_start_offset": state.log.start,
            "applied_offset": self.applied_offset,
            "fsyncs": self.fsyncs,
            "damaged": state.needs_end is not None,
        }
