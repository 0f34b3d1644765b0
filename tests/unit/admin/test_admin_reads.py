import asyncio
import json

import grpc
import pytest
from admin_rig import DIRECTORY, TOPIC_ID, Aborted, Context, Rig, records

from admin.ports import SlowWatcher
from admin.stubs import admin_pb2 as pb
from metadata.configs import TOPIC
from metadata.records import to_json
from wire.errors import ErrorCode, KafkaError
from wire.uuids import to_text


def test_list_topics():
    got = Rig().call("ListTopics", pb.ListTopicsRequest())
    assert got.metadata_offset == 41
    assert [(t.name, t.partitions) for t in got.topics] == [("audit", 0), ("orders", 2)]
    assert got.topics[1].topic_id == to_text(TOPIC_ID)


def test_describe_topics_all_and_by_name():
    rig = Rig()
    everything = rig.call("DescribeTopics", pb.DescribeTopicsRequest())
    assert [t.name for t in everything.topics] == ["audit", "orders"]
    got = rig.call("DescribeTopics", pb.DescribeTopicsRequest(names=["nope", "orders", "audit"]))
    assert got.metadata_offset == 41
    assert [(t.name, t.error.name) for t in got.topics] == [
        ("nope", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("orders", ""),
        ("audit", ""),
    ]
    assert "nope" in got.topics[0].error.message
    first, second = got.topics[1].partitions
    directory = to_text(DIRECTORY)
    assert first == pb.PartitionDescription(
        partition=0,
        replicas=[1, 2],
        isr=[1],
        elr=[2],
        leader=1,
        leader_epoch=3,
        partition_epoch=4,
        directories=[directory, directory],
    )
    assert second == pb.PartitionDescription(
        partition=1, replicas=[2], isr=[2], removing=[2], adding=[1], leader=-1
    )


def test_describe_cluster():
    got = Rig().call("DescribeCluster", pb.DescribeClusterRequest())
    assert (got.metadata_offset, got.cluster_id, got.active_controller) == (41, "the-cluster", 3001)
    [broker] = got.brokers
    assert (broker.id, broker.epoch, broker.rack, broker.fenced) == (1, 5, "r1", False)
    assert [(e.listener, e.host, e.port) for e in broker.endpoints] == [
        ("PLAINTEXT", "localhost", 9092)
    ]
    assert list(broker.log_dirs) == [to_text(DIRECTORY)]
    assert [(f.name, f.min_level, f.max_level) for f in broker.features] == [
        ("metadata.version", 7, 25)
    ]


def test_describe_features():
    got = Rig().call("DescribeFeatures", pb.DescribeFeaturesRequest())
    assert [(f.name, f.min_supported, f.max_supported, f.finalized) for f in got.features] == [
        ("metadata.version", 7, 25, 25)
    ]


def describe_config(rig, kind, name, *keys):
    resource = pb.ConfigResource(type=kind, name=name, keys=keys)
    response = rig.call("DescribeConfigs", pb.DescribeConfigsRequest(resources=[resource]))
    assert response.metadata_offset == 41
    return response.results[0]


def test_describe_configs_of_a_topic():
    rig = Rig()
    got = {c.name: (c.value, c.source) for c in describe_config(rig, 2, "orders").configs}
    assert list(got) == sorted(TOPIC)
    assert got["retention.ms"] == ("5000", pb.CONFIG_SOURCE_TOPIC)
    assert got["cleanup.policy"] == ("delete", pb.CONFIG_SOURCE_DEFAULT)
    other = {c.name: (c.value, c.source) for c in describe_config(rig, 2, "audit").configs}
    assert other["retention.ms"] == ("7000", pb.CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER)
    one = describe_config(rig, 2, "orders", "retention.ms")
    assert [c.name for c in one.configs] == ["retention.ms"]


def test_describe_configs_of_brokers():
    rig = Rig()
    got = [(c.name, c.value, c.source, c.sensitive) for c in describe_config(rig, 4, "1").configs]
    assert got == [
        ("log.retention.ms", "7000", pb.CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER, False),
        ("message.max.bytes", "99", pb.CONFIG_SOURCE_DYNAMIC_BROKER, False),
        ("nobody.knows", "", pb.CONFIG_SOURCE_DYNAMIC_BROKER, True),
    ]
    assert [c.name for c in describe_config(rig, 4, "").configs] == ["log.retention.ms"]
    assert [c.name for c in describe_config(rig, 4, "1", "message.max.bytes", "z").configs] == [
        "message.max.bytes"
    ]
    assert list(describe_config(rig, 32, "group").configs) == []


@pytest.mark.parametrize(
    ("kind", "name", "keys", "error", "text"),
    [
        (2, "nope", (), "UNKNOWN_TOPIC_OR_PARTITION", "nope"),
        (2, "orders", ("no.such",), "INVALID_CONFIG", "no.such"),
        (4, "9", (), "BROKER_ID_NOT_REGISTERED", "9"),
        (4, "abc", (), "INVALID_REQUEST", "abc"),
        (4, "-1", (), "INVALID_REQUEST", "-1"),
        (4, "1" * 5000, (), "INVALID_REQUEST", "111"),
        (0, "x", (), "INVALID_REQUEST", "type 0"),
        (8, "x", (), "INVALID_REQUEST", "type 8"),
    ],
)
def test_describe_configs_bad_input(kind, name, keys, error, text):
    got = describe_config(Rig(), kind, name, *keys)
    assert got.error.name == error
    assert text in got.error.message


READS = ["ListTopics", "DescribeTopics", "DescribeConfigs", "DescribeCluster", "DescribeFeatures"]


@pytest.mark.parametrize("method", READS)
def test_linearizable_reads_confirm_first(method):
    rig = Rig()
    request = getattr(pb, f"{method}Request")(linearizable=True)
    rig.call(method, request)
    assert rig.confirmed == 1
    rig.confirm_error = KafkaError(ErrorCode.not_controller, "no active controller confirms reads")
    with pytest.raises(Aborted, match="confirms") as failed:
        rig.call(method, request)
    assert failed.value.status == grpc.StatusCode.UNAVAILABLE
    rig.call(method, getattr(pb, f"{method}Request")())
    assert rig.confirmed == 1


def test_a_confirmation_that_never_comes_ends_before_the_deadline():
    rig = Rig()

    async def never():
        await asyncio.Event().wait()

    object.__setattr__(rig.ports, "confirm_read", never)
    with pytest.raises(Aborted, match="majority") as failed:
        rig.call("ListTopics", pb.ListTopicsRequest(linearizable=True), left_s=0.4)
    assert failed.value.status == grpc.StatusCode.DEADLINE_EXCEEDED


def run_watch(rig, request, context):
    """Runs until the watch fails, or has nothing more to say for a moment."""

    async def main():
        task = asyncio.create_task(rig.service.Watch(request, context))
        done, _ = await asyncio.wait([task], timeout=0.5)
        if done:
            return task.exception()
        task.cancel()
        return None

    return asyncio.run(main())


def test_watch_from_an_offset():
    rig, context = Rig(), Context()
    assert run_watch(rig, pb.WatchRequest(from_offset=2), context) is None
    assert context.headers == 1
    assert [m.offset for m in context.written] == list(range(2, 10))
    first = context.written[0]
    assert (first.epoch, first.timestamp_ms, first.type) == (7, 1002, "TopicRecord")
    assert json.loads(first.json) == to_json(records()[2])
    assert rig.watch.closed == 1


def test_watch_with_the_state_first():
    rig, context = Rig(), Context()
    rig.watch.records = [r._replace(offset=r.offset + 40) for r in rig.watch.records]
    assert run_watch(rig, pb.WatchRequest(snapshot_first=True, from_offset=5), context) is None
    state = [m for m in context.written if m.offset == 41]
    assert {m.type for m in state} >= {"FeatureLevelRecord", "TopicRecord", "PartitionRecord"}
    assert [m.offset for m in context.written[len(state) :]] == list(range(42, 50))
    assert all((m.epoch, m.timestamp_ms) == (7, 1_700_000_000_000) for m in state)


def test_watch_below_the_start_of_the_log():
    rig = Rig()
    rig.watch.start = 5
    error = run_watch(rig, pb.WatchRequest(from_offset=3), Context())
    assert isinstance(error, Aborted)
    assert error.status == grpc.StatusCode.OUT_OF_RANGE
    assert error.error.name == "OFFSET_OUT_OF_RANGE"
    error = run_watch(rig, pb.WatchRequest(from_offset=-3), Context())
    assert (error.status, error.error.name) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID_REQUEST",
    )


def test_a_watcher_that_takes_nothing_is_ended():
    rig, context = Rig(), Context(take=3)
    error = run_watch(rig, pb.WatchRequest(), context)
    assert error.status == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "offset 3" in error.details
    # Nothing was read ahead of it.
    assert rig.watch.taken == 4
    assert rig.watch.closed == 1


def test_a_source_that_gives_up_on_a_watcher():
    rig = Rig()
    rig.watch.end = SlowWatcher("10000 records behind")
    error = run_watch(rig, pb.WatchRequest(), Context())
    assert error.status == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "10000" in error.details


def test_a_watcher_that_leaves_lets_go_of_the_source():
    rig = Rig()
    assert run_watch(rig, pb.WatchRequest(), Context()) is None
    assert rig.watch.closed == 1
