"""The APIs of groups' offsets in every version.

What a core is asked, and what its answer becomes on the wire; all fields are away from their
defaults. What a real core says is other tests' matter.
"""

from uuid import UUID

import pytest
from group_api_scene import expected, run

from broker.groups import events as e
from wire.apis import ApiKey
from wire.apis import ErrorCode as E
from wire.messages import fill, millis, response_module


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
