"""The APIs of the consumer protocol in every version.

What a core is asked, and what its answer becomes on the wire; all fields are away from their
defaults. What a real core says is other tests' matter.
"""

from group_api_scene import expected, run

from broker.groups import events as e
from wire.apis import ApiKey
from wire.apis import ErrorCode as E
from wire.messages import fill, millis, response_module


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
