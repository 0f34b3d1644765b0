"""The quorum over gRPC: described, its voters changed; each call, its request, its answer."""

import dataclasses
from uuid import UUID

import grpc
import pytest
from admin_rig import Aborted, Rig

from admin import client
from admin.stubs import admin_pb2 as pb
from wire.errors import ErrorCode
from wire.messages import fill, millis
from wire.uuids import to_text

DIRECTORY = UUID(int=1 << 70)


def changed(error=ErrorCode.none, message=None):
    """The controller's answer to a change of the voters."""

    def answer(request, module):
        name = type(request).__name__.replace("Request", "Response")
        return fill(
            getattr(module, name), throttle_time=millis(0), error_code=error, error_message=message
        )

    return answer


def test_add_voter_with_every_field():
    rig = Rig()
    rig.controller.answers[80] = changed()
    ends = [
        pb.Endpoint(listener="CONTROLLER", host="c4", port=9093),
        pb.Endpoint(listener="OTHER", host="::1", port=65535),
    ]
    request = pb.AddVoterRequest(
        id=4, directory=to_text(DIRECTORY), endpoints=ends, timeout_ms=1234
    )
    assert rig.call("AddVoter", request) == pb.AddVoterResponse()
    [sent] = rig.controller.seen
    assert (sent.voter_id, sent.voter_directory_id, sent.timeout) == (4, DIRECTORY, millis(1234))
    assert [(end.name, end.host, end.port) for end in sent.listeners] == [
        ("CONTROLLER", "c4", 9093), ("OTHER", "::1", 65535)
    ]  # fmt: skip
    assert sent.ack_when_committed


def test_remove_voter_with_every_field():
    rig = Rig()
    rig.controller.answers[81] = changed()
    request = pb.RemoveVoterRequest(id=4, directory=to_text(DIRECTORY), timeout_ms=1234)
    assert rig.call("RemoveVoter", request) == pb.RemoveVoterResponse()
    [sent] = rig.controller.seen
    assert (sent.voter_id, sent.voter_directory_id) == (4, DIRECTORY)
    assert rig.controller.timeouts == [1234]


@pytest.mark.parametrize("method", ["AddVoter", "RemoveVoter"])
def test_a_refused_change_of_the_voters(method):
    rig = Rig()
    rig.controller.answers |= {
        80: changed(ErrorCode.duplicate_voter, "there is one"),
        81: changed(ErrorCode.voter_not_found, "there is none"),
    }
    request = getattr(pb, f"{method}Request")(id=4, directory=to_text(DIRECTORY))
    with pytest.raises(Aborted, match="there is") as failed:
        rig.call(method, request)
    assert failed.value.error.name in ("DUPLICATE_VOTER", "VOTER_NOT_FOUND")


@pytest.mark.parametrize(
    ("method", "fields", "told"),
    [
        ("AddVoter", {"directory": "x"}, "directory 'x'"),
        ("RemoveVoter", {"directory": ""}, "directory ''"),
        (
            "AddVoter",
            {"directory": to_text(DIRECTORY), "endpoints": [pb.Endpoint(listener="C", port=0)]},
            "port 0 of C: 1 to 65535",
        ),
    ],
)
def test_voters_that_no_request_can_hold(method, fields, told):
    rig = Rig()
    with pytest.raises(Aborted, match=told) as failed:
        rig.call(method, getattr(pb, f"{method}Request")(id=4, **fields))
    assert failed.value.error.name == "INVALID_REQUEST"
    assert rig.controller.seen == []


OWN_DIRECTORY = UUID(int=7)


def described(module, *partitions, error=ErrorCode.none, message=None):
    """A DescribeQuorum response with these partitions of the metadata log."""
    topic = fill(module.TopicData, topic_name="__cluster_metadata", partitions=partitions)
    return fill(
        module.DescribeQuorumResponse,
        error_code=error,
        error_message=message,
        topics=(topic,) if partitions else (),
        nodes=(),
    )


def quorum_answer(caught_up, directory=OWN_DIRECTORY):
    def answer(request, module):
        [topic] = request.topics
        assert topic.topic_name == "__cluster_metadata"
        assert [p.partition_index for p in topic.partitions] == [0]

        def replica(number, end, caught_up_ms, directory):
            return fill(
                module.ReplicaState,
                replica_id=number,
                replica_directory_id=directory,
                log_end_offset=end,
                last_fetch_timestamp=-1,
                last_caught_up_timestamp=caught_up_ms,
            )

        partition = fill(
            module.PartitionData,
            partition_index=0,
            error_code=ErrorCode.none,
            error_message=None,
            leader_id=2,
            leader_epoch=9,
            high_watermark=100,
            current_voters=(
                replica(1, 90, caught_up, directory),
                replica(2, 101, 50_000, None),
            ),
            observers=(replica(11, 5, -1, directory),),
        )
        return described(module, partition)

    return answer


@pytest.mark.parametrize(("caught_up", "lag"), [(49_000, 1000), (50_000, 0), (50_001, 0), (-1, -1)])
def test_describe_quorum(caught_up, lag):
    rig = Rig()
    rig.controller.answers[55] = quorum_answer(caught_up)
    got = rig.call("DescribeQuorum", pb.DescribeQuorumRequest(timeout_ms=77))
    assert (got.leader_id, got.leader_epoch, got.high_watermark) == (2, 9, 100)
    own = to_text(OWN_DIRECTORY)
    zero = "AAAAAAAAAAAAAAAAAAAAAA"
    assert [(v.id, v.directory, v.end_offset, v.lag_ms) for v in got.voters] == [
        (1, own, 90, lag),
        (2, zero, 101, 0),
    ]
    assert [(v.id, v.directory, v.end_offset, v.lag_ms) for v in got.observers] == [
        (11, own, 5, -1)
    ]
    assert rig.controller.timeouts == [77]


def test_replicas_come_in_the_same_order_whoever_fetched_last():
    told = [pb.ReplicaState(id=id_, directory=own) for id_, own in ((3, "b"), (12, "a"), (3, "a"))]
    for order in (told, told[::-1]):
        found = [(one["id"], one["directory"]) for one in client._replicas(order)]
        assert found == [(3, "a"), (3, "b"), (12, "a")]


def test_describe_quorum_before_timestamps_and_directories():
    rig = Rig()
    rig.controller.version[55] = 0
    rig.controller.answers[55] = quorum_answer(1)
    got = rig.call("DescribeQuorum", pb.DescribeQuorumRequest())
    assert [v.lag_ms for v in got.voters] == [-1, -1]


@pytest.mark.parametrize("where", ["top", "partition", "nothing"])
def test_describe_quorum_refused(where):
    def answer(request, module):
        code, text = ErrorCode.not_leader_or_follower, "not the leader"
        if where == "top":
            return described(module, error=code, message=text)
        if where == "nothing":
            return described(module)
        old = quorum_answer(1)(request, module).topics[0].partitions[0]
        return described(module, dataclasses.replace(old, error_code=code, error_message=text))

    rig = Rig()
    rig.controller.answers[55] = answer
    with pytest.raises(Aborted) as failed:
        rig.call("DescribeQuorum", pb.DescribeQuorumRequest())
    expected = grpc.StatusCode.INTERNAL if where == "nothing" else grpc.StatusCode.UNAVAILABLE
    assert failed.value.status == expected
