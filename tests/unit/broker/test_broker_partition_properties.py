"""Three partition cores, a small controller and random events: what is acknowledged stays."""

from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from partition_world import IDS, World

from broker.partition_events import Assigned, EligibleBrokers
from wire.apis import ErrorCode


class SmallWorld(World):
    """A controller of a few lines, without eligible leader replicas. Nobody loses what is in its
    log, and some member of the ISR always lives."""

    def __init__(self):
        super().__init__()
        self.next_epoch = 100
        self.state = Assigned(IDS, IDS, 1, 0, 0, False)
        self.images = [self.state]
        for i in IDS:
            self.start(i)

    def image_count(self):
        return len(self.images)

    def assigned(self, number):
        return self.images[number]

    def eligible(self, number):
        return dict(self.alive)

    def deliver(self, i):
        super().deliver(i)
        # Brokers come and go without an image of their own here.
        broker = self.brokers[i]
        if broker.core is not None and broker.image + 1 == len(self.images):
            self.tell(i, EligibleBrokers(dict(self.alive)))

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
        self.halt(i)
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
        self.next_epoch += 1
        self.alive[i] = self.next_epoch
        before = len(self.images) - 1
        self.elect()
        self.boot(i, before)

    def answer(self, i, proposal):
        epochs = dict(proposal.isr)
        state = self.state
        if proposal.leader_epoch < state.leader_epoch:
            return ErrorCode.fenced_leader_epoch, state
        if proposal.partition_epoch < state.partition_epoch:
            return ErrorCode.invalid_update_version, state
        if any(self.alive.get(r) != e and e != -1 for r, e in epochs.items()):
            return ErrorCode.ineligible_replica, state
        if any(r not in self.alive for r in epochs):
            return ErrorCode.ineligible_replica, state
        assert state.leader == i
        self.publish(isr=tuple(epochs))
        return ErrorCode.none, self.state

    def step(self, op, i, n):
        super().step(op, i, n)
        if op == "kill":
            # Within the budget of faults: some member of the ISR lives.
            if any(r in self.alive and r != i for r in self.state.isr):
                self.kill(i)
        elif op == "start":
            self.start(i)


OPS = ["append", "append", "fetch", "fetch", "fetch", "fetch", "deliver", "deliver", "deliver"]
OPS += ["tick", "alter", "alter", "kill", "start", "start", "checkpoint"]
STEPS = st.lists(
    st.tuples(st.sampled_from(OPS), st.sampled_from(IDS), st.integers(1, 5)), max_size=300
)


@examples(100)
@given(STEPS)
def test_no_acknowledged_record_is_lost(steps):
    world = SmallWorld()
    for step in steps:
        world.step(*step)


def test_random_histories_get_somewhere():
    """The same machine driven long by a fixed stream: it must commit, fail over and heal."""
    import random

    epochs = acked = 0
    for seed in range(25):
        chance = random.Random(seed)
        world = SmallWorld()
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
