"""The same requests about groups, in every version, to whatever broker: what it answers.

For comparing brokers: what is random (member ids, topic ids) is replaced by a word, and lists are
put in order.
"""

import asyncio
import dataclasses
from datetime import timedelta
from enum import Enum
from uuid import UUID

from net.client import Connection
from wire.apis import ApiKey, ErrorCode
from wire.messages import fill, millis, request_module
from world.real import real_env

SUBSCRIPTION = bytes.fromhex("0000000000010001" + "74" + "00000000")
"""ConsumerProtocolSubscription 0: topic `t`, no user data."""
ASSIGNMENT = bytes.fromhex("0000000000010001" + "74" + "000000010000000000000000")


# Answers come in an order of the broker's own; these tell the items of a list apart.
_NAMES = ("group_id", "name", "topic_id", "partition_index", "member_id", "group_instance_id")


def _order(item):
    if not isinstance(item, dict):
        return [str(item)]
    return [str(item[name]) for name in _NAMES if name in item]


class Teller:
    """Asks one broker, and notes the answers under what was asked.

    `names` replaces texts that differ from broker to broker.
    """

    def __init__(self, connection, topic_id):
        self.connection = connection
        self.topic_id = topic_id
        self.told = {}
        self.names = {topic_id: "ID"}

    async def ask(self, what, key, version, build):
        """The answer itself."""
        entity = build(request_module(key, version))
        answer = await self.connection.send(entity, 20_000)
        label = f"{what}: {key.name} {version}"
        assert label not in self.told, label
        self.told[label] = self.plain(answer)
        return answer

    def plain(self, value):
        """Without what differs from one broker to the next."""
        if dataclasses.is_dataclass(value):
            names = [field.name for field in dataclasses.fields(value)]
            plain = {name: self.plain(getattr(value, name)) for name in names}
            if plain.get("error_message"):
                plain["error_message"] = "in its own words"
            return plain
        if isinstance(value, tuple):
            return sorted((self.plain(item) for item in value), key=_order)
        if isinstance(value, Enum):
            return value.name
        if isinstance(value, timedelta):
            return value // timedelta(milliseconds=1)
        if isinstance(value, str | UUID):
            return self.names.get(value, str(value))
        return value

    # -- requests --

    async def join(self, what, version, group, member="", instance=None, timeout_ms=10_000, **more):
        def build(m):
            protocols = more.get("protocols", (("range", SUBSCRIPTION), ("sticky", b"x")))
            return fill(
                m.JoinGroupRequest,
                group_id=group,
                session_timeout=millis(timeout_ms),
                rebalance_timeout=millis(20_000),
                member_id=member,
                group_instance_id=instance,
                protocol_type=more.get("protocol_type", "consumer"),
                protocols=tuple(
                    m.JoinGroupRequestProtocol(name=name, metadata=metadata)
                    for name, metadata in protocols
                ),
                reason="why not",
            )

        def named(answer):
            if answer.member_id:
                self.names.setdefault(answer.member_id, f"MEMBER {len(self.names)}")

        entity = build(request_module(ApiKey.JOIN_GROUP, version))
        answer = await self.connection.send(entity, 20_000)
        named(answer)
        self.told[f"{what}: JOIN_GROUP {version}"] = self.plain(answer)
        return answer

    async def sync(self, what, version, group, generation, member, assignments=(), **more):
        return await self.ask(
            what,
            ApiKey.SYNC_GROUP,
            version,
            lambda m: fill(
                m.SyncGroupRequest,
                group_id=group,
                generation_id=generation,
                member_id=member,
                group_instance_id=more.get("instance"),
                protocol_type=more.get("protocol_type", "consumer"),
                protocol_name=more.get("protocol_name", "range"),
                assignments=tuple(
                    m.SyncGroupRequestAssignment(member_id=who, assignment=what)
                    for who, what in assignments
                ),
            ),
        )

    async def beat(self, what, version, group, generation, member, instance=None):
        return await self.ask(
            what,
            ApiKey.HEARTBEAT,
            version,
            lambda m: fill(
                m.HeartbeatRequest,
                group_id=group,
                generation_id=generation,
                member_id=member,
                group_instance_id=instance,
            ),
        )

    async def leave(self, what, version, group, *members):
        def build(m):
            if version < 3:
                return m.LeaveGroupRequest(group_id=group, member_id=members[0][0])
            return m.LeaveGroupRequest(
                group_id=group,
                members=tuple(
                    fill(m.MemberIdentity, member_id=who, group_instance_id=instance, reason="bye")
                    for who, instance in members
                ),
            )

        return await self.ask(what, ApiKey.LEAVE_GROUP, version, build)

    async def commit(self, what, version, group, *, generation=-1, member="", **more):
        """Commits partition 0 of `t`, and what doesn't exist."""

        def build(m):
            def topic(name, topic_id, *partitions):
                return fill(
                    m.OffsetCommitRequestTopic,
                    name=name,
                    topic_id=topic_id,
                    partitions=tuple(
                        fill(
                            m.OffsetCommitRequestPartition,
                            partition_index=index,
                            committed_offset=offset,
                            committed_leader_epoch=3,
                            committed_metadata=metadata,
                        )
                        for index, offset, metadata in partitions
                    ),
                )

            topics = [topic("t", self.topic_id, *more.get("partitions", ((0, 7, "kept"),)))]
            if more.get("strange"):
                topics.append(topic("absent", UUID(int=77), (0, 1, "")))
            return fill(
                m.OffsetCommitRequest,
                group_id=group,
                generation_id_or_member_epoch=generation,
                member_id=member,
                group_instance_id=more.get("instance"),
                topics=tuple(topics),
            )

        return await self.ask(what, ApiKey.OFFSET_COMMIT, version, build)

    async def fetch(self, what, version, *groups, strange=False, everything=False, **more):
        def build(m):
            named = [("t", self.topic_id, (0, 1))]
            if strange:
                named.append(("absent", UUID(int=77), (0,)))
            if version < 8:
                topics = tuple(
                    m.OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
                    for name, _, indexes in named
                )
                return fill(
                    m.OffsetFetchRequest,
                    group_id=groups[0],
                    topics=None if everything else topics,
                    require_stable=True,
                )
            topics = tuple(
                fill(
                    m.OffsetFetchRequestTopics,
                    name=name,
                    topic_id=topic_id,
                    partition_indexes=indexes,
                )
                for name, topic_id, indexes in named
            )
            return m.OffsetFetchRequest(
                groups=tuple(
                    fill(
                        m.OffsetFetchRequestGroup,
                        group_id=group,
                        topics=None if everything else topics,
                        **more,
                    )
                    for group in groups
                ),
            )

        return await self.ask(what, ApiKey.OFFSET_FETCH, version, build)

    async def describe(self, what, version, *groups):
        return await self.ask(
            what,
            ApiKey.DESCRIBE_GROUPS,
            version,
            lambda m: fill(
                m.DescribeGroupsRequest, groups=groups, include_authorized_operations=True
            ),
        )

    async def delete(self, what, version, *groups):
        return await self.ask(
            what,
            ApiKey.DELETE_GROUPS,
            version,
            lambda m: m.DeleteGroupsRequest(groups_names=groups),
        )

    async def delete_offsets(self, what, group, *topics):
        return await self.ask(
            what,
            ApiKey.OFFSET_DELETE,
            0,
            lambda m: m.OffsetDeleteRequest(
                group_id=group,
                topics=tuple(
                    m.OffsetDeleteRequestTopic(
                        name=name,
                        partitions=tuple(
                            m.OffsetDeleteRequestPartition(partition_index=index)
                            for index in indexes
                        ),
                    )
                    for name, indexes in topics
                ),
            ),
        )

    async def list(self, what, version, states=(), types=()):
        return await self.ask(
            what,
            ApiKey.LIST_GROUPS,
            version,
            lambda m: fill(m.ListGroupsRequest, states_filter=states, types_filter=types),
        )


async def unknown_groups(t):
    """Requests about groups that nobody has heard of."""
    for version in range(1, 11):
        await t.fetch("unknown", version, "nobody", strange=True)
        if version >= 2:
            await t.fetch("unknown, all", version, "nobody", everything=True)
    for version in range(7):
        await t.describe("unknown", version, "nobody", "")
    for version in range(5):
        await t.beat("unknown", version, "nobody", 1, "m")
        await t.beat("no id", version, "", 1, "m")
    for version in range(6):
        await t.sync("unknown", version, "nobody", 1, "m")
        await t.sync("no id", version, "", 1, "m")
        await t.leave("unknown", version, "nobody", ("m", None))
        await t.leave("no id", version, "", ("m", None))
    await t.sync("no names", 5, "nobody", 1, "m", protocol_type=None, protocol_name=None)
    for version in range(2, 11):
        await t.commit("unknown, in a generation", version, "nobody", generation=5, member="m")
    for version in range(3):
        await t.delete("unknown", version, "nobody", "nobody", "")
    await t.delete_offsets("unknown", "nobody", ("t", (0,)), ("absent", (0,)))


async def commits(t):
    """Offsets of groups without members."""
    for version in range(2, 11):
        group = f"simple-{version}"
        partitions = ((0, 10, "note"), (1, 20, None), (2, 30, "long" * 2000), (99, 1, ""))
        await t.commit("simple", version, group, strange=True, partitions=partitions)
        await t.commit("nothing known", version, group, partitions=((77, 1, ""),))
        await t.commit("in a generation", version, group, generation=3, member="m")
        await t.commit("of a member", version, group, member="m", partitions=((0, 11, "note"),))
        for fetching in range(1, 11):
            await t.fetch(f"simple {version}", fetching, group, strange=True)
            if fetching >= 2:
                await t.fetch(f"simple {version}, all", fetching, group, everything=True)
    longest = ((0, 1, "x" * 4096), (1, 1, "x" * 4097), (2, 1, "é" * 4096))
    await t.commit("metadata of any length", 9, "simple-9", partitions=longest)
    for version in (8, 9, 10):
        await t.fetch("several", version, "simple-2", "simple-9", "nobody")
    for version in (9, 10):
        await t.fetch("with a member", version, "simple-9", member_id="m", member_epoch=4)
    for version in range(7):
        await t.describe("simple", version, "simple-4")
    await t.delete_offsets("simple", "simple-4", ("t", (0, 1, 99)), ("absent", (0,)))
    await t.fetch("after deletion", 9, "simple-4")
    for version in range(3):
        await t.delete("simple", version, f"simple-{version + 2}")
        await t.fetch("after the group", 7 + version, f"simple-{version + 2}", everything=True)


async def one_member(t, version):
    """A group's life with a single member, in one version of JoinGroup."""
    group = f"single-{version}"
    instance = f"static-{version}" if version in (5, 7, 9) else None
    older = min(version, 5)
    first = await t.join("first", version, group, instance=instance)
    member = first.member_id
    if first.error_code is ErrorCode.member_id_required:
        first = await t.join("first, with its id", version, group, member)
    generation = first.generation_id
    await t.describe(f"before the assignment {version}", min(version, 6), group)
    mine = ((member, ASSIGNMENT),)
    await t.sync(f"wrong generation {version}", older, group, generation + 1, member, mine)
    await t.sync(f"wrong member {version}", older, group, generation, "stranger", mine)
    await t.sync(
        f"wrong protocol {version}", older, group, generation, member, mine, protocol_name="x"
    )
    await t.sync(f"right {version}", older, group, generation, member, mine, instance=instance)
    beating = min(version, 4)
    await t.beat(f"right {version}", beating, group, generation, member, instance)
    await t.beat(f"wrong generation {version}", beating, group, generation + 1, member)
    await t.beat(f"wrong member {version}", beating, group, generation, "stranger")
    await t.describe(f"stable {version}", min(version, 6), group)
    for committing in range(2, 11):
        what = f"{version}, commit"
        who = {"generation": generation, "member": member}
        await t.commit(f"{what} right", committing, group, **who, instance=instance)
        await t.commit(f"{what} late", committing, group, generation=generation - 1, member=member)
        await t.commit(f"{what} strange", committing, group, generation=generation, member="x")
        await t.commit(f"{what} from outside", committing, group)
    for fetching in range(1, 11):
        await t.fetch(f"of member {version}", fetching, group)
    await t.join(f"another type {version}", version, group, protocol_type="connect")
    await t.join(
        f"another protocol {version}", version, group, member, instance, protocols=(("new", b""),)
    )
    await t.delete_offsets(f"subscribed {version}", group, ("t", (0,)))
    await t.delete(f"not empty {version}", min(version, 2), group)
    await t.leave(f"stranger {version}", older, group, ("stranger", None))
    await t.leave(f"right {version}", older, group, (member, None))
    await t.describe(f"empty {version}", min(version, 6), group)
    await t.beat(f"after leaving {version}", beating, group, generation, member)
    await t.delete_offsets(f"empty {version}", group, ("t", (0,)))
    await t.delete(f"empty {version}", min(version, 2), group)


async def refused_joins(t):
    """Joins that a coordinator refuses at once."""
    for version in range(10):
        group = f"refused-{version}"
        await t.join("no id", version, "")
        await t.join("impatient", version, group, timeout_ms=100)
        await t.join("too patient", version, group, timeout_ms=10_000_000)
        await t.join("no protocols", version, group, protocols=())
        await t.join("no type", version, group, protocol_type="")
        await t.join("unknown member", version, group, "stranger")


async def static_members(t):
    """A static member that comes again, and one that is put out by its successor."""
    group = "static"
    first = await t.join("static", 9, group, instance="i")
    generation, member = first.generation_id, first.member_id
    await t.sync("static", 5, group, generation, member, ((member, ASSIGNMENT),), instance="i")
    again = await t.join("static, again", 9, group, instance="i")
    await t.beat("fenced", 4, group, generation, member, "i")
    await t.beat("successor", 4, group, again.generation_id, again.member_id, "i")
    await t.sync("successor", 5, group, again.generation_id, again.member_id, instance="i")
    await t.commit("fenced", 9, group, generation=generation, member=member, instance="i")
    await t.join("fenced", 9, group, member, "i")
    await t.describe("static", 6, group)
    await t.leave("static", 5, group, ("", "i"), ("", "nobody"), ("stranger", None))
    await t.describe("static, gone", 6, group)


async def lists(t):
    """All groups, by state and type."""
    for version in range(6):
        await t.list("all", version)
    for version in (4, 5):
        await t.list("empty", version, ("Empty",))
        await t.list("stable", version, ("stable", "Dead"))
        await t.list("nonsense", version, ("Nonsense",))
    await t.list("classic", 5, (), ("Classic",))
    await t.list("consumer", 5, (), ("consumer",))
    await t.list("nonsense type", 5, (), ("nonsense",))


async def tell(address, *stories):
    """All that the broker at `host:port` answers, by what was asked; it has a topic `t`."""
    host, _, port = address.rpartition(":")
    connection = await Connection.connect(
        real_env(), host, int(port), client_id="teller", timeout_ms=10_000
    )
    try:
        m = request_module(ApiKey.METADATA, 12)
        named = (m.MetadataRequestTopic(topic_id=None, name="t"),)
        asked = m.MetadataRequest(
            topics=named, allow_auto_topic_creation=False, include_topic_authorized_operations=False
        )
        [topic] = (await connection.send(asked, 10_000)).topics
        t = Teller(connection, topic.topic_id)
        await all_loaded(t)
        for story in stories:
            await story(t)
    finally:
        connection.close()
    return t.told


async def all_loaded(t):
    """Until groups have coordinators that have loaded them, whatever their partition is."""
    groups = tuple(f"warm-{number}" for number in range(500))
    find = request_module(ApiKey.FIND_COORDINATOR, 4).FindCoordinatorRequest
    m = request_module(ApiKey.OFFSET_FETCH, 8)
    fetch = m.OffsetFetchRequest(
        groups=tuple(m.OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups)
    )
    async with asyncio.timeout(60):
        while True:
            found = await t.connection.send(find(key_type=0, coordinator_keys=groups), 10_000)
            fetched = await t.connection.send(fetch, 10_000)
            answers = (*found.coordinators, *fetched.groups)
            if all(answer.error_code is ErrorCode.none for answer in answers):
                return
            await asyncio.sleep(0.1)


async def classic_groups(t):
    """All of the classic protocol, and offsets."""
    await unknown_groups(t)
    await commits(t)
    for version in range(10):
        await one_member(t, version)
    await static_members(t)
    await lists(t)
    await refused_joins(t)
