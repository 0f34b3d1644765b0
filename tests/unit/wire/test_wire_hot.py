from __future__ import annotations

import contextlib
import random
import struct
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from wire_entities import crowded_entities, random_entity

from wire import hot, messages
from wire.errors import DecodeError
from wire.messages import fill, millis

PRODUCE, FETCH, ALTER, VOTE = 0, 1, 44, 52
TOPIC_ID = UUID(int=0x1234567890ABCDEF << 60)
DIRECTORY = UUID(int=99 << 100)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ENDPOINTS = (hot.NodeEndpoint(3, "höst", 9092, "r1"), hot.NodeEndpoint(4, "b", 1, None))


def body_of(key: int, version: int, frame: bytes, correlation_id: int) -> bytes:
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    head = messages.response_header(key, version, correlation_id)
    assert frame[4 : 4 + len(head)] == head
    return frame[4 + len(head) :]


def kio_endpoints(module: Any) -> tuple[Any, ...]:
    if not hasattr(module, "NodeEndpoint"):
        return ()
    return tuple(
        fill(module.NodeEndpoint, node_id=n.node_id, host=n.host, port=n.port, rack=n.rack)
        for n in ENDPOINTS
    )


# Produce


def produce_request(version: int, chance: random.Random) -> Any:
    return random_entity(messages.request_class(PRODUCE, version), chance)


@pytest.mark.parametrize("version", range(3, 14))
def test_the_produce_walker_finds_what_kio_finds(version: int) -> None:
    chance = random.Random(version)
    for _ in range(50):
        entity = produce_request(version, chance)
        body = memoryview(bytearray(messages.encode_body(entity)))
        view = hot.walk_produce(version, body)
        assert view.transactional_id == entity.transactional_id
        assert view.acks == entity.acks
        assert view.timeout_ms == entity.timeout // timedelta(milliseconds=1)
        assert len(view.topics) == len(entity.topic_data)
        for (name, topic_id, parts), topic in zip(view.topics, entity.topic_data, strict=True):
            if version >= 13:
                assert (name, topic_id) == (None, topic.topic_id or UUID(int=0))
            else:
                assert (name, topic_id) == (topic.name, None)
            assert [index for index, _ in parts] == [p.index for p in topic.partition_data]
            for (_, records), part in zip(parts, topic.partition_data, strict=True):
                assert (None if records is None else bytes(records)) == part.records
        with pytest.raises(DecodeError):
            hot.walk_produce(version, memoryview(bytes(body) + b"\x00"))


def test_walked_records_are_slices_of_the_request() -> None:
    cls = messages.request_module(PRODUCE, 9)
    entity = cls.ProduceRequest(
        acks=1,
        timeout=millis(1),
        topic_data=(
            cls.TopicProduceData(
                name="t",
                partition_data=(cls.PartitionProduceData(index=0, records=b"r" * 1000),),
            ),
        ),
    )
    buffer = bytearray(messages.encode_body(entity))
    records = hot.walk_produce(9, memoryview(buffer)).topics[0][2][0][1]
    records[0] = ord("X")
    assert b"Xrrr" in buffer


@pytest.mark.parametrize("version", [3, 8, 9, 13])
def test_a_produce_request_cut_anywhere_is_refused(version: int) -> None:
    body = messages.encode_body(produce_request(version, random.Random(5)))
    for length in range(len(body)):
        with pytest.raises(DecodeError):
            hot.walk_produce(version, memoryview(body)[:length])


def produced_topics() -> list[hot.ProducedTopic]:
    return [
        hot.ProducedTopic(
            "töpic",
            TOPIC_ID,
            [
                hot.ProducedPartition(0, 0, 12345678901, 1700000000123, 5),
                hot.ProducedPartition(1, 3),
                hot.ProducedPartition(
                    2, 87, -1, -1, 7, [(0, "no key"), (5, None)], "bad records", None
                ),
                hot.ProducedPartition(3, 6, current_leader=(2, 17)),
            ],
        ),
        hot.ProducedTopic("t2", UUID(int=5), []),
    ]


def kio_produce_response(
    version: int, topics: list[hot.ProducedTopic], *, plain: bool = False
) -> Any:
    module = messages.response_module(PRODUCE, version)

    def partition(p: hot.ProducedPartition) -> Any:
        more = {}
        if p.current_leader and version >= 10:
            more["current_leader"] = module.LeaderIdAndEpoch(
                leader_id=p.current_leader[0], leader_epoch=p.current_leader[1]
            )
        if version >= 8:
            more["record_errors"] = tuple(
                module.BatchIndexAndErrorMessage(batch_index=i, batch_index_error_message=m)
                for i, m in p.record_errors
            )
        time_ms = p.log_append_time_ms
        return fill(
            module.PartitionProduceResponse,
            index=p.index,
            error_code=ErrorCode(p.error_code),
            base_offset=p.base_offset,
            log_append_time=None if time_ms < 0 else EPOCH + millis(time_ms),
            log_start_offset=p.log_start_offset,
            error_message=p.error_message,
            **more,
        )

    return fill(
        module.ProduceResponse,
        throttle_time=millis(0 if plain else 42),
        node_endpoints=() if plain else kio_endpoints(module),
        responses=tuple(
            fill(
                module.TopicProduceResponse,
                name=t.name,
                topic_id=t.topic_id,
                partition_responses=tuple(partition(p) for p in t.partitions),
            )
            for t in topics
        ),
    )


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_responses_have_the_bytes_of_kio(version: int) -> None:
    topics = produced_topics()
    frame = hot.encode_produce_response(
        version, 99, topics, throttle_ms=42, node_endpoints=ENDPOINTS
    )
    assert frame == messages.encode_response(
        PRODUCE, version, 99, kio_produce_response(version, topics)
    )


@pytest.mark.parametrize("name", ["t", "töpic", "n" * 126, "n" * 127, "n" * 249])
@pytest.mark.parametrize("version", range(3, 14))
def test_produce_responses_of_one_partition_have_the_bytes_of_kio(version: int, name: str) -> None:
    for part in produced_topics()[0].partitions:
        topics = [hot.ProducedTopic(name, TOPIC_ID, [part])]
        expected = messages.encode_response(
            PRODUCE, version, 99, kio_produce_response(version, topics, plain=True)
        )
        assert hot.encode_produce_response(version, 99, topics) == expected


# Fetch requests


def fetch_request(version: int) -> hot.FetchRequest:
    by_id = version >= 13
    name, topic_id = (None, TOPIC_ID) if by_id else ("töpic", None)
    parts = [
        hot.FetchPartition(
            7,
            12345678901,
            1 << 20,
            4 if version >= 9 else -1,
            3 if version >= 12 else -1,
            55 if version >= 5 else -1,
            DIRECTORY if version >= 17 else UUID(int=0),
            77 if version >= 18 else hot.FetchPartition(0, 0, 0).high_watermark,
        ),
        hot.FetchPartition(8, 0, 1),
    ]
    return hot.FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=8 << 20,
        topics=[hot.FetchTopic(name, topic_id, parts), hot.FetchTopic(name, topic_id, [])],
        replica_id=3,
        replica_epoch=1234 if version >= 15 else -1,
        isolation_level=1,
        session_id=11 if version >= 7 else 0,
        session_epoch=12 if version >= 7 else -1,
        forgotten=[hot.FetchForgotten(name, topic_id, [1, 2])] if version >= 7 else [],
        rack_id="räck" if version >= 11 else "",
        cluster_id="cluster" if version >= 12 else None,
    )


def kio_fetch_request(version: int, r: hot.FetchRequest) -> Any:
    module = messages.request_module(FETCH, version)
    more: dict[str, Any] = {}
    if version >= 15:
        more["replica_state"] = module.ReplicaState(
            replica_id=r.replica_id, replica_epoch=r.replica_epoch
        )
    if version >= 7:
        more["forgotten_topics_data"] = tuple(
            fill(module.ForgottenTopic, topic=f.name, topic_id=f.topic_id, partitions=(1, 2))
            for f in r.forgotten
        )
    return fill(
        module.FetchRequest,
        max_wait=millis(r.max_wait_ms),
        min_bytes=r.min_bytes,
        max_bytes=r.max_bytes,
        replica_id=r.replica_id,
        isolation_level=r.isolation_level,
        session_id=r.session_id,
        session_epoch=r.session_epoch,
        rack_id=r.rack_id,
        cluster_id=r.cluster_id,
        topics=tuple(
            fill(
                module.FetchTopic,
                topic=t.name,
                topic_id=t.topic_id,
                partitions=tuple(
                    fill(
                        module.FetchPartition,
                        partition=p.partition,
                        fetch_offset=p.fetch_offset,
                        partition_max_bytes=p.max_bytes,
                        current_leader_epoch=p.current_leader_epoch,
                        last_fetched_epoch=p.last_fetched_epoch,
                        log_start_offset=p.log_start_offset,
                        replica_directory_id=p.replica_directory_id
                        if p.replica_directory_id.int
                        else None,
                        high_watermark=p.high_watermark,
                    )
                    for p in t.partitions
                ),
            )
            for t in r.topics
        ),
        **more,
    )


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_requests_have_the_bytes_of_kio_and_decode_to_themselves(version: int) -> None:
    request = fetch_request(version)
    body = hot.encode_fetch_request(version, request)
    assert body == messages.encode_body(kio_fetch_request(version, request))
    assert hot.decode_fetch_request(version, memoryview(body)) == request
    for length in range(len(body)):
        with pytest.raises(DecodeError):
            hot.decode_fetch_request(version, memoryview(body)[:length])
    with pytest.raises(DecodeError, match="trailing"):
        hot.decode_fetch_request(version, body + b"\x00")


@pytest.mark.parametrize("version", range(4, 19))
def test_any_fetch_request_encodes_back_to_its_bytes(version: int) -> None:
    chance = random.Random(version)
    for _ in range(50):
        body = messages.encode_body(random_entity(messages.request_class(FETCH, version), chance))
        assert hot.encode_fetch_request(version, hot.decode_fetch_request(version, body)) == body


# Fetch responses


class Range:
    """Stands for what a sender takes from a file."""

    def __init__(self, data: bytes) -> None:
        self.data = data


def fetched_topics() -> list[hot.FetchedTopic]:
    first, second = b"a" * 300, b"b" * 20
    return [
        hot.FetchedTopic(
            "töpic",
            TOPIC_ID,
            [
                hot.FetchedPartition(0, 0, 10, 9, 1, None, -1, [Range(first)], 300),
                hot.FetchedPartition(
                    1, 0, 1 << 40, 8, 2, [(1000, 5), (1001, 6)], 3, [Range(second), first], 320
                ),
                hot.FetchedPartition(2, 6, current_leader=(4, 9)),
                hot.FetchedPartition(3, 0, 5, 5, 0, [], diverging_epoch=(3, 77)),
                hot.FetchedPartition(4, 0, 5, snapshot_id=(500, 2), current_leader=(1, 2)),
            ],
        ),
        hot.FetchedTopic("t2", UUID(int=5), []),
    ]


def bytes_of(parts: Any) -> bytes:
    return b"".join(p.data if isinstance(p, Range) else bytes(p) for p in parts)


def kio_fetch_response(version: int, topics: list[hot.FetchedTopic]) -> Any:
    module = messages.response_module(FETCH, version)

    def partition(p: hot.FetchedPartition) -> Any:
        more: dict[str, Any] = {}
        if version >= 12 and p.current_leader:
            more["current_leader"] = module.LeaderIdAndEpoch(
                leader_id=p.current_leader[0], leader_epoch=p.current_leader[1]
            )
        if version >= 12 and p.diverging_epoch:
            more["diverging_epoch"] = module.EpochEndOffset(
                epoch=p.diverging_epoch[0], end_offset=p.diverging_epoch[1]
            )
        if version >= 12 and p.snapshot_id:
            more["snapshot_id"] = module.SnapshotId(
                end_offset=p.snapshot_id[0], epoch=p.snapshot_id[1]
            )
        return fill(
            module.PartitionData,
            partition_index=p.index,
            error_code=ErrorCode(p.error_code),
            high_watermark=p.high_watermark,
            last_stable_offset=p.last_stable_offset,
            log_start_offset=p.log_start_offset,
            aborted_transactions=None
            if p.aborted is None
            else tuple(
                module.AbortedTransaction(producer_id=i, first_offset=o) for i, o in p.aborted
            ),
            preferred_read_replica=p.preferred_read_replica,
            records=bytes_of(p.records),
            **more,
        )

    return fill(
        module.FetchResponse,
        throttle_time=millis(42),
        error_code=ErrorCode.none,
        session_id=1234,
        node_endpoints=kio_endpoints(module),
        responses=tuple(
            fill(
                module.FetchableTopicResponse,
                topic=t.name,
                topic_id=t.topic_id,
                partitions=tuple(partition(p) for p in t.partitions),
            )
            for t in topics
        ),
    )


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_responses_have_the_bytes_of_kio(version: int) -> None:
    topics = fetched_topics()
    parts = hot.encode_fetch_response(
        version, 5, topics, throttle_ms=42, session_id=1234, node_endpoints=ENDPOINTS
    )
    assert sum(isinstance(part, Range) for part in parts) == 2
    frame = bytes_of(parts)
    assert frame == messages.encode_response(FETCH, version, 5, kio_fetch_response(version, topics))

    body = body_of(FETCH, version, frame, 5)
    answer = hot.decode_fetch_response(version, memoryview(body))
    assert answer.throttle_ms == 42
    assert answer.node_endpoints == (list(ENDPOINTS) if version >= 16 else [])
    again = hot.encode_fetch_response(
        version,
        5,
        answer.topics,
        throttle_ms=42,
        session_id=answer.session_id,
        node_endpoints=answer.node_endpoints,
    )
    assert b"".join(bytes(part) for part in again) == frame
    first, second = answer.topics[0].partitions[:2]
    assert (first.records_size, second.records_size) == (300, 320)
    assert isinstance(second.records[0], memoryview)
    assert bytes(second.records[0]) == b"b" * 20 + b"a" * 300
    if version >= 12:
        assert answer.topics[0].partitions[3].diverging_epoch == (3, 77)
        assert answer.topics[0].partitions[4].snapshot_id == (500, 2)
        assert answer.topics[0].partitions[4].current_leader == (1, 2)


def test_a_fetch_response_without_topics_is_one_part() -> None:
    for version in range(4, 19):
        parts = hot.encode_fetch_response(version, 5, [], error_code=70)
        assert len(parts) == 1
        answer = hot.decode_fetch_response(version, body_of(FETCH, version, parts[0], 5))
        assert answer.error_code == (70 if version >= 7 else 0)


@pytest.mark.parametrize("version", [4, 7, 11, 12, 18])
def test_a_fetch_response_cut_anywhere_is_refused(version: int) -> None:
    body = messages.encode_body(kio_fetch_response(version, fetched_topics()))
    for length in range(len(body)):
        with pytest.raises(DecodeError):
            hot.decode_fetch_response(version, memoryview(body)[:length])
    with pytest.raises(DecodeError, match="trailing"):
        hot.decode_fetch_response(version, body + b"\x00")


@pytest.mark.parametrize("version", range(4, 19))
def test_any_fetch_response_decodes_as_kio_has_it(version: int) -> None:
    chance = random.Random(version)
    for _ in range(30):
        entity = random_entity(messages.response_class(FETCH, version), chance)
        answer = hot.decode_fetch_response(version, memoryview(messages.encode_body(entity)))
        for mine, theirs in zip(answer.topics, entity.responses, strict=True):
            for part, other in zip(mine.partitions, theirs.partitions, strict=True):
                assert part.index == other.partition_index
                assert part.error_code == other.error_code
                assert bytes_of(part.records) == (other.records or b"")
                assert (part.aborted is None) == (other.aborted_transactions is None)


@given(st.integers(3, 18), st.binary(max_size=120))
def test_random_bytes_only_ever_raise_decode_errors(version: int, data: bytes) -> None:
    for decode in (hot.walk_produce, hot.decode_fetch_request, hot.decode_fetch_response):
        with contextlib.suppress(DecodeError):
            decode(version, memoryview(data))  # type: ignore[operator]


@given(st.integers(4, 18), st.integers(0, 2**32), st.data())
def test_altered_bytes_only_ever_raise_decode_errors(
    version: int, seed: int, data: st.DataObject
) -> None:
    chance = random.Random(seed)
    for decode, cls in (
        (hot.walk_produce, messages.request_class(PRODUCE, min(version, 13))),
        (hot.decode_fetch_request, messages.request_class(FETCH, version)),
        (hot.decode_fetch_response, messages.response_class(FETCH, version)),
    ):
        body = bytearray(messages.encode_body(random_entity(cls, chance)))
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
        with contextlib.suppress(DecodeError):
            decode(min(version, 13) if decode is hot.walk_produce else version, memoryview(body))


# Vote


@pytest.mark.parametrize("version,pre_vote", [(0, False), (1, False), (2, False), (2, True)])
def test_vote_requests_have_the_bytes_of_kio(version: int, pre_vote: bool) -> None:
    question = hot.VoteQuestion(
        9, 2, 8, 1234, "cluster", 3, UUID(int=7 << 64), UUID(int=8 << 64), pre_vote
    )
    module = messages.request_module(VOTE, version)
    part = fill(
        module.PartitionData,
        partition_index=0,
        replica_epoch=9,
        replica_id=2,
        replica_directory_id=question.replica_directory_id,
        voter_directory_id=question.voter_directory_id,
        last_offset_epoch=8,
        last_offset=1234,
        pre_vote=pre_vote,
    )
    topic = module.TopicData(topic_name="__cluster_metadata", partitions=(part,))
    entity = fill(module.VoteRequest, cluster_id="cluster", voter_id=3, topics=(topic,))
    assert hot.encode_vote_request(version, question) == messages.encode_body(entity)


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("granted", [False, True])
def test_vote_responses_have_the_bytes_of_kio(version: int, granted: bool) -> None:
    module = messages.response_module(VOTE, version)
    part = module.PartitionData(
        partition_index=0,
        error_code=ErrorCode.fenced_leader_epoch,
        leader_id=4,
        leader_epoch=10,
        vote_granted=granted,
    )
    topic = module.TopicData(topic_name="__cluster_metadata", partitions=(part,))
    entity = fill(
        module.VoteResponse,
        error_code=ErrorCode.none,
        topics=(topic,),
        node_endpoints=kio_endpoints(module),
    )
    answer = hot.VoteAnswer(ErrorCode.fenced_leader_epoch, 4, 10, granted)
    encoded = hot.encode_vote_response(version, answer, node_endpoints=ENDPOINTS)
    assert encoded == messages.encode_body(entity)


# IncrementalAlterConfigs


def plain(entity: Any) -> tuple[Any, bool]:
    """A request, kio's or ours, as tuples."""
    resources = tuple(
        (
            one.resource_type,
            one.resource_name,
            tuple((c.name, c.config_operation, c.value) for c in one.configs),
        )
        for one in entity.resources
    )
    return resources, entity.validate_only


@pytest.mark.parametrize("version", [0, 1])
def test_config_changes_are_read_as_kio_reads_them(version: int) -> None:
    chance = random.Random(version)
    for _ in range(100):
        entity = random_entity(messages.request_class(ALTER, version), chance)
        body = messages.encode_body(entity)
        found = hot.decode_incremental_alter_configs(version, memoryview(body))
        assert plain(found) == plain(entity)
        for length in range(len(body)):
            with pytest.raises(DecodeError):
                hot.decode_incremental_alter_configs(version, memoryview(body)[:length])


@pytest.mark.parametrize("version", [0, 1])
@given(st.binary(max_size=80))
def test_nonsense_as_config_changes_is_refused_or_read(version: int, body: bytes) -> None:
    with contextlib.suppress(DecodeError):
        hot.decode_incremental_alter_configs(version, body)


@pytest.mark.parametrize(("key", "version"), [(33, 0), (33, 1), (33, 2), (ALTER, 0), (ALTER, 1)])
def test_outcomes_of_config_changes_are_written_as_kio_writes_them(key: int, version: int) -> None:
    outcomes = (
        hot.ResourceOutcome(0, None, 2, "töpic"),
        hot.ResourceOutcome(40, "Invalid value", 4, ""),
    )
    module = messages.response_module(key, version)
    expected = fill(
        messages.response_class(key, version),
        throttle_time=millis(0),
        responses=tuple(
            fill(
                module.AlterConfigsResourceResponse,
                error_code=ErrorCode(code),
                error_message=message,
                resource_type=kind,
                resource_name=name,
            )
            for code, message, kind, name in outcomes
        ),
    )
    ours = messages.encode_response(key, version, 9, hot.ConfigsResponse(outcomes))
    assert ours == messages.encode_response(key, version, 9, expected)


@pytest.mark.parametrize(
    ("decode", "key", "response"),
    [
        (hot.walk_produce, PRODUCE, False),
        (hot.decode_fetch_request, FETCH, False),
        (hot.decode_fetch_response, FETCH, True),
        (hot.decode_incremental_alter_configs, ALTER, False),
    ],
)
def test_hand_decoders_count_elements_over_the_whole_message(
    decode: Any, key: int, response: bool
) -> None:
    version = {PRODUCE: 13, FETCH: 18, ALTER: 1}[key]
    class_of = messages.response_class if response else messages.request_class
    for entity in crowded_entities(class_of(key, version), 30):
        body = memoryview(messages.encode_body(entity))
        decode(version, body, 30)
        with pytest.raises(DecodeError, match="may hold 29 array elements"):
            decode(version, body, 29)
