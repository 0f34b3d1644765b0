"""A group coordinator, topics, and consumers of KIP-848 that do what clients do."""

from __future__ import annotations

from uuid import UUID

from group_scene import GroupScene

from broker.groups import events as e

JOINING, LEAVING, AWAY = 0, -1, -2


def topic_id(name):
    """An id of that topic, the same each time."""
    return UUID(bytes=name.encode().ljust(16, b"\1"))


class ConsumerScene(GroupScene):
    """See the module. `topics` are the partition counts of those that exist."""

    def __init__(self, seed=0, **settings):
        # Targets follow at once, unless a test is about that.
        super().__init__(seed, **{"group_consumer_assignment_interval_ms": 0, **settings})
        self.topics = {}
        self.version = 0

    def know(self, **counts):
        """The metadata image has these topics, too; None for a topic that is gone."""
        self.version += 1
        for name, count in counts.items():
            if count is None:
                del self.topics[name]
            else:
                self.topics[name] = count
        self.tell(self.known(tuple(counts)))

    def known(self, changed=None):
        topics = {n: e.Topic(topic_id(n), count) for n, count in self.topics.items()}
        return e.TopicsKnown(self.version, topics, changed)

    def fail_over(self):
        super().fail_over()
        self.tell(self.known())

    def consumer(self, name, topics=("t",), **fields):
        return Consumer(self, name, topics, **fields)

    def group(self, group_id="g"):
        """The newest state of a group."""
        return self.core._context.groups.get(group_id)

    def describe(self, group_id="g"):
        return self.told(e.ConsumerGroupDescribe, (group_id,)).groups[0]


class Consumer:
    """A client: it beats, gives up what it is no longer assigned, and then says so.

    `owned` has its partitions by topic id, `epoch` the epoch at which it last heard of them.
    `missed` is whether it waits for an answer in vain: then it says everything, to hear everything.
    """

    def __init__(
        self,
        scene,
        member_id,
        topics,
        group_id="g",
        instance_id=None,
        regex=None,
        assignor=None,
    ):
        self.scene = scene
        self.member_id = member_id
        self.group_id = group_id
        self.instance_id = instance_id
        self.topics = topics
        self.regex = regex
        self.assignor = assignor
        self.epoch = JOINING
        self.owned = {}
        self.error = None
        self.missed = False

    def request(self, **fields):
        """The answer to a heartbeat that tells nothing but these."""
        return self.scene.told(e.ConsumerGroupHeartbeat, **self.heartbeat(**fields))

    def heartbeat(self, **fields):
        """The fields of a heartbeat that tells nothing but these."""
        return {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance_id,
            "rack_id": None,
            "client_id": "client",
            "client_host": "/1.2.3.4",
            "rebalance_timeout_ms": -1,
            "subscribed_topics": None,
            "subscribed_regex": None,
            "server_assignor": None,
            "owned": None,
            **fields,
        }

    def saying_all(self):
        """The fields of a whole heartbeat."""
        return {
            "rebalance_timeout_ms": 60_000,
            "subscribed_topics": self.topics,
            "subscribed_regex": self.regex,
            "server_assignor": self.assignor,
            "owned": self.says(),
        }

    def says(self):
        return tuple(e.TopicPartitions(t, tuple(sorted(p))) for t, p in sorted(self.owned.items()))

    def join(self):
        self.epoch, self.owned = JOINING, {}
        return self.take(self.request(**self.saying_all()))

    def beat(self, **fields):
        """A heartbeat that tells what it owns; adopts the answer."""
        said = self.saying_all() if self.missed else {"owned": self.says()}
        return self.take(self.request(**{**said, **fields}))

    def take(self, told):
        """What a client does with an answer."""
        self.error = told.error.name
        self.missed = self.error == "coordinator_not_available"
        if self.error != "none":
            return told
        self.epoch = told.member_epoch
        if told.assignment is not None:
            self.owned = {t: set(those) for t, those in told.assignment}
        return told

    def leave(self, epoch=LEAVING):
        told = self.request(member_epoch=epoch)
        self.epoch, self.owned = JOINING, {}
        return told

    @property
    def partitions(self):
        """Its partitions as a sorted list of (topic name, partition)."""
        names = {topic_id(name): name for name in self.scene.topics}
        return sorted((names[t], p) for t, those in self.owned.items() for p in those)


def settle(*consumers, rounds=8):
    """All beat until nobody is told anything new; returns how many rounds that took."""
    for done in range(rounds):
        news = [_news(c.epoch, c.owned, c.beat()) for c in consumers]
        if not any(news):
            return done
    raise AssertionError(f"not settled after {rounds} rounds")


def _news(epoch, owned, told):
    return told.member_epoch != epoch or told.assignment is not None
