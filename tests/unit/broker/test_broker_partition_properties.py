"""Three partition cores, a small controller and random events: what is acknowledged stays."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.partition import PartitionCore, Role
from broker.partition_events import (
    AlterPartitionAnswered,
    Appended,
    Assigned,
    EligibleBrokers,
    FollowerFetched,
    HighWatermarkMoved,
    LeaderHighWatermark,
    ProposeIsr,
    Tick,
    Truncated,
)
from wire.apis import ErrorCode

IDS = (1, 2, 3)
LAG_MS = 100
MIN_ISR = 2


def end_of_epoch(log, epoch):
    """(epoch, end offset) as OffsetForLeaderEpoch would answer it from this log."""
    best = max((e for e, _ in log if e <= epoch), default=None)
    if best is None:
        return -1, 0
    return best, max(i for i, (e, _) in enumerate(log) if e == best) + 1


@dataclass
class Broker:
    id: int
    core: PartitionCore | None = None
    log: list = field(default_factory=list)
    image: int = -1
    proposals: list = field(default_factory=list)
    waiting: list = field(default_factory=list)
    checkpoint: int = 0


class World:
    def __init__(self):
        self.now_ms = 0
        self.values = 0
        self.next_epoch = 100
        self.brokers = {i: Broker(i) for i in IDS}
        self.alive = {}
        self.images = []
        self.acked = {}
        self.committed = {}
        self.state = Assigned(IDS, IDS, 1, 0, 0, False)
        self.images.append(self.state)
        for i in IDS:
            self.start(i)

    # -- controller --

    def publish(self, **changes):
        state = self.state._replace(**changes, partition_epoch=self.state.partition_epoch + 1)
        if "leader" in changes:
            state = state._replace(leader_epoch=state.leader_epoch + 1)
        self.state = state
        self.images.append(state)

    def elect(self):
        if self.state.leader in self.alive and self.state.leader in self.state.isr:
            return
        leader = next((i for i in IDS if i in self.state.isr and i in self.alive), -1)
        if leader != self.state.leader:
            self.publish(leader=leader)

    def kill(self, i):
        if i not in self.alive:
            return
        del self.alive[i]
        broker = self.brokers[i]
        broker.core, broker.proposals, broker.waiting = None, [], []
        isr = tuple(r for r in self.state.isr if r != i)
        if isr and isr != self.state.isr:
            self.state = self.state._replace(isr=isr)
            if self.state.leader == i:
                self.publish(leader=next((r for r in IDS if r in isr and r in self.alive), -1))
            else:
                self.publish()
        elif self.state.leader == i:
            self.publish(leader=-1)

    def start(self, i):
        if i in self.alive:
            return
        broker = self.brokers[i]
        broker.core = PartitionCore(
            i,
            lag_max_ms=LAG_MS,
            min_isr=MIN_ISR,
            log_end=len(broker.log),
            high_watermark=broker.checkpoint,
        )
        self.next_epoch += 1
        self.alive[i] = self.next_epoch
        broker.image = len(self.images) - 2
        self.elect()
        self.deliver(i)

    def answer(self, i, proposal):
        epochs = dict(proposal.isr)
        state = self.state
        if proposal.leader_epoch < state.leader_epoch:
            return ErrorCode.fenced_leader_epoch
        if proposal.partition_epoch < state.partition_epoch:
            return ErrorCode.invalid_update_version
        if any(self.alive.get(r) != e and e != -1 for r, e in epochs.items()):
            return ErrorCode.ineligible_replica
        if any(r not in self.alive for r in epochs):
            return ErrorCode.ineligible_replica
        assert state.leader == i
        self.publish(isr=tuple(epochs))
        return ErrorCode.none

    # -- brokers --

    def tell(self, i, event):
        broker = self.brokers[i]
        before = broker.core.high_watermark
        effects = broker.core.handle(event, self.now_ms)
        assert broker.core.high_watermark >= before, "the high watermark went back"
        for effect in effects:
            if isinstance(effect, ProposeIsr):
                broker.proposals = [effect]
            elif isinstance(effect, HighWatermarkMoved):
                assert effect.high_watermark == broker.core.high_watermark
        self.after(broker)

    def after(self, broker):
        core = broker.core
        core.check_invariants()
        assert core.log_end == len(broker.log)
        for offset in range(core.high_watermark):
            assert self.committed.setdefault(offset, broker.log[offset]) == broker.log[offset]
        if not core.is_leader:
            broker.waiting = []
        while broker.waiting and broker.waiting[0] < core.high_watermark:
            offset = broker.waiting.pop(0)
            self.acked[offset] = broker.log[offset]
            assert len(core.maximal_isr) >= MIN_ISR
        if core.is_leader and core.leader_epoch == self.state.leader_epoch:
            for offset, entry in self.acked.items():
                assert broker.log[offset] == entry, "an acknowledged record is gone"

    def deliver(self, i):
        broker = self.brokers[i]
        if broker.core is None:
            return
        if broker.image + 1 < len(self.images):
            broker.image += 1
            self.tell(i, self.images[broker.image])
        if broker.image + 1 == len(self.images):
            self.tell(i, EligibleBrokers(dict(self.alive)))

    def append(self, i, count):
        broker = self.brokers[i]
        if broker.core is None or not broker.core.is_leader:
            return
        wait = len(broker.core.isr) >= MIN_ISR
        for _ in range(count):
            self.values += 1
            if wait:
                broker.waiting.append(len(broker.log))
            broker.log.append((broker.core.leader_epoch, self.values))
        self.tell(i, Appended(len(broker.log)))

    def fetch(self, i, count):
        follower = self.brokers[i]
        core = follower.core
        if core is None or core.role is not Role.FOLLOWER or core.leader not in self.alive:
            return
        leader = self.brokers[core.leader]
        if leader.core.check_epoch(core.leader_epoch, leader_only=True) is not ErrorCode.none:
            return
        end = len(follower.log)
        if end:
            epoch, limit = end_of_epoch(leader.log, follower.log[-1][0])
            if epoch < follower.log[-1][0] or limit < end:
                own_epoch, own_end = end_of_epoch(follower.log, epoch)
                cut = min(own_end, end) if own_epoch != epoch else min(own_end, limit, end)
                del follower.log[cut:]
                assert core.high_watermark <= cut, "what was committed is cut"
                self.tell(i, Truncated(len(follower.log)))
                return
        self.tell(leader.id, FollowerFetched(i, self.alive[i], end, 0))
        mark = leader.core.high_watermark
        follower.log.extend(leader.log[end : end + count])
        self.tell(i, Appended(len(follower.log)))
        self.tell(i, LeaderHighWatermark(mark))

    def alter(self, i, lost):
        broker = self.brokers[i]
        if broker.core is None or not broker.proposals:
            return
        proposal = broker.proposals.pop(0)
        error = self.answer(i, proposal)
        if lost:
            self.tell(i, AlterPartitionAnswered(proposal.token, ErrorCode.unknown_server_error))
        elif error is ErrorCode.none:
            state = self.state
            self.tell(
                i,
                AlterPartitionAnswered(
                    proposal.token, error, state.isr, state.leader_epoch, state.partition_epoch
                ),
            )
        else:
            self.tell(i, AlterPartitionAnswered(proposal.token, error))

    def step(self, op, i, n):
        self.now_ms += n * 7
        if op == "append":
            self.append(i, n)
        elif op == "fetch":
            self.fetch(i, n)
        elif op == "deliver":
            self.deliver(i)
        elif op == "tick":
            self.now_ms += n * 20
            if i in self.alive:
                self.tell(i, Tick())
        elif op == "alter":
            self.alter(i, n == 5)
        elif op == "kill":
            # Within the budget of faults: some member of the ISR lives.
            if any(r in self.alive and r != i for r in self.state.isr):
                self.kill(i)
        elif op == "start":
            self.start(i)
        elif op == "checkpoint" and i in self.alive:
            self.brokers[i].checkpoint = self.brokers[i].core.high_watermark


OPS = ["append", "append", "fetch", "fetch", "fetch", "fetch", "deliver", "deliver", "deliver"]
OPS += ["tick", "alter", "alter", "kill", "start", "start", "checkpoint"]
STEPS = st.lists(
    st.tuples(st.sampled_from(OPS), st.sampled_from(IDS), st.integers(1, 5)), max_size=300
)


@settings(max_examples=100, deadline=None)
@given(STEPS)
def test_no_acknowledged_record_is_lost(steps):
    world = World()
    for step in steps:
        world.step(*step)


def test_random_histories_get_somewhere():
    """The same machine driven long by a fixed stream: it must commit, fail over and heal."""
    import random

    epochs = acked = 0
    for seed in range(25):
        chance = random.Random(seed)
        world = World()
        for _ in range(600):
            world.step(chance.choice(OPS), chance.choice(IDS), chance.randint(1, 5))
        epochs += world.state.leader_epoch
        acked += len(world.acked)
        for i in IDS:
            world.start(i)
        for _ in range(60):
            for i in IDS:
                for op in ("deliver", "fetch", "alter", "tick"):
                    world.step(op, i, 4)
        assert sorted(world.state.isr) == [1, 2, 3]
        assert len({tuple(b.log) for b in world.brokers.values()}) == 1
        leader = world.brokers[world.state.leader].core
        assert leader.high_watermark == leader.log_end
    assert epochs > 50
    assert acked > 180
