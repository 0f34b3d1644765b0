"""Our messages through Kafka's and back, in every version, with kio as the oracle."""

from uuid import UUID

import pytest

from net.handlers import Frame, Later
from net.handlers import Request as NetRequest
from raft import messages as msg
from raft import protocol
from raft.config import RaftConfig
from raft.requests import Call, QuorumApis, Slice
from raft.voters import OffsetAndEpoch, ReplicaKey, Voter
from wire.batch import build_batch
from wire.errors import DecodeError, ErrorCode
from wire.messages import (
    RequestHeader,
    decode_response,
    decode_response_header,
    encode_body,
    encode_response,
    request_class,
    request_module,
)

CONFIG = RaftConfig(
    node_id=1,
    directory_id=UUID(int=501),
    cluster_id="c1",
    voters={i: (f"host-{i}", 9000 + i) for i in (1, 2, 3)},
)
ME, OTHER = ReplicaKey(1, UUID(int=501)), ReplicaKey(2, UUID(int=502))
SNAPSHOT = OffsetAndEpoch(77, 6)
ENDPOINTS = {"CONTROLLER": ("host-1", 9001), "OTHER": ("::1", 65535)}
REQUESTS = {
    "vote": (msg.VoteRequest(OTHER, 5, ME, OffsetAndEpoch(9, 4), False), range(3)),
    "pre_vote": (msg.VoteRequest(ReplicaKey(2), 5, ME, OffsetAndEpoch(9, 4), True), (2,)),
    "begin": (msg.BeginEpochRequest(OTHER, 1, 5, ("host-1", 9001)), range(2)),
    "end": (msg.EndEpochRequest(1, 5, (OTHER, ReplicaKey(3))), range(2)),
    "fetch": (msg.FetchRequest(ME, 5, 9, 4, 500, 8), range(12, 19)),
    "fetch_snapshot": (msg.FetchSnapshotRequest(ME, 5, SNAPSHOT, 64), range(2)),
    "add": (msg.AddVoterRequest(Voter(OTHER, ENDPOINTS), 1234), range(2)),
    "join": (msg.AddVoterRequest(Voter(ME, ENDPOINTS), 77, until_committed=False), (1,)),
    "remove": (msg.RemoveVoterRequest(OTHER), (0,)),
    "update": (msg.UpdateVoterRequest(5, Voter(ME, ENDPOINTS, 0, 1)), (0,)),
}
BATCH = build_batch([(1, None, b"v", ())], base_offset=9, leader_epoch=4)
RESPONSES = {
    "vote": msg.VoteResponse(ErrorCode.none, 2, 5, True),
    "pre_vote": msg.VoteResponse(ErrorCode.fenced_leader_epoch, -1, 7, False),
    "begin": msg.BeginEpochResponse(ErrorCode.fenced_leader_epoch, 3, 6),
    "end": msg.EndEpochResponse(ErrorCode.none, -1, 6),
    "fetch_snapshot": msg.FetchSnapshotResponse(ErrorCode.none, 2, 5, SNAPSHOT, 64, 100, 3, b"abc"),
    "add": msg.VoterChangeResponse(ErrorCode.duplicate_voter, -1, -1, "there is one"),
    "join": msg.VoterChangeResponse(ErrorCode.none, -1, -1),
    "remove": msg.VoterChangeResponse(ErrorCode.voter_not_found, -1, -1, "there is none"),
    "update": msg.VoterChangeResponse(ErrorCode.fenced_leader_epoch, 3, 6),
}
CASES = [(name, version) for name, (_, versions) in REQUESTS.items() for version in versions]


def address(node_id):
    return CONFIG.voters.get(node_id)


def with_address(version, response, least=1):
    """The answer as it arrives: from some version on it says where the leader is."""
    if version < least:
        return response
    return response._replace(leader_address=address(response.leader_id))


class FakeConnection:
    number = 4


def served(name, version, body):
    """What our handler makes of a request body: the message, or the reply if it was refused."""
    key = protocol.API_KEYS[type(REQUESTS[name][0])]
    asked = []

    def ask(request, message, call):
        asked.append((message, call))
        return Later()

    apis = QuorumApis(CONFIG, address, ask)
    handler = next(api for api in apis.apis() if api.key == key)
    assert handler.min_version <= version <= handler.max_version
    header = RequestHeader(key, version, 11, "test")
    reply = handler.handle(NetRequest(header, memoryview(body), 0, FakeConnection(), 0))
    return (asked[0], apis) if asked else (reply, apis)


def known_to(version, name, message):
    """The message as an older version can say it."""
    if name == "vote" and version == 0:
        return message._replace(voter=None, candidate=ReplicaKey(1))
    if name == "begin" and version == 0:
        return message._replace(voter=None, leader_address=None)
    if name == "end" and version == 0:
        return message._replace(successors=(ReplicaKey(2), ReplicaKey(3)))
    if name == "fetch":
        if version < 18:
            message = message._replace(high_watermark=msg.HIGH_WATERMARK_UNSUPPORTED)
        if version < 17:
            message = message._replace(replica=ReplicaKey(1))
    if name == "fetch_snapshot" and version == 0:
        return message._replace(replica=ReplicaKey(1))
    return message


@pytest.mark.parametrize(("name", "version"), CASES)
def test_requests_arrive_as_they_were_meant(name, version):
    request = REQUESTS[name][0]
    body = protocol.encode(request, version, CONFIG)
    (message, call), _ = served(name, version, body)
    assert message == known_to(version, name, request)
    assert call.correlation_id == 11


@pytest.mark.parametrize(("name", "version"), [c for c in CASES if c[0] != "fetch"])
def test_answers_arrive_as_they_were_meant(name, version):
    request = REQUESTS[name][0]
    key = protocol.API_KEYS[type(request)]
    apis = QuorumApis(CONFIG, address, None)
    response = RESPONSES[name]
    data = Slice(b"abc", 3) if name == "fetch_snapshot" else None
    entity = apis.reply(Call(key, version, 11, 100), response, data)
    frame = encode_response(key, version, 11, entity)
    _, offset = decode_response_header(key, version, memoryview(frame)[4:])
    arrived = protocol.decode(request, version, memoryview(frame)[4 + offset :])
    assert arrived == with_address(version, response, 0 if name == "update" else 1)
    if version >= 1 and response.leader_id > 0:
        (endpoint,) = decode_response(key, version, frame[4:])[1].node_endpoints
        assert (endpoint.node_id, endpoint.host) == (
            response.leader_id, f"host-{response.leader_id}"
        )  # fmt: skip


FETCHES = [
    msg.FetchResponse(ErrorCode.none, 2, 5, 12),
    msg.FetchResponse(ErrorCode.not_leader_or_follower, -1, 5),
    msg.FetchResponse(ErrorCode.none, 2, 5, 12, diverging=OffsetAndEpoch(7, 3)),
    msg.FetchResponse(ErrorCode.none, 2, 5, -1, snapshot=SNAPSHOT),
]


@pytest.mark.parametrize("version", range(12, 19))
@pytest.mark.parametrize("response", FETCHES)
def test_fetch_answers(version, response):
    assert fetched(version, response, None) == with_address(version, response, 16)


@pytest.mark.parametrize("version", range(12, 19))
def test_fetched_records_are_outlined(version):
    more = build_batch([(1, None, b"w", ())] * 3, base_offset=10, leader_epoch=5)
    data = BATCH + more + more[:20]
    response = fetched(version, FETCHES[0], Slice(data, len(data)))
    assert response.records.base_offset == 9
    assert response.records.end_offset == 13
    assert response.records.epochs == ((4, 9), (5, 10))
    assert bytes(response.records.payload) == BATCH + more, "a batch cut short is left out"


def test_fetched_records_that_arent_sound_are_an_error():
    for data in (b"x" * 100, BATCH[:-1] + b"!", build_batch([(1, None, b"v", ())], base_offset=3)):
        with pytest.raises(DecodeError):
            fetched(17, FETCHES[0], Slice(data, len(data)))


def fetched(version, response, data):
    apis = QuorumApis(CONFIG, address, None)
    frame = apis.reply(Call(1, version, 11, 1 << 20), response, data)
    assert isinstance(frame, Frame)
    whole = b"".join(frame.parts)
    _, entity = decode_response(1, version, whole[4:])  # kio agrees that it is sound
    assert entity.error_code == ErrorCode.none
    _, offset = decode_response_header(1, version, memoryview(whole)[4:])
    return protocol.decode(REQUESTS["fetch"][0], version, memoryview(whole)[4 + offset :])


@pytest.mark.parametrize("name", ["vote", "begin", "end", "fetch_snapshot"])
@pytest.mark.parametrize("change", ["cluster", "topic", "no topic", "two topics", "partition"])
def test_requests_about_anything_else_are_refused_as_a_whole(name, change):
    request, versions = REQUESTS[name]
    version = versions[-1]
    key = protocol.API_KEYS[type(request)]
    module = request_module(key, version)
    from wire.messages import decode_body

    entity = decode_body(request_class(key, version), protocol.encode(request, version, CONFIG))
    from dataclasses import replace

    expected = ErrorCode.invalid_request
    (topic,) = entity.topics
    name_field = "name" if hasattr(topic, "name") else "topic_name"
    if change == "cluster":
        entity, expected = replace(entity, cluster_id="c2"), ErrorCode.inconsistent_cluster_id
    elif change == "topic":
        entity = replace(entity, topics=(replace(topic, **{name_field: "other"}),))
    elif change == "no topic":
        entity = replace(entity, topics=())
    elif change == "two topics":
        entity = replace(entity, topics=(topic, topic))
    else:
        part = topic.partitions[0]
        index = "partition" if hasattr(part, "partition") else "partition_index"
        part = replace(part, **{index: 1})
        entity = replace(entity, topics=(replace(topic, partitions=(part,)),))
    assert module is not None
    reply, _ = served(name, version, encode_body(entity))
    assert reply.error_code == expected
    encode_response(key, version, 1, reply)


@pytest.mark.parametrize("version", range(12, 19))
def test_a_fetch_of_another_topic_or_cluster_is_refused(version):
    from wire.hot import fetch_request as hot

    good = hot.decode_fetch_request(version, protocol.encode(REQUESTS["fetch"][0], version, CONFIG))
    for change, error in (
        ({"cluster_id": "c2"}, ErrorCode.inconsistent_cluster_id),
        ({"topics": []}, ErrorCode.invalid_request),
        ({"topics": [good.topics[0]._replace(name="x", topic_id=UUID(int=9))]},
         ErrorCode.invalid_request),
    ):  # fmt: skip
        body = hot.encode_fetch_request(version, good._replace(**change))
        reply, _ = served("fetch", version, body)
        _, entity = decode_response(1, version, b"".join(reply.parts)[4:])
        assert entity.error_code == error


def test_an_answer_with_an_error_for_the_whole_is_told_by_name():
    request = REQUESTS["begin"][0]
    reply, _ = served("begin", 1, protocol.encode(request, 1, _other_cluster()))
    frame = encode_response(53, 1, 1, reply)
    _, offset = decode_response_header(53, 1, memoryview(frame)[4:])
    with pytest.raises(protocol.Refused, match="inconsistent_cluster_id"):
        protocol.decode(request, 1, memoryview(frame)[4 + offset :])


def _other_cluster():
    from dataclasses import replace

    return replace(CONFIG, cluster_id="c2")
