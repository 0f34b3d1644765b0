"""Three brokers' cores of one partition, their logs as lists, and a controller to be filled in."""

from dataclasses import dataclass, field

from broker.partition import PartitionCore, Role
from broker.partition_events import (
    AlterPartitionAnswered,
    Appended,
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
    """`core` is None while it is down; `image` is the number of the last image it has applied."""

    id: int
    core: PartitionCore | None = None
    log: list = field(default_factory=list)
    image: int = -1
    proposals: list = field(default_factory=list)
    waiting: list = field(default_factory=list)
    checkpoint: int = 0


class World:
    """The brokers' part. Who is the controller says what images there are (`image_count`,
    `assigned`, `eligible`), which broker epochs (`alive`), how `answer` judges a proposal, and how
    brokers are started and stopped. Entries of a log are (leader epoch, value)."""

    def __init__(self):
        self.now_ms = 0
        self.values = 0
        self.brokers = {i: Broker(i) for i in IDS}
        self.alive = {}
        self.acked = {}
        self.committed = {}

    # -- the controller --

    def image_count(self):
        raise NotImplementedError

    def assigned(self, number):
        """The Assigned event of image `number`."""
        raise NotImplementedError

    def eligible(self, number):
        """Broker epochs of those who may be in an ISR by image `number`."""
        raise NotImplementedError

    def answer(self, i, proposal):
        """Judges and carries out; (error, the Assigned of the outcome)."""
        raise NotImplementedError

    # -- brokers --

    def boot(self, i, image):
        """The broker's process runs, with the images up to that one applied."""
        broker = self.brokers[i]
        broker.core = PartitionCore(
            i,
            lag_max_ms=LAG_MS,
            min_isr=MIN_ISR,
            log_end=len(broker.log),
            high_watermark=broker.checkpoint,
        )
        broker.image = image - 1
        self.deliver(i)

    def halt(self, i):
        """The process is gone."""
        del self.alive[i]
        broker = self.brokers[i]
        broker.core, broker.proposals, broker.waiting = None, [], []

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
        if core.is_leader and core.leader_epoch == self.last().leader_epoch:
            for offset, entry in self.acked.items():
                assert broker.log[offset : offset + 1] == [entry], "an acknowledged record is gone"

    def last(self):
        return self.assigned(self.image_count() - 1)

    def deliver(self, i):
        """One image more, if there is one."""
        broker = self.brokers[i]
        if broker.core is None:
            return
        if broker.image + 1 < self.image_count():
            broker.image += 1
            self.tell(i, self.assigned(broker.image))
            self.tell(i, EligibleBrokers(self.eligible(broker.image)))

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
        if leader.core.check_follower(i, self.alive[i], core.leader_epoch) is not ErrorCode.none:
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
        """A proposal reaches the controller; its answer gets lost or not."""
        broker = self.brokers[i]
        if broker.core is None or not broker.proposals:
            return
        proposal = broker.proposals.pop(0)
        error, state = self.answer(i, proposal)
        if lost:
            self.tell(i, AlterPartitionAnswered(proposal.token, ErrorCode.unknown_server_error))
        elif error is ErrorCode.none:
            self.tell(
                i,
                AlterPartitionAnswered(
                    proposal.token, error, state.isr, state.leader_epoch, state.partition_epoch
                ),
            )
        else:
            self.tell(i, AlterPartitionAnswered(proposal.token, error))

    def step(self, op, i, n):
        """One of append, fetch, deliver, tick, alter and checkpoint."""
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
        elif op == "checkpoint" and i in self.alive:
            self.brokers[i].checkpoint = self.brokers[i].core.high_watermark
