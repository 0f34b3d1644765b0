"""A quorum of real cores on a stage: no chance, a little network, and a transcript to read.

A message takes 5 ms, an fsync 1 ms. Whoever may choose a moment chooses by its patience: node 1 the
earliest, the last node the latest (`be_first` puts another in front). So a script alone decides
what happens, and its transcript can be written down as what is expected. The simulation's checks
run along: a scenario that broke a rule would stop there.
"""

import random
from uuid import UUID

from raft import effects as fx
from raft.events import ConfirmLeadership, LeaderAppend, Resign, Started
from raft.messages import (
    BeginEpochRequest,
    EndEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    VoteRequest,
)
from raft.roles import Candidate, Prospective
from raft.state import QuorumConfig
from raft.voters import ReplicaKey, Voter, VoterSet
from simulation.raft_checks import RaftChecks
from simulation.raft_core import Faults, RaftWorld
from simulation.raft_node import SimulatedMember
from wire.errors import ErrorCode

MESSAGE_MS = 5
FSYNC_MS = 1
CONFIG = QuorumConfig(fetch_max_wait_ms=300, news_wait_max_ms=0)


class Patience(random.Random):
    """Chooses a fixed share of every range; the first of every list."""

    def __init__(self, share=0.0):
        super().__init__(0)
        self.share = share

    def randint(self, low, high):
        return low + round(self.share * (high - low))

    def randrange(self, low, high=None):
        low, high = (0, low) if high is None else (low, high)
        return self.randint(low, high - 1)

    def choice(self, items):
        return items[0]

    def random(self):
        return 0.99


class Player(SimulatedMember):
    """A member that tells the stage what its core decides."""

    def handle(self, event, now_ms):
        was = type(self.core.state.role)
        effects = super().handle(event, now_ms)
        self.world.decided(self, was, effects)
        return effects

    def _read(self, offset):
        records = super()._read(offset)
        if records is None or records.end_offset - offset <= self.world.batch:
            return records
        end = offset + self.world.batch
        epochs = tuple(run for run in records.epochs if run[1] < end)
        return records._replace(
            end_offset=end, epochs=epochs, payload=records.payload[: self.world.batch]
        )

    def _synced(self, end, truncations):
        if self.world.stuck_disks.get(self.node_id):
            self.sync_running = False
            return
        super()._synced(end, truncations)


class Stage(RaftWorld):
    """`voters` nodes 1, 2, …, and `observers` with the next ids; all are started by `start`."""

    def __init__(self, voters=3, observers=0, *, config=CONFIG):
        super().__init__(0)
        self.chance = Patience()
        self.faults = Faults()
        self.config = config
        self.bootstrap, self.bootstrap_ids = None, ()  # the voters are static
        ids = range(1, voters + observers + 1)
        keys = [ReplicaKey(i, UUID(int=100 + i)) for i in ids]
        self.voters = VoterSet(Voter(ReplicaKey(i)) for i in range(1, voters + 1))
        self.checks = RaftChecks(self.voters)
        self.members = {key.node_id: Player(self, key) for key in keys}
        self.disks = {node_id: member.disk for node_id, member in self.members.items()}
        self.patience = {i: Patience((i - 1) / max(1, len(keys) - 1)) for i in ids}
        self.stuck_disks = {}
        self.batch = 1000
        self.lines = []
        self.loud = False
        self.fetches_of = None
        self._lost = False
        self._in_vain = {}  # (from, to) -> what was said last, and didn't arrive
        self._leaders = {}  # the last leader that each node said it follows

    # What a script does

    def start(self):
        for node_id in self.members:
            self.boot_node(node_id)
        return self

    def boot_node(self, node_id):
        self.members[node_id].deaf = False
        self.members[node_id].boot()

    def pass_ms(self, duration_ms):
        """Let time pass; what is due at its end happens too."""
        until_ms = self.now_ms + duration_ms
        self.run_until(lambda: False, until_ms)

    def be_first(self, node_id):
        """From now on this node is the most impatient one; the others keep their order."""
        order = [node_id, *(i for i in self.members if i != node_id)]
        for place, one in enumerate(order):
            self.patience[one].share = place / max(1, len(order) - 1)

    def wait(self, done, most_ms=20_000):
        """Let time pass until `done`."""
        assert self.run_until(done, self.now_ms + most_ms), self.describe()

    def elect(self, node_id):
        """Let time pass until this node leads and has committed in its epoch."""
        self.be_first(node_id)
        member = self.members[node_id]
        self.wait(lambda: member.is_leader and member.core.state.role.committed_in_epoch)
        self.pass_ms(100)

    def append(self, node_id, values):
        member = self.members[node_id]
        assert member.is_leader, f"node {node_id} does not lead"
        self.deliver(member, LeaderAppend(member.core.state.epoch, len(values), values))

    def cut(self, a, b, *, both=True):
        self._cuts[a, b] = 2**62
        if both:
            self._cuts[b, a] = 2**62

    def mend(self, a=None, b=None):
        for pair in list(self._cuts):
            if a is None or pair in ((a, b), (b, a)) or (b is None and a in pair):
                del self._cuts[pair]

    def isolate(self, node_id):
        for other in self.members:
            if other != node_id:
                self.cut(node_id, other)

    def crash(self, node_id, *, unsynced_lost=True, noticed=True):
        """The node dies; `noticed`: its connections are seen to drop (a killed process)."""
        member = self.members[node_id]
        member.die(keep_all=not unsynced_lost)
        member.deaf = not noticed
        if noticed:
            for peer in self.members.values():
                if peer.core is not None:
                    self.drop_link(peer, node_id)

    def set_disk(self, node_id, *, works):
        """Whether the node's fsyncs finish."""
        self.stuck_disks[node_id] = not works
        member = self.members[node_id]
        if works and member.core is not None:
            member._sync()

    def damage(self, node_id, offset):
        """Durable records from `offset` on can't be read any more; the node is down."""
        disk = self.disks[node_id]
        disk.needs_end = max(disk.needs_end, disk.synced_end)
        del disk.entries[offset - disk.start :]
        disk.synced_end = disk.end

    def resign(self, node_id, *, leaving=False):
        self.deliver(self.members[node_id], Resign(leaving=leaving))

    def read(self, node_id, token):
        member = self.members[node_id]
        member.reads[token] = len(self.checks.committed)
        self.deliver(member, ConfirmLeadership(token))

    def leader_ids(self):
        return [node_id for node_id, member in self.members.items() if member.is_leader]

    def state(self, node_id):
        return self.members[node_id].core.state

    def values(self, node_id):
        """What the node's log holds, without the records that open epochs."""
        entries = self.disks[node_id].entries
        return [entry.value for entry in entries if not str(entry.value).startswith("leader ")]

    # What the world asks of it

    def deliver(self, member, event):
        if isinstance(event, Started):
            member.core.state.chance = self.patience[member.node_id]
        super().deliver(member, event)

    def disk_delay_ms(self):
        return FSYNC_MS

    def _carry(self, src, dst, action):
        self._lost = (src, dst) in self._cuts
        if self._lost:
            return False

        def arrive():
            # What was under way when the link was cut is lost with it.
            if (src, dst) not in self._cuts:
                action()

        self.at(self.now_ms + MESSAGE_MS, arrive)
        return True

    def send_request(self, member, peer_id, request):
        super().send_request(member, peer_id, request)
        self._tell_message(member.node_id, peer_id, request, _asked(request))

    def send_response(self, member, pending, response):
        super().send_response(member, pending, response)
        asker_id, _, _, request = pending
        self._tell_message(member.node_id, asker_id, request, _answered(request, response))

    # The transcript

    def say(self, text):
        if self.loud:
            self.lines.append(f"{self.now_ms:6}  {text}")

    def _tell_message(self, src, dst, request, text):
        routine = isinstance(request, FetchRequest) and self.fetches_of not in (src, dst)
        if text is None or routine:
            return
        line = f"n{src} -> n{dst}  {text}"
        in_vain = self._lost or self.members[dst].core is None
        # Who can't be reached is asked again and again: once is enough to read.
        if in_vain and self._in_vain.get((src, dst)) == text:
            return
        self._in_vain[src, dst] = text if in_vain else None
        if in_vain:
            line += "  (lost)" if self._lost else "  (down)"
        self.say(line)

    def decided(self, member, was, effects):
        node = member.node_id
        state = member.core.state
        role = type(state.role)
        if role is not was and role is Prospective:
            self.say(f"n{node} stands: would the others vote for it?")
        elif role is not was and role is Candidate:
            self.say(f"n{node} is a candidate in epoch {state.epoch}")
        for effect in effects:
            text = _said(node, effect)
            if isinstance(effect, fx.LeaderChanged):
                before = self._leaders.get(node, -1)
                self._leaders[node] = effect.leader_id
                if before < 0 and effect.leader_id < 0:
                    continue
            if text is not None:
                self.say(f"n{node} {text}")

    def show(self):
        """A line a node: role, epoch, log (what it knows to be committed left of the bar)."""
        return [self._line(member) for member in self.members.values()]

    def _line(self, member):
        disk = member.disk
        if member.core is None:
            return f"n{member.node_id} down                 {_log(disk, None)}"
        state = member.core.state
        role = type(state.role).__name__.lower()
        return (
            f"n{member.node_id} {role:11} epoch {state.epoch}  {_log(disk, state.high_watermark)}"
        )


def _log(disk, committed):
    words = [f"[..{disk.start - 1}]"] if disk.start else []
    for offset in range(disk.start, disk.end):
        if offset == committed:
            words.append("|")
        entry = disk.entry(offset)
        words.append(_value(entry))
    if committed == disk.end:
        words.append("|")
    return " ".join(words)


def _value(entry):
    """Epoch and value; `-` is the record that opens an epoch."""
    return f"{entry.epoch}:{'-' if str(entry.value).startswith('leader ') else entry.value}"


def _at(end):
    return f"({end.offset}, {end.epoch})"


def _asked(request):
    if isinstance(request, VoteRequest):
        kind = "pre-vote" if request.pre_vote else "vote"
        return f"{kind} in epoch {request.epoch}? my log ends at {_at(request.last)}"
    if isinstance(request, BeginEpochRequest):
        return f"I lead epoch {request.epoch}"
    if isinstance(request, EndEpochRequest):
        names = ", ".join(f"n{key.node_id}" for key in request.successors)
        return f"I lead epoch {request.epoch} no more; stand in this order: {names}"
    if isinstance(request, FetchSnapshotRequest):
        return f"snapshot {_at(request.snapshot)} from byte {request.position}"
    if isinstance(request, FetchRequest):
        who = "" if request.replica.node_id >= 0 else "somebody "
        return f"{who}fetches from ({request.offset}, {request.last_epoch})"
    return None


def _answered(request, response):
    if isinstance(request, VoteRequest):
        if response.granted:
            return "yes"
        return "no" + _why(response)
    if isinstance(request, BeginEpochRequest | EndEpochRequest):
        return "understood" if response.error == ErrorCode.none else "no" + _why(response)
    if response.error != ErrorCode.none:
        return "no" + _why(response)
    if isinstance(request, FetchSnapshotRequest):
        end = response.position + response.length
        return f"bytes {response.position} to {end - 1} of {response.size}"
    if response.diverging is not None:
        return f"your log leaves mine by {_at(response.diverging)}"
    if response.snapshot is not None:
        return f"take snapshot {_at(response.snapshot)}"
    if response.records is not None:
        values = " ".join(_value(entry) for entry in response.records.payload)
        return f"{values}; committed below {response.high_watermark}"
    return f"nothing new; committed below {response.high_watermark}"


def _why(response):
    reasons = []
    if response.error != ErrorCode.none:
        reasons.append(response.error.name)
    if response.leader_id >= 0:
        reasons.append(f"n{response.leader_id} leads epoch {response.epoch}")
    else:
        reasons.append(f"in epoch {response.epoch}")
    return f": {', '.join(reasons)}"


def _said(node, effect):
    match effect:
        case fx.PersistQuorumState(state) if state.voted is not None and state.leader_id < 0:
            who = state.voted.node_id
            return None if who == node else f"gives its vote in epoch {state.epoch} to n{who}"
        case fx.LeaderChanged(leader_id, epoch):
            if leader_id == node:
                return f"leads epoch {epoch}"
            return (
                f"knows no leader in epoch {epoch}"
                if leader_id < 0
                else f"follows n{leader_id} in epoch {epoch}"
            )
        case fx.AppendFetched(records):
            return f"appends {_span(records.base_offset, records.end_offset)}"
        case fx.TruncateLog(offset, _):
            return f"cuts its log back to {offset}"
        case fx.FreezeSnapshot(snapshot):
            return f"has snapshot {_at(snapshot)} whole and checks it"
        case fx.RestartLog(snapshot, _):
            return f"goes on behind snapshot {_at(snapshot)}"
        case fx.HighWatermarkAdvanced(offset):
            return f"knows all below {offset} to be committed"
        case fx.LeadershipConfirmed(token, offset):
            return f"answers read {token}: as of offset {offset}"
        case fx.LeadershipRefused(token):
            return f"refuses read {token}"
        case fx.Resigned():
            return "has resigned"
        case fx.Fatal(reason):
            return f"stops: {reason}"
    return None


def _span(base, end):
    return f"offset {base}" if end == base + 1 else f"offsets {base} to {end - 1}"
