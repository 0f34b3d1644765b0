"""The classic group protocol beside JVM Kafka's: random requests, the same answers.

Whole episodes of a group's life are asked of both, and after each request the same callers must
have been told the same. What Kafka leaves to chance is left out: which member leads when the leader
goes, and which of two protocols with as many votes is taken. So is what it fails at (an instance
id with a pending member id) or leaves without an answer (a request that waits while its member
repeats it or leaves).
"""

import random

import jvm_node
import kafka_jvm
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from group_peers import BrokerPeer, CorePeer
from group_scene import subscription
from waiting import wait_until

from broker.groups import events as e
from wire.errors import ErrorCode

pytestmark = [pytest.mark.interop, pytest.mark.ci]

EPISODES = 20
STEPS = 35
MEMBERS = 50
PROTOCOLS = (
    (e.Protocol("range", subscription("t")),),
    (e.Protocol("range", subscription("t")), e.Protocol("sticky", subscription("t", "u"))),
    (e.Protocol("sticky", subscription("t")), e.Protocol("range", subscription("t"))),
)
RARE_PROTOCOLS = ((e.Protocol("sticky", subscription("u")),), ())
WEIGHTS = {
    "join": 14,
    "rejoin": 16,
    "sync": 30,
    "beat": 8,
    "leave": 4,
    "commit": 8,
    "fetch": 4,
    "delete_offsets": 3,
    "delete": 2,
    "describe": 6,
    "list": 2,
}


class OverByChance(Exception):
    """The two took different ways that both may take."""


class Side:
    """A peer, and the names of the member ids that it gave out."""

    def __init__(self, peer):
        self.peer = peer
        self.names = {}
        self.ids = {}

    def learn(self, member_id):
        if member_id and member_id not in self.names:
            name = f"m{len(self.names)}"
            self.names[member_id], self.ids[name] = name, member_id

    def named(self, value):
        """The value with names for ids; one that no caller was told yet is nobody's."""
        if isinstance(value, str):
            unknown = "?" if value.count("-") >= 5 else value
            return self.names.get(value, unknown)
        if isinstance(value, tuple):
            return tuple(self.named(one) for one in value)
        return value.name if isinstance(value, ErrorCode) else value

    def real(self, value):
        if isinstance(value, str):
            return self.ids.get(value, value)
        if isinstance(value, tuple):
            items = [self.real(one) for one in value]
            return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        return value

    def compared(self, answer, group_id):
        """What of an answer has to be the same."""
        if isinstance(answer, e.Joined) and answer.error is not ErrorCode.none:
            return self.named((answer.error, answer.member_id))
        if isinstance(answer, e.Joined):
            # The type of the protocol is told from version 7 on.
            members = self._sorted(answer.members)
            return self.named(answer._replace(protocol_type=None, members=members))
        if isinstance(answer, e.Synced):
            return self.named((answer.error, answer.assignment))
        if isinstance(answer, e.GroupsDescribed):
            groups = tuple(
                group._replace(
                    members=self._sorted(m._replace(client_host="") for m in group.members)
                )
                for group in answer.groups
            )
            return self.named(groups)
        if isinstance(answer, e.GroupsListed):
            return self.named(tuple(one for one in answer.groups if one.group_id == group_id))
        if isinstance(answer, e.OffsetsFetched | e.OffsetsDeleted):
            topics = sorted((topic, sorted(partitions)) for topic, partitions in answer.topics)
            return self.named((answer.error, *((t, *ps) for t, ps in topics)))
        return self.named(answer)

    def _sorted(self, members):
        return tuple(sorted(members, key=lambda m: (self.named(m.member_id), m.instance_id or "")))


class Episode:
    """One group, asked of both at random."""

    def __init__(self, core, broker, group_id, seed):
        self.core, self.broker = Side(core), Side(broker)
        self.group_id = group_id
        self.chance = random.Random(seed)
        self.waiting = []
        self.joined = []
        self.seen = []

    # -- both asked ------------------------------------------------------------------------------

    def ask(self, make, **fields):
        self.seen.append((make.__name__, fields))
        ours, theirs = (
            side.peer.ask(make, **{name: side.real(value) for name, value in fields.items()})
            for side in (self.core, self.broker)
        )
        self.waiting.append((ours, theirs))
        answers = self.core.peer.answers()
        self.waiting = [
            pair
            for pair in self.waiting
            if pair[0] not in answers or not _ours_alone(answers[pair[0]], make, pair[0] != ours)
        ]
        self._wait_until_seen()
        told = self.broker.peer.answers([b for a, b in self.waiting if a in answers])
        done = [(a, b) for a, b in self.waiting if a in answers or b in told]
        self.waiting = [pair for pair in self.waiting if pair not in done]
        for a, b in done:
            assert a in answers, f"the broker alone answered {told[b]}"
            assert b in told, f"the core alone answered {answers[a]}"
            self._compare(answers[a], told[b])

    def _wait_until_seen(self):
        """A request that isn't answered, and a timer, have no end that could be waited for but what
        they change."""
        describe = e.DescribeGroups, (self.group_id,)
        ours = self.core.compared(self.core.peer.scene.told(*describe), self.group_id)

        def seen():
            theirs = self.broker.peer.told(*describe)
            return self.broker.compared(theirs, self.group_id) == ours

        wait_until(seen, f"the broker has got as far as {ours}", 10, 0.005)

    def _compare(self, ours, theirs):
        if isinstance(ours, e.Joined):
            self.core.learn(ours.member_id)
            self.broker.learn(theirs.member_id)
        if getattr(theirs, "error", None) is ErrorCode.unknown_server_error:
            raise OverByChance
        a = self.core.compared(ours, self.group_id)
        b = self.broker.compared(theirs, self.group_id)
        self.seen.append(a)
        if isinstance(ours, e.Joined) and ours.error is theirs.error is ErrorCode.none:
            self.joined.append(self.core.named(ours))
            if a[:4] == b[:4] and a[4:6] != b[4:6]:
                raise OverByChance  # another protocol, or another leader
        assert a == b, f"{a}\n{b}"

    # -- at random -------------------------------------------------------------------------------

    def step(self):
        [what] = self.chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
        getattr(self, f"_{what}")()

    def _member(self):
        names = list(self.core.ids)
        if names and self.chance.random() < 0.93:
            return self.chance.choice(names)
        return self.chance.choice(["", "nobody"])

    def _instance(self, share):
        return self.chance.choice(["i1", "i2"]) if self.chance.random() < share else None

    def _generation(self):
        last = self.joined[-1][2] if self.joined else 0
        if self.chance.random() < 0.85:
            return last
        return self.chance.choice([-1, last - 1, last + 1, 0])

    def _join_as(self, member_id, instance_id, known):
        # A join that makes no sense makes a group of Kafka's, but none of ours.
        exists = self.core.peer.scene.state(self.group_id) != "Dead"
        odd = exists and self.chance.random() < 0.1
        protocols = PROTOCOLS + RARE_PROTOCOLS if odd else PROTOCOLS
        self.ask(
            e.JoinGroup,
            group_id=self.group_id,
            member_id=member_id,
            instance_id=instance_id,
            client_id="c",
            client_host="/127.0.0.1",
            session_timeout_ms=1 if self.chance.random() < 0.03 else 60_000,
            rebalance_timeout_ms=60_000,
            protocol_type=self.chance.choice(["", "other"]) if odd else "consumer",
            protocols=self.chance.choice(protocols),
            require_known_member_id=known,
        )

    def _join(self):
        self._join_as("", self._instance(0.35), self.chance.random() < 0.7)

    def _rejoin(self):
        self._join_as(self._member(), self._instance(0.2), True)

    def _sync(self):
        member_id, generation = self._member(), self._generation()
        protocol_type = protocol_name = None
        if self.joined and self.chance.random() < 0.7:
            last = self.joined[-1]
            member_id = self.chance.choice([last[1], last[5]])
            generation = last[2]
            if self.chance.random() < 0.6:
                protocol_type, protocol_name = "consumer", last[4]
            if self.chance.random() < 0.05:
                protocol_type, protocol_name = "other", "sticky"
        self.ask(
            e.SyncGroup,
            group_id=self.group_id,
            generation=generation,
            member_id=member_id,
            instance_id=self._instance(0.1),
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=tuple(
                (name, f"{name} {len(self.seen)}".encode())
                for name in self.core.ids
                if self.chance.random() < 0.9
            ),
        )

    def _beat(self):
        self.ask(
            e.Heartbeat,
            group_id=self.group_id,
            generation=self._generation(),
            member_id=self._member(),
            instance_id=self._instance(0.15),
        )

    def _leave(self):
        members = tuple(
            e.Leaving(self.chance.choice([self._member(), ""]), self._instance(0.4))
            for _ in range(self.chance.choice([1, 1, 2]))
        )
        self.ask(e.LeaveGroup, group_id=self.group_id, members=members)

    def _commit(self):
        member_id, generation = self._member(), self._generation()
        if self.chance.random() < 0.3:
            member_id, generation = "", -1
        places = self.chance.sample([("t", 0), ("t", 1), ("u", 0)], self.chance.choice([1, 2]))
        offsets = [
            e.CommittedOffset(
                *place,
                self.chance.randrange(100),
                self.chance.choice([-1, 3]),
                self.chance.choice(["", "x", "y" * 4096]),
            )
            for place in places
        ]
        if len(offsets) == 2 and self.chance.random() < 0.2:
            offsets[1] = offsets[1]._replace(metadata="z" * 4097)
        self.ask(
            e.OffsetCommit,
            group_id=self.group_id,
            member_id=member_id,
            generation=generation,
            instance_id=self._instance(0.1),
            offsets=tuple(offsets),
        )

    def _fetch(self):
        self.ask(
            e.OffsetFetch,
            group_id=self.group_id,
            topics=self.chance.choice([None, (("t", (0, 1)), ("u", (0,)))]),
            require_stable=self.chance.random() < 0.3,
        )

    def _delete_offsets(self):
        topics = self.chance.choice([(("t", (0,)),), (("u", (0,)), ("t", (0, 1)))])
        self.ask(e.OffsetDelete, group_id=self.group_id, topics=topics)

    def _delete(self):
        self.ask(e.DeleteGroups, group_ids=(self.group_id,))

    def _describe(self):
        self.ask(e.DescribeGroups, group_ids=(self.group_id,))

    def _list(self):
        states = self.chance.choice([(), ("Stable",), ("empty", "PreparingRebalance")])
        types = self.chance.choice([(), ("classic",), ("Consumer",)])
        self.ask(e.ListGroups, states=states, types=types)


def _ours_alone(answer, make, older):
    """Whether Kafka never answers this one: it was waiting when its member asked again, or waited
    for an assignment when its member left."""
    if isinstance(answer, e.Joined):
        return answer.error is ErrorCode.rebalance_in_progress
    if not isinstance(answer, e.Synced) or not older:
        return False
    if make is e.LeaveGroup:
        return answer.error is ErrorCode.unknown_member_id
    return make is e.SyncGroup and answer.error is ErrorCode.rebalance_in_progress


def _jvm(tmp_path, **properties):
    """The properties file of a formatted JVM node."""
    values = jvm_node.combined_properties(tmp_path, offsets_topic_num_partitions=1, **properties)
    config = jvm_node.write_properties(tmp_path / "server.properties", values)
    jvm_node.format_directory(config, "AAAAAAAAAAAAAAAAAAAAAA", kafka_jvm.NEWEST_VERSION)
    return config


def test_random_requests_are_answered_as_kafka_does(tmp_path):
    config = _jvm(tmp_path, group_initial_rebalance_delay_ms=0)
    whole = 0
    with jvm_node.jvm_node(config, version=kafka_jvm.NEWEST_VERSION) as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        for made in admin.create_topics([NewTopic("t", 2, 1), NewTopic("u", 1, 1)]).values():
            made.result()
        BrokerPeer(node.bootstrap).find_coordinator("g")
        for seed in range(EPISODES):
            broker = BrokerPeer(node.bootstrap)
            core = CorePeer(group_initial_rebalance_delay_ms=0)
            episode = Episode(core, broker, f"g{seed}", seed)
            try:
                for _ in range(STEPS):
                    episode.step()
                whole += 1
            except OverByChance:
                pass
            except AssertionError as error:
                story = "\n".join(str(one)[:300] for one in episode.seen[-12:])
                raise AssertionError(f"episode {seed}:\n{story}\n{error}") from None
            finally:
                broker.close()
    assert whole > EPISODES // 3


def test_members_that_arrive_together_settle_in_one_generation_as_with_kafka(tmp_path):
    """50 new members, one after the other: the first generation has all of them."""
    delay_ms = 600
    config = _jvm(tmp_path, group_initial_rebalance_delay_ms=delay_ms)

    def settle(peer, answers):
        given = []
        for _ in range(MEMBERS):
            caller = _join(peer, "")
            given.append(answers([caller])[caller].member_id)
        callers = [_join(peer, member_id) for member_id in given]
        return [answers(callers)[caller] for caller in callers]

    with jvm_node.jvm_node(config, version=kafka_jvm.NEWEST_VERSION) as node:
        broker = BrokerPeer(node.bootstrap)
        broker.find_coordinator("g")
        theirs = settle(broker, broker.answers)
        broker.close()
    core = CorePeer(group_initial_rebalance_delay_ms=delay_ms)

    def answers(callers):
        core.scene.advance(0 if callers[-1] in core.answers() else 2 * delay_ms)
        return core.answers()

    ours = settle(core, answers)
    for joined in (ours, theirs):
        assert {one.error for one in joined} == {ErrorCode.none}
        assert {one.generation for one in joined} == {1}
        [leader] = {one.leader for one in joined}
        assert [len(one.members) for one in joined if one.member_id == leader] == [MEMBERS]


def _join(peer, member_id):
    return peer.ask(
        e.JoinGroup,
        group_id="g",
        member_id=member_id,
        instance_id=None,
        client_id="c",
        client_host="/127.0.0.1",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=PROTOCOLS[0],
    )
