"""The group APIs in every version: what a core is asked, and what its answer becomes on the wire.

All fields are away from their defaults. What a real core says is other tests' matter.
"""

import asyncio
from contextlib import asynccontextmanager
from uuid import UUID

import pytest
from broker_fakes import cluster, until

from broker.group_partition import OFFSETS_TOPIC
from broker.groups import events as e
from broker.groups.effects import Answer
from metadata.records import types as t
from wire.apis import ApiKey
from wire.apis import ErrorCode as E
from wire.messages import fill, millis, request_module, response_class, response_module

MS0 = millis(0)


class Core:
    """Notes requests, and answers with what the test has put into `answers`, by the request's
    type; a function of the request or a value."""

    def __init__(self):
        self.asked = []
        self.answers = {}

    def handle(self, event, now_ms, wall_ms):
        if not hasattr(event, "caller"):
            return []
        self.asked.append(event._replace(caller=0))
        answer = self.answers[type(event)]
        return [Answer(event.caller, answer(event) if callable(answer) else answer)]

    def next_deadline_ms(self):
        return None

    def replay(self, *item):
        pass


class Scene:
    def __init__(self, c, core, topic_id, connection):
        self.c = c
        self.core = core
        self.topic_id = topic_id
        self.connection = connection

    async def ask(self, key, version, build, answer=None):
        """(what the core was asked, the response)."""
        entity = build(request_module(key, version))
        self.core.asked = []
        if answer is not None:
            self.core.answers = answer
        response = await self.connection.send(entity, 10_000)
        return self.core.asked, response


@asynccontextmanager
async def scene(path, group_version=1):
    async with cluster(path) as c:
        core = Core()
        c.brokers[1].groups._make_core = lambda: core
        c.controller.commit(t.FeatureLevelRecord(name="group.version", feature_level=group_version))
        topic_id = c.controller.create_topic("t", 2)
        c.controller.create_topic(OFFSETS_TOPIC)
        groups = c.brokers[1].groups
        await until(lambda: groups.partitions and groups.partitions[0].loaded)
        yield Scene(c, core, topic_id, await c.connect(1))


def run(path, test, **more):
    async def main():
        async with scene(path, **more) as s:
            await test(s)

    asyncio.run(main())


def expected(key, version, name=None, **fields):
    """A response entity of that version, or one of its nested ones."""
    cls = getattr(response_module(key, version), name) if name else response_class(key, version)
    return fill(cls, throttle_time=MS0, **fields)


def test_join_group(tmp_path):
    async def test(s):
        for version in range(10):

            def build(m):
                return fill(
                    m.JoinGroupRequest,
                    group_id="g",
                    session_timeout=millis(7000),
                    rebalance_timeout=millis(8000),
                    member_id="m",
                    group_instance_id="i",
                    protocol_type="consumer",
                    protocols=(m.JoinGroupRequestProtocol(name="range", metadata=b"x"),),
                    reason="why",
                )

            members = (e.JoinedMember("m", "i", b"x"), e.JoinedMember("n", None, b"y"))
            joined = e.Joined(E.none, "m", 5, "consumer", "range", "n", True, members)
            asked, answer = await s.ask(ApiKey.JOIN_GROUP, version, build, {e.JoinGroup: joined})
            assert asked == [
                e.JoinGroup(
                    0,
                    "g",
                    "m",
                    "i" if version >= 5 else None,
                    "test",
                    "/127.0.0.1",
                    7000,
                    8000 if version else 7000,
                    "consumer",
                    (e.Protocol("range", b"x"),),
                    version >= 4,
                    version >= 9,
                    "why" if version >= 8 else None,
                )
            ]
            assert answer == expected(
                ApiKey.JOIN_GROUP,
                version,
                error_code=E.none,
                generation_id=5,
                protocol_type="consumer",
                protocol_name="range",
                leader="n",
                skip_assignment=True,
                member_id="m",
                members=tuple(
                    expected(
                        ApiKey.JOIN_GROUP,
                        version,
                        "JoinGroupResponseMember",
                        member_id=m.member_id,
                        group_instance_id=m.instance_id,
                        metadata=m.metadata,
                    )
                    for m in members
                ),
            )
            refused = e.Joined(E.group_max_size_reached, "n")
            _, answer = await s.ask(ApiKey.JOIN_GROUP, version, build, {e.JoinGroup: refused})
            assert answer.error_code is E.group_max_size_reached
            assert answer.protocol_name == (None if version >= 7 else "")
            assert (answer.member_id, answer.generation_id, answer.members) == ("n", -1, ())

    run(tmp_path, test)


def test_sync_group(tmp_path):
    async def test(s):
        for version in range(6):

            def build(m, protocol_type="consumer", protocol_name="range"):
                return fill(
                    m.SyncGroupRequest,
                    group_id="g",
                    generation_id=5,
                    member_id="m",
                    group_instance_id="i",
                    protocol_type=protocol_type,
                    protocol_name=protocol_name,
                    assignments=(m.SyncGroupRequestAssignment(member_id="n", assignment=b"z"),),
                )

            synced = e.Synced(E.none, "consumer", "range", b"mine")
            asked, answer = await s.ask(ApiKey.SYNC_GROUP, version, build, {e.SyncGroup: synced})
            names = ("consumer", "range") if version >= 5 else (None, None)
            instance = "i" if version >= 3 else None
            assert asked == [e.SyncGroup(0, "g", 5, "m", instance, *names, (("n", b"z"),))]
            assert answer == expected(
                ApiKey.SYNC_GROUP,
                version,
                error_code=E.none,
                protocol_type="consumer",
                protocol_name="range",
                assignment=b"mine",
            )
        for names in ((None, "range"), ("consumer", None)):
            asked, answer = await s.ask(ApiKey.SYNC_GROUP, 5, lambda m, n=names: build(m, *n))
            assert (asked, answer.error_code) == ([], E.inconsistent_group_protocol)

    run(tmp_path, test)


def test_heartbeat(tmp_path):
    async def test(s):
        for version in range(5):
            beaten = e.Beaten(E.rebalance_in_progress)
            asked, answer = await s.ask(
                ApiKey.HEARTBEAT,
                version,
                lambda m: fill(
                    m.HeartbeatRequest,
                    group_id="g",
                    generation_id=5,
                    member_id="m",
                    group_instance_id="i",
                ),
                {e.Heartbeat: beaten},
            )
            assert asked == [e.Heartbeat(0, "g", 5, "m", "i" if version >= 3 else None)]
            assert answer == expected(ApiKey.HEARTBEAT, version, error_code=E.rebalance_in_progress)

    run(tmp_path, test)


def test_leave_group(tmp_path):
    async def test(s):
        for version in range(6):
            several = version >= 3

            def build(m, several=several):
                if not several:
                    return m.LeaveGroupRequest(group_id="g", member_id="m")
                return m.LeaveGroupRequest(
                    group_id="g",
                    members=(
                        fill(m.MemberIdentity, member_id="m", group_instance_id="i", reason="r"),
                        fill(m.MemberIdentity, member_id="", group_instance_id="j", reason=None),
                    ),
                )

            leaving = (e.Leaving("m"),)
            if several:
                reason = "r" if version >= 5 else None
                leaving = (e.Leaving("m", "i", reason), e.Leaving("", "j", None))
            errors = (E.unknown_member_id, E.none)
            left = e.Left(E.none, tuple(zip(leaving, errors, strict=False)))
            asked, answer = await s.ask(ApiKey.LEAVE_GROUP, version, build, {e.LeaveGroup: left})
            assert asked == [e.LeaveGroup(0, "g", leaving)]
            assert answer == expected(
                ApiKey.LEAVE_GROUP,
                version,
                error_code=E.none if several else E.unknown_member_id,
                members=tuple(
                    expected(
                        ApiKey.LEAVE_GROUP,
                        version,
                        "MemberResponse",
                        member_id=m.member_id,
                        group_instance_id=m.instance_id,
                        error_code=error,
                    )
                    for m, error in (left.members if several else ())
                ),
            )
            refused = {e.LeaveGroup: e.Left(E.invalid_group_id)}
            _, answer = await s.ask(ApiKey.LEAVE_GROUP, version, build, refused)
            assert answer.error_code is E.invalid_group_id

    run(tmp_path, test)


def test_list_groups(tmp_path):
    async def test(s):
        listed = e.GroupsListed(E.none, (e.ListedGroup("g", "consumer", "Stable", "classic"),))
        for version in range(6):

            def build(m):
                return fill(m.ListGroupsRequest, states_filter=("Dead",), types_filter=("x",))

            asked, answer = await s.ask(ApiKey.LIST_GROUPS, version, build, {e.ListGroups: listed})
            states, types = ("Dead",) * (version >= 4), ("x",) * (version >= 5)
            assert asked == [e.ListGroups(0, states, types)]
            group = expected(
                ApiKey.LIST_GROUPS,
                version,
                "ListedGroup",
                group_id="g",
                protocol_type="consumer",
                group_state="Stable",
                group_type="classic",
            )
            assert answer == expected(
                ApiKey.LIST_GROUPS, version, error_code=E.none, groups=(group,)
            )
            loading = e.GroupsListed(E.coordinator_load_in_progress)
            _, answer = await s.ask(ApiKey.LIST_GROUPS, version, build, {e.ListGroups: loading})
            assert (answer.error_code, answer.groups) == (E.coordinator_load_in_progress, ())

    run(tmp_path, test)


def test_describe_groups(tmp_path):
    async def test(s):
        member = e.DescribedMember("m", "i", "c", "/h", b"meta", b"mine")
        groups = (
            e.DescribedGroup(E.none, "g", "Stable", "consumer", "range", (member,)),
            e.DescribedGroup(E.group_id_not_found, "h", "Dead", message="Group h not found."),
        )
        for version in range(7):
            asked, answer = await s.ask(
                ApiKey.DESCRIBE_GROUPS,
                version,
                lambda m: fill(
                    m.DescribeGroupsRequest, groups=("g", "h"), include_authorized_operations=True
                ),
                {e.DescribeGroups: e.GroupsDescribed(groups)},
            )
            assert asked == [e.DescribeGroups(0, ("g", "h"))]
            missing = E.group_id_not_found if version >= 6 else E.none
            assert answer.groups == (
                expected(
                    ApiKey.DESCRIBE_GROUPS,
                    version,
                    "DescribedGroup",
                    error_code=E.none,
                    group_id="g",
                    group_state="Stable",
                    protocol_type="consumer",
                    protocol_data="range",
                    members=(
                        expected(
                            ApiKey.DESCRIBE_GROUPS,
                            version,
                            "DescribedGroupMember",
                            member_id="m",
                            group_instance_id="i",
                            client_id="c",
                            client_host="/h",
                            member_metadata=b"meta",
                            member_assignment=b"mine",
                        ),
                    ),
                    authorized_operations=3400,
                ),
                expected(
                    ApiKey.DESCRIBE_GROUPS,
                    version,
                    "DescribedGroup",
                    error_code=missing,
                    error_message="Group h not found.",
                    group_id="h",
                    group_state="Dead",
                    protocol_type="",
                    protocol_data="",
                    members=(),
                    authorized_operations=-(1 << 31) if version >= 6 else 3400,
                ),
            )

    run(tmp_path, test)


def test_delete_groups(tmp_path):
    async def test(s):
        deleted = e.GroupsDeleted((("g", E.none), ("h", E.non_empty_group)))
        for version in range(3):
            asked, answer = await s.ask(
                ApiKey.DELETE_GROUPS,
                version,
                lambda m: m.DeleteGroupsRequest(groups_names=("g", "h", "g")),
                {e.DeleteGroups: deleted},
            )
            assert asked == [e.DeleteGroups(0, ("g", "h"))]
            assert [(r.group_id, r.error_code) for r in answer.results] == list(deleted.groups)

    run(tmp_path, test)


def test_offset_commit(tmp_path):
    async def test(s):
        def topic(m, name, topic_id, *indexes):
            return fill(
                m.OffsetCommitRequestTopic,
                name=name,
                topic_id=topic_id,
                partitions=tuple(
                    fill(
                        m.OffsetCommitRequestPartition,
                        partition_index=index,
                        committed_offset=70 + index,
                        committed_leader_epoch=4,
                        committed_metadata=None if index else "meta",
                    )
                    for index in indexes
                ),
            )

        for version in range(2, 11):

            def build(m, known=(0, 9, 1), topic=topic):
                return fill(
                    m.OffsetCommitRequest,
                    group_id="g",
                    generation_id_or_member_epoch=5,
                    member_id="m",
                    group_instance_id="i",
                    retention_time=millis(1234),
                    topics=(
                        topic(m, "absent", UUID(int=9), 0),
                        topic(m, "t", s.topic_id, *known),
                    ),
                )

            errors = e.OffsetsCommitted((E.stale_member_epoch, E.group_id_not_found))
            asked, answer = await s.ask(
                ApiKey.OFFSET_COMMIT, version, build, {e.OffsetCommit: errors}
            )
            epoch = 4 if version >= 6 else -1
            assert asked == [
                e.OffsetCommit(
                    0,
                    "g",
                    "m",
                    5,
                    "i" if version >= 7 else None,
                    (
                        e.CommittedOffset("t", 0, 70, epoch, "meta", s.topic_id),
                        e.CommittedOffset("t", 1, 71, epoch, "", s.topic_id),
                    ),
                    1234 if version <= 4 else None,
                    version >= 9,
                )
            ]
            unknown = E.unknown_topic_id if version >= 10 else E.unknown_topic_or_partition
            told = [E.stale_member_epoch, E.group_id_not_found]
            if version < 9:
                told = [E.unsupported_version, E.illegal_generation]
            got = [
                (getattr(topic, "name", None) or topic.topic_id, p.partition_index, p.error_code)
                for topic in answer.topics
                for p in topic.partitions
            ]
            names = ("absent", "t") if version < 10 else (UUID(int=9), s.topic_id)
            assert got == [
                (names[0], 0, unknown),
                (names[1], 0, told[0]),
                (names[1], 9, E.unknown_topic_or_partition),
                (names[1], 1, told[1]),
            ]
            asked, answer = await s.ask(ApiKey.OFFSET_COMMIT, version, lambda m: build(m, (9,)))
            assert asked == []
            last = answer.topics[1].partitions[0]
            assert last.error_code is E.unknown_topic_or_partition

    run(tmp_path, test)


def fetched(m, kind, name, partitions, topic_id=None):
    return fill(
        getattr(m, kind),
        name=name,
        topic_id=topic_id,
        partitions=tuple(
            fill(
                getattr(m, kind.replace("Topic", "Partition")),
                partition_index=p.partition,
                committed_offset=p.offset,
                committed_leader_epoch=p.leader_epoch,
                metadata=p.metadata,
                error_code=p.error,
            )
            for p in partitions
        ),
    )


def test_offset_fetch_of_one_group(tmp_path):
    async def test(s):
        partitions = (
            e.FetchedOffset(0, 70, 4, "meta"),
            e.FetchedOffset(9, error=E.unstable_offset_commit),
        )
        found = e.OffsetsFetched(E.none, (("t", partitions),))
        for version in range(1, 8):

            def build(m, everything=False):
                topics = (m.OffsetFetchRequestTopic(name="t", partition_indexes=(0, 9)),)
                return fill(
                    m.OffsetFetchRequest,
                    group_id="g",
                    topics=None if everything else topics,
                    require_stable=True,
                )

            asked, answer = await s.ask(ApiKey.OFFSET_FETCH, version, build, {e.OffsetFetch: found})
            stable = version >= 7
            assert asked == [e.OffsetFetch(0, "g", (("t", (0, 9)),), None, -1, stable)]
            m = response_module(ApiKey.OFFSET_FETCH, version)
            topic = fetched(m, "OffsetFetchResponseTopic", "t", partitions)
            assert answer == expected(
                ApiKey.OFFSET_FETCH, version, topics=(topic,), error_code=E.none
            )
            refused = {e.OffsetFetch: e.OffsetsFetched(E.not_coordinator)}
            _, answer = await s.ask(ApiKey.OFFSET_FETCH, version, build, refused)
            if version == 1:
                told = [(p.partition_index, p.error_code) for p in answer.topics[0].partitions]
                assert told == [(0, E.not_coordinator), (9, E.not_coordinator)]
                continue
            assert (answer.error_code, answer.topics) == (E.not_coordinator, ())
            asked, _ = await s.ask(ApiKey.OFFSET_FETCH, version, lambda m: build(m, True))
            assert asked == [e.OffsetFetch(0, "g", None, None, -1, stable)]

    run(tmp_path, test)


@pytest.mark.parametrize("version", [8, 9, 10])
def test_offset_fetch_of_several_groups(tmp_path, version):
    partitions = (e.FetchedOffset(0, 70, 4, "meta"),)

    def answer_of(request):
        if request.group_id == "bad":
            return e.OffsetsFetched(E.stale_member_epoch)
        topics = (
            [("t", partitions)] if request.topics is None else [(request.topics[0][0], partitions)]
        )
        return e.OffsetsFetched(E.none, (*topics, ("gone", partitions)))

    async def test(s):
        def group(m, group_id, topics):
            return fill(
                m.OffsetFetchRequestGroup,
                group_id=group_id,
                topics=topics,
                member_id="m",
                member_epoch=5,
            )

        def build(m):
            def topic(name, topic_id):
                return fill(
                    m.OffsetFetchRequestTopics, name=name, topic_id=topic_id, partition_indexes=(0,)
                )

            known, strange = topic("t", s.topic_id), topic("absent", UUID(int=9))
            return m.OffsetFetchRequest(
                groups=(
                    group(m, "g", (known, strange)),
                    group(m, "all", None),
                    group(m, "bad", (known,)),
                ),
                require_stable=True,
            )

        asked, answer = await s.ask(ApiKey.OFFSET_FETCH, version, build, {e.OffsetFetch: answer_of})
        who = ("m", 5, True) if version >= 9 else (None, -1, True)
        topics = (("t", (0,)),) if version >= 10 else (("t", (0,)), ("absent", (0,)))
        assert asked == [
            e.OffsetFetch(0, "g", topics, *who),
            e.OffsetFetch(0, "all", None, *who),
            e.OffsetFetch(0, "bad", (("t", (0,)),), *who),
        ]
        m = response_module(ApiKey.OFFSET_FETCH, version)
        kind = "OffsetFetchResponseTopics"
        known = fetched(m, kind, "t", partitions, s.topic_id)
        gone = fetched(m, kind, "gone", partitions)
        unknown = (e.FetchedOffset(0, error=E.unknown_topic_id),)
        strange = fetched(m, kind, "absent", unknown, UUID(int=9))
        first, everything, bad = answer.groups
        assert first.topics == ((known, strange) if version >= 10 else (known, gone))
        assert everything.topics == ((known,) if version >= 10 else (known, gone))
        assert (bad.error_code, bad.topics) == (E.stale_member_epoch, ())
        assert [g.group_id for g in answer.groups] == ["g", "all", "bad"]

    run(tmp_path, test)


def test_offset_delete(tmp_path):
    async def test(s):
        def build(m):
            def topic(name, *indexes):
                return m.OffsetDeleteRequestTopic(
                    name=name,
                    partitions=tuple(
                        m.OffsetDeleteRequestPartition(partition_index=index) for index in indexes
                    ),
                )

            return m.OffsetDeleteRequest(group_id="g", topics=(topic("t", 0, 9), topic("u", 0)))

        topics = (("t", ((0, E.group_subscribed_to_topic),)),)
        asked, answer = await s.ask(
            ApiKey.OFFSET_DELETE, 0, build, {e.OffsetDelete: e.OffsetsDeleted(E.none, topics)}
        )
        assert asked == [e.OffsetDelete(0, "g", (("t", (0,)),))]
        got = [
            (topic.name, p.partition_index, p.error_code)
            for topic in answer.topics
            for p in topic.partitions
        ]
        unknown = E.unknown_topic_or_partition
        assert got == [("t", 0, E.group_subscribed_to_topic), ("t", 9, unknown), ("u", 0, unknown)]
        refused = {e.OffsetDelete: e.OffsetsDeleted(E.group_id_not_found)}
        _, answer = await s.ask(ApiKey.OFFSET_DELETE, 0, build, refused)
        assert (answer.error_code, answer.topics) == (E.group_id_not_found, ())

    run(tmp_path, test)


def beat(m, topic_id, member="m"):
    owned = (m.TopicPartitions(topic_id=topic_id, partitions=(0, 1)),)
    return fill(
        m.ConsumerGroupHeartbeatRequest,
        group_id="g",
        member_id=member,
        member_epoch=5,
        instance_id="i",
        rack_id="r",
        rebalance_timeout=millis(8000),
        subscribed_topic_names=("t",),
        subscribed_topic_regex="u.*",
        server_assignor="range",
        topic_partitions=owned,
    )


def test_consumer_group_heartbeat(tmp_path):
    async def test(s):
        key = ApiKey.CONSUMER_GROUP_HEARTBEAT
        mine = (e.TopicPartitions(s.topic_id, (1,)),)
        beaten = e.ConsumerBeaten(E.none, "said", "m", 6, 4321, mine)
        for version in (0, 1):
            asked, answer = await s.ask(
                key, version, lambda m: beat(m, s.topic_id), {e.ConsumerGroupHeartbeat: beaten}
            )
            owned = (e.TopicPartitions(s.topic_id, (0, 1)),)
            regex = "u.*" if version else None
            who = ("g", "m", 5, "i", "r", "test", "/127.0.0.1", 8000)
            assert asked == [e.ConsumerGroupHeartbeat(0, *who, ("t",), regex, "range", owned)]
            m = response_module(key, version)
            given = m.TopicPartitions(topic_id=s.topic_id, partitions=(1,))
            assert answer == expected(
                key,
                version,
                error_code=E.none,
                error_message="said",
                member_id="m",
                member_epoch=6,
                heartbeat_interval=millis(4321),
                assignment=m.Assignment(topic_partitions=(given,)),
            )
        quiet = {e.ConsumerGroupHeartbeat: beaten._replace(assignment=None)}
        _, answer = await s.ask(key, 1, lambda m: beat(m, s.topic_id), quiet)
        assert answer.assignment is None
        asked, answer = await s.ask(key, 1, lambda m: beat(m, s.topic_id, ""))
        assert (asked, answer.error_code) == ([], E.invalid_request)
        asked, answer = await s.ask(key, 0, lambda m: beat(m, s.topic_id, ""))
        assert len(asked) == 1

    run(tmp_path, test)


def test_consumer_group_describe(tmp_path):
    async def test(s):
        key = ApiKey.CONSUMER_GROUP_DESCRIBE
        has = (e.DescribedAssignment(s.topic_id, "t", (0,)),)
        gets = (e.DescribedAssignment(s.topic_id, "t", (0, 1)),)
        member = e.DescribedConsumer("m", "i", "r", 5, "c", "/h", ("t",), "u.*", has, gets, 1)
        groups = (
            e.DescribedConsumerGroup(E.none, "g", None, "Stable", 6, 5, "range", (member,)),
            e.DescribedConsumerGroup(E.group_id_not_found, "h", "not there"),
        )
        for version in (0, 1):
            asked, answer = await s.ask(
                key,
                version,
                lambda m: m.ConsumerGroupDescribeRequest(
                    group_ids=("g", "", "h"), include_authorized_operations=True
                ),
                {e.ConsumerGroupDescribe: e.ConsumerGroupsDescribed(groups)},
            )
            assert asked == [e.ConsumerGroupDescribe(0, ("g", "h"))]
            m = response_module(key, version)

            def partitions(*indexes, m=m):
                return m.Assignment(
                    topic_partitions=(
                        m.TopicPartitions(topic_id=s.topic_id, topic_name="t", partitions=indexes),
                    )
                )

            nameless, first, second = answer.groups
            assert (nameless.group_id, nameless.error_code) == ("", E.invalid_group_id)
            assert first.members == (
                fill(
                    m.Member,
                    member_id="m",
                    instance_id="i",
                    rack_id="r",
                    member_epoch=5,
                    client_id="c",
                    client_host="/h",
                    subscribed_topic_names=("t",),
                    subscribed_topic_regex="u.*",
                    assignment=partitions(0),
                    target_assignment=partitions(0, 1),
                    member_type=1,
                ),
            )
            assert (first.group_id, first.group_state, first.assignor_name) == (
                "g",
                "Stable",
                "range",
            )
            assert (first.group_epoch, first.assignment_epoch) == (6, 5)
            assert (first.authorized_operations, second.authorized_operations) == (3400, -(1 << 31))
            assert (second.error_code, second.error_message) == (E.group_id_not_found, "not there")

    run(tmp_path, test)


def test_without_the_feature_the_consumer_protocol_is_refused(tmp_path):
    async def test(s):
        for version in (0, 1):
            asked, answer = await s.ask(
                ApiKey.CONSUMER_GROUP_HEARTBEAT, version, lambda m: beat(m, s.topic_id)
            )
            assert (asked, answer.error_code) == ([], E.unsupported_version)
            asked, answer = await s.ask(
                ApiKey.CONSUMER_GROUP_DESCRIBE,
                version,
                lambda m: m.ConsumerGroupDescribeRequest(
                    group_ids=("g", "h"), include_authorized_operations=True
                ),
            )
            assert asked == []
            assert [(g.group_id, g.error_code) for g in answer.groups] == [
                ("g", E.unsupported_version),
                ("h", E.unsupported_version),
            ]

    run(tmp_path, test, group_version=0)


def test_where_nobody_coordinates_the_group(tmp_path):
    async def test(s):
        s.c.controller.set_leader(OFFSETS_TOPIC, 0, -1)
        await until(lambda: not s.c.brokers[1].groups.partitions)
        nobody = E.not_coordinator
        _, joined = await s.ask(
            ApiKey.JOIN_GROUP,
            4,
            lambda m: fill(
                m.JoinGroupRequest,
                group_id="g",
                session_timeout=millis(7000),
                rebalance_timeout=millis(8000),
                member_id="m",
                protocol_type="consumer",
                protocols=(),
            ),
        )
        assert (joined.error_code, joined.member_id) == (nobody, "")
        _, described = await s.ask(
            ApiKey.DESCRIBE_GROUPS,
            3,
            lambda m: m.DescribeGroupsRequest(
                groups=("a", "b"), include_authorized_operations=True
            ),
        )
        assert [(g.group_id, g.error_code, g.group_state) for g in described.groups] == [
            ("a", nobody, ""),
            ("b", nobody, ""),
        ]
        _, deleted = await s.ask(
            ApiKey.DELETE_GROUPS, 1, lambda m: m.DeleteGroupsRequest(groups_names=("a", "b"))
        )
        assert [(r.group_id, r.error_code) for r in deleted.results] == [
            ("a", nobody),
            ("b", nobody),
        ]
        _, listed = await s.ask(ApiKey.LIST_GROUPS, 0, lambda m: m.ListGroupsRequest())
        assert (listed.error_code, listed.groups) == (E.none, ())

    run(tmp_path, test)
