"""Random lives of a group whose members speak one protocol or the other."""

from collections import Counter

from consumer_scene import AWAY, ConsumerScene
from examples import examples
from group_scene import RANGE
from hypothesis import given
from hypothesis import strategies as st
from old_consumer import EagerConsumer

from broker.groups import events as e
from broker.groups.classic_group import ClassicGroup, State
from broker.groups.consumer.group import ConsumerGroup
from wire.errors import ErrorCode

PARTITIONS = 5
OLD, NEW = ("o", "p", "q"), ("a", "b", "c")
# The last of each comes with an instance id, and each id is one of both kinds.
STATIC = {"q": "i", "c": "i"}


class Life:
    """A group and its clients by name; `old` speak the classic protocol."""

    def __init__(self, data):
        self.data = data
        self.scene = ConsumerScene(
            group_initial_rebalance_delay_ms=0,
            group_consumer_migration_policy=data.draw(
                st.sampled_from(["bidirectional", "upgrade", "downgrade"])
            ),
        )
        self.scene.know(t=PARTITIONS)
        self.old = {}
        self.new = {}
        self.strangers = []  # who asked without being one of the two
        # Most of what is told apart here needs members of both kinds that have settled.
        for name in data.draw(st.lists(st.sampled_from(OLD), unique=True)):
            self.old[name] = EagerConsumer(self.scene, STATIC.get(name))
        self.some_time()
        for _ in range(data.draw(st.integers(0, 2))):
            self.new_goes_on()

    # -- what may happen -------------------------------------------------------------------------

    def old_goes_on(self):
        name = self.data.draw(st.sampled_from(OLD))
        if name not in self.old:
            self.old[name] = EagerConsumer(self.scene, STATIC.get(name))
        self.old[name].step()

    def some_time(self):
        for _ in range(5):
            self.scene.advance(1_000)
            self.all_old_go_on()
            self.all_new_go_on()

    def all_old_go_on(self):
        for one in list(self.old.values()):
            one.step()

    def new_goes_on(self):
        name = self.data.draw(st.sampled_from(NEW))
        client = self.new.get(name)
        if client is None:
            instance = STATIC.get(name)
            member_id = f"{name}{len(self.scene.asked)}"
            client = self.scene.consumer(member_id, instance_id=instance)
            client.join()
            if client.error != "none":
                return
            self.new[name] = client
        else:
            self.beat(name)

    def beat(self, name):
        client = self.new[name]
        client.beat()
        if client.error in ("none", "coordinator_not_available"):
            return
        del self.new[name]

    def all_new_go_on(self):
        for name in list(self.new):
            self.beat(name)

    def old_leaves(self):
        client = self.old.pop(self.data.draw(st.sampled_from(OLD)), None)
        if client is not None and client.is_in:
            client.leave()

    def new_leaves(self):
        name = self.data.draw(st.sampled_from(NEW))
        client = self.new.pop(name, None)
        if client is not None:
            client.leave(AWAY if name in STATIC and self.data.draw(st.booleans()) else -1)

    def somebody_dies(self):
        name = self.data.draw(st.sampled_from(OLD + NEW))
        self.old.pop(name, None)
        self.new.pop(name, None)

    def time_passes(self):
        self.scene.advance(self.data.draw(st.sampled_from([1, 3_000, 11_000, 61_000])))

    def fail_over(self):
        self.scene.fail_over()

    def appends_fail(self):
        self.scene.append_error = ErrorCode.not_enough_replicas
        actions = [self.old_goes_on, self.new_goes_on, self.old_leaves, self.time_passes]
        self.data.draw(st.sampled_from(actions))()
        self.scene.append_error = None

    def several_fail(self):
        """Changes that are under way at once, of which none is stored."""
        self.scene.hold()
        asked = st.lists(st.sampled_from(UNDER_WAY), min_size=2, max_size=5)
        for ask in self.data.draw(asked):
            ask(self)
        if self.data.draw(st.booleans()):
            self.scene.fail()
        else:
            self.scene.fail_over()
        self.check_replay()

    def static_returns(self):
        self.strangers.append(self.scene.join(instance_id="i", protocols=RANGE))

    def another_new_joins(self):
        instance = self.data.draw(st.sampled_from([None, "i"]))
        client = self.scene.consumer(f"x{len(self.scene.asked)}", instance_id=instance)
        fields = client.heartbeat(**client.saying_all())
        self.strangers.append(self.scene.ask(e.ConsumerGroupHeartbeat, **fields))

    def one_tries_to_leave(self):
        if self.new:
            client = self.new[self.data.draw(st.sampled_from(sorted(self.new)))]
            fields = client.heartbeat(member_epoch=-1)
            self.strangers.append(self.scene.ask(e.ConsumerGroupHeartbeat, **fields))

    def an_administrator_commits(self):
        offsets = (e.CommittedOffset("t", 0, 1),)
        self.strangers.append(self.scene.ask(e.OffsetCommit, "g", "", -1, None, offsets))

    # -- what must hold --------------------------------------------------------------------------

    def check(self):
        """No partition is of two clients that are members at the coordinator's epochs."""
        owners = Counter()
        group = self.scene.group()
        for client in self.new.values():
            member = getattr(group, "members", {}).get(client.member_id)
            if not isinstance(group, ConsumerGroup) or member is None:
                continue
            if client.epoch in (member.epoch, member.previous_epoch):
                owners.update((t, p) for t, those in client.owned.items() for p in those)
        for client in self.old.values():
            if self.belongs(group, client):
                owners.update(client.pairs())
        assert max(owners.values(), default=1) == 1, owners

    @staticmethod
    def belongs(group, client):
        if not client.is_in or group is None:
            return False
        member = group.members.get(client.member_id)
        if isinstance(group, ClassicGroup):
            return member is not None and client.generation == group.generation
        return member is not None and client.generation == member.epoch

    def check_replay(self):
        """What is known is what the log says; of a classic group while it doesn't rebalance."""
        group, logged = self.scene.group(), self.scene.loaded_copy()._context.groups.get("g")
        if isinstance(group, ConsumerGroup):
            assert logged == group
        elif group is not None and group.stage is State.STABLE:
            assert isinstance(logged, ClassicGroup)
            assert logged.generation == group.generation
            assert sorted(logged.members) == sorted(group.members)

    def end(self):
        """Nothing happens any more: all partitions have an owner among those who live."""
        for _ in range(80):
            self.scene.advance(1_000)
            self.all_old_go_on()
            self.all_new_go_on()
            self.check()
        self.check_replay()
        assert [one for one in self.strangers if one not in self.scene.answers] == []
        live = [*self.old.values(), *self.new.values()]
        if not live:
            return
        owned = [p for one in self.old.values() for _, p in one.pairs()]
        owned += [p for one in self.new.values() for _, p in one.partitions]
        assert sorted(owned) == list(range(PARTITIONS))
        assert self.scene.group().state == "Stable"


UNDER_WAY = [
    Life.static_returns,
    Life.another_new_joins,
    Life.one_tries_to_leave,
    Life.an_administrator_commits,
    Life.time_passes,
]
ACTIONS = [
    Life.old_goes_on,
    Life.old_goes_on,
    Life.all_old_go_on,
    Life.new_goes_on,
    Life.new_goes_on,
    Life.all_new_go_on,
    Life.some_time,
    Life.some_time,
    Life.old_leaves,
    Life.new_leaves,
    Life.new_leaves,
    Life.somebody_dies,
    Life.time_passes,
    Life.fail_over,
    Life.appends_fail,
    Life.several_fail,
    Life.several_fail,
]


@examples(100)
@given(st.data())
def test_no_partition_has_two_owners_whatever_they_speak(data):
    life = Life(data)
    for action in data.draw(st.lists(st.sampled_from(ACTIONS), max_size=30)):
        action(life)
        life.check()
    life.check_replay()
    life.end()
