"""Random lives of a consumer group: what must hold at every step, and where they must lead."""

from collections import Counter

from consumer_scene import AWAY, ConsumerScene, settle, topic_id
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from broker.groups import events as e
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import MemberState
from wire.errors import ErrorCode

TOPICS = ("t", "u", "v")
NAMES = ("a", "b", "c", "d")
# One round to hear of the target, one to say what was given up, one to get what others gave up,
# and one that brings nothing new; each again for topics that came and for expressions.
ROUNDS = 8

subscriptions = st.sampled_from([("t",), ("t", "u"), ("t", "u", "v"), ("v",), ()])
regexes = st.sampled_from([None, None, "[tu]", ".*"])


class Life:
    """A group and its clients, by name. `alike`: all subscribe to the same."""

    def __init__(self, data, alike):
        self.data = data
        self.alike = alike
        interval = data.draw(st.sampled_from([0, 1_000]))
        self.scene = ConsumerScene(group_consumer_assignment_interval_ms=interval)
        self.scene.know(t=4, u=3)
        self.clients = {}

    def client(self):
        return self.clients.get(self.data.draw(st.sampled_from(NAMES)))

    # -- what may happen -------------------------------------------------------------------------

    def join(self):
        name = self.data.draw(st.sampled_from(NAMES))
        static = name in "cd"
        count = len(self.clients)
        topics = ("t", "u") if self.alike else self.data.draw(subscriptions)
        client = self.scene.consumer(
            f"{name}{len(self.scene.asked)}" if static else name,
            topics,
            instance_id=f"i{name}" if static else None,
            regex=None if self.alike else self.data.draw(regexes),
            assignor=None if self.alike else self.data.draw(st.sampled_from([None, "range"])),
        )
        before = self.clients.get(name)
        if before is not None and static:
            before.leave(AWAY)
        client.join()
        self.clients[name] = client
        assert len(self.clients) in (count, count + 1)

    def beat(self):
        client = self.client()
        if client is not None:
            client.beat()
            if client.error != "none":
                self.fenced(client)

    def lose_the_answer(self):
        client = self.client()
        if client is not None:
            client.request(owned=client.says())
            client.missed = True

    def say_nothing(self):
        client = self.client()
        if client is not None and not client.missed:
            client.take(client.request())
            if client.error != "none":
                self.fenced(client)

    def subscribe_anew(self):
        client = self.client()
        if client is not None and not self.alike:
            client.topics = self.data.draw(subscriptions)
            client.take(client.request(subscribed_topics=client.topics))

    def leave(self):
        name = self.data.draw(st.sampled_from(NAMES))
        client = self.clients.pop(name, None)
        if client is not None:
            client.leave()

    def die(self):
        self.clients.pop(self.data.draw(st.sampled_from(NAMES)), None)

    def time_passes(self):
        self.scene.advance(self.data.draw(st.sampled_from([1, 1_000, 20_000, 70_000])))

    def topics_change(self):
        changes = self.data.draw(
            st.sampled_from([{"t": 6}, {"u": 5}, {"v": 2}, {"v": None}, {"u": None}, {"u": 3}])
        )
        self.scene.know(**{n: c for n, c in changes.items() if c or n in self.scene.topics})

    def fail_over(self):
        self.scene.fail_over()

    def fail_over_before_it_is_committed(self):
        client = self.client()
        if client is not None:
            self.scene.replicated = False
            self.scene.ask(e.ConsumerGroupHeartbeat, **client.heartbeat(owned=client.says()))
            self.scene.fail_over()
            self.scene.replicated = True
            client.missed = True

    def appends_fail(self):
        self.scene.append_error = ErrorCode.not_enough_replicas
        self.data.draw(st.sampled_from([self.join, self.beat, self.leave, self.time_passes]))()
        self.scene.append_error = None

    def fenced(self, client):
        """It gives up everything, as it must."""
        client.epoch, client.owned = 0, {}

    # -- what must hold --------------------------------------------------------------------------

    def check(self):
        group = self.scene.group()
        if group is None:
            return
        check_counts(group)
        owners = Counter(
            (topic, partition)
            for member in group.members.values()
            for owned in (member.assigned, member.revoking)
            for topic, partitions in owned.items()
            for partition in partitions
        )
        assert max(owners.values(), default=1) == 1
        self.check_clients(group)

    def check_clients(self, group):
        """A client that is a member owns nothing that the coordinator could give to another."""
        taken = Counter()
        for client in self.clients.values():
            member = group.members.get(client.member_id)
            if member is None or client.epoch not in (member.epoch, member.previous_epoch):
                continue
            for topic, partitions in client.owned.items():
                for partition in partitions:
                    assert member.owned_since(topic, partition) is not None
                    taken[topic, partition] += 1
        assert max(taken.values(), default=1) == 1

    def check_replay(self):
        copy = self.scene.loaded_copy()
        copied = copy._context.groups.get("g")
        assert copied == self.scene.group()
        for upto in {0, len(self.scene.log), self.data.draw(st.integers(0, len(self.scene.log)))}:
            cleaned = self.scene.new_core()
            for offset, record in self.cleaned(upto):
                cleaned.replay(offset, *record)
            assert cleaned._context.groups.get("g") == self.scene.group()

    def cleaned(self, upto):
        """The log after the cleaner has been up to an offset: of each key the newest record, and
        no tombstones."""
        log = self.scene.log
        newest = {record[0]: offset for offset, record in enumerate(log[:upto])}
        for offset, record in enumerate(log):
            stays = newest.get(record[0]) == offset and record[1] is not None
            if offset >= upto or stays:
                yield offset, record

    def end(self):
        """Nothing happens any more: all that live get what is to be theirs."""
        scene = self.scene
        for _ in range(8):
            scene.advance(10_000)
            for client in self.clients.values():
                client.beat()
                if client.error != "none":
                    client.join()
        live = list(self.clients.values())
        settle(*live, rounds=ROUNDS)
        group = scene.group()
        if group is None:
            return
        assert set(group.members) == {client.member_id for client in live}
        assert group.state == ("Stable" if live else "Empty")
        self.check()
        self.check_replay()
        check_end(scene, group, live, self.alike)


def check_counts(group):
    """What the group keeps of its members is what they are."""
    members = group.members.values()
    assert dict(group.names) == Counter(name for m in members for name in m.topics)
    assert dict(group.regexes) == Counter(m.regex for m in members if m.regex)
    assert dict(group.assignors) == Counter(m.assignor for m in members if m.assignor)
    assert dict(group.static_ids) == {m.instance_id: m.member_id for m in members if m.instance_id}
    assert set(group.targets) <= set(group.members)
    assert set(group.resolved) <= set(group.regexes)
    owners = {}
    for member in members:
        for owned in (member.assigned, member.revoking):
            for topic, partitions in owned.items():
                owners.setdefault(topic, {}).update(dict.fromkeys(partitions, member.member_id))
        assert member.revoking == {} or member.state is MemberState.UNREVOKED
    assert {topic: dict(those) for topic, those in group.owners.items()} == owners


def check_end(scene, group, live, alike):
    expected = set()
    for client in live:
        member = group.members[client.member_id]
        assert group.target_of(client.member_id) == {
            topic: tuple(sorted(those)) for topic, those in client.owned.items()
        }
        subscribed = [name for name in group.subscription(member) if name in scene.topics]
        assert set(client.owned) <= {topic_id(name) for name in subscribed}
        expected |= {(name, p) for name in subscribed for p in range(scene.topics[name])}
    assert sorted(pair for client in live for pair in client.partitions) == sorted(expected)
    if alike and live:
        sizes = [len(client.partitions) for client in live]
        assert max(sizes) - min(sizes) <= 1


ACTIONS = [
    Life.join,
    Life.join,
    Life.beat,
    Life.beat,
    Life.beat,
    Life.lose_the_answer,
    Life.say_nothing,
    Life.subscribe_anew,
    Life.leave,
    Life.die,
    Life.time_passes,
    Life.topics_change,
    Life.fail_over,
    Life.fail_over_before_it_is_committed,
    Life.appends_fail,
]


@examples(150)
@given(st.data(), st.booleans())
def test_no_partition_has_two_owners_and_all_get_what_is_theirs(data, alike):
    life = Life(data, alike)
    for action in data.draw(st.lists(st.sampled_from(ACTIONS), max_size=30)):
        action(life)
        life.check()
    life.check_replay()
    life.end()


def test_a_group_is_a_value():
    assert ConsumerGroup("g") == ConsumerGroup("g")
    assert ConsumerGroup("g").state == "Empty"
