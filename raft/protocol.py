"""The quorum's messages as Kafka's: requests we send, and the answers to them.

Fetch and Vote are encoded by hand (`wire.hot`), the rest by kio. Every request names exactly
one topic and partition, `__cluster_metadata`-0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from raft.config import TOPIC, RaftConfig
from raft.messages import (
    Address,
    AddVoterRequest,
    BeginEpochRequest,
    BeginEpochResponse,
    EndEpochRequest,
    EndEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveVoterRequest,
    Request,
    Response,
    UpdateVoterRequest,
    VoterChangeRequest,
    VoterChangeResponse,
    VoteRequest,
    VoteResponse,
)
from raft.metadata_log import describe_fetched
from raft.voters import OffsetAndEpoch, ReplicaKey
from wire.apis import ApiKey
from wire.errors import DecodeError, ErrorCode
from wire.hot import fetch_request as hot_fetch_request
from wire.hot import fetch_response as hot_fetch_response
from wire.hot.vote import VoteQuestion, encode_vote_request
from wire.messages import (
    decode_body,
    encode_body,
    fill,
    millis,
    request_class,
    request_module,
    response_class,
)
from wire.uuids import METADATA_TOPIC_ID, ZERO

FETCH_MIN_VERSION = 12  # the first with DivergingEpoch
MAX_ELEMENTS = 1000
"""Array elements and tagged fields of a request or answer of the quorum: one topic and partition,
and some for each voter. They are decoded in a few milliseconds, which elections can bear."""
API_KEYS: dict[type[Any], int] = {
    VoteRequest: ApiKey.VOTE,
    BeginEpochRequest: ApiKey.BEGIN_QUORUM_EPOCH,
    EndEpochRequest: ApiKey.END_QUORUM_EPOCH,
    FetchRequest: ApiKey.FETCH,
    FetchSnapshotRequest: ApiKey.FETCH_SNAPSHOT,
    AddVoterRequest: ApiKey.ADD_RAFT_VOTER,
    RemoveVoterRequest: ApiKey.REMOVE_RAFT_VOTER,
    UpdateVoterRequest: ApiKey.UPDATE_RAFT_VOTER,
}


class Refused(Exception):
    """The answer has an error for the whole request, or isn't about our partition."""


class OtherCluster(Refused):
    """The peer says that we are of another cluster."""


def directory_of(value: UUID | None) -> UUID | None:
    """A directory id as we keep it: None where it isn't known."""
    return None if value is None or value == ZERO else value


def min_version(request: Request) -> int:
    """The lowest version of its API that can say what `request` says."""
    if isinstance(request, FetchRequest):
        return FETCH_MIN_VERSION
    if isinstance(request, AddVoterRequest):
        return 0 if request.until_committed else 1
    return 2 if isinstance(request, VoteRequest) and request.pre_vote else 0


# Requests


def encode(request: Request, version: int, config: RaftConfig) -> bytes:
    """The body of a request."""
    if isinstance(request, FetchRequest):
        return _encode_fetch(request, version, config)
    if isinstance(request, VoteRequest):
        voter = request.voter or ReplicaKey(-1)
        return encode_vote_request(
            version,
            VoteQuestion(
                replica_epoch=request.epoch,
                replica_id=request.candidate.node_id,
                last_offset_epoch=request.last.epoch,
                last_offset=request.last.offset,
                cluster_id=config.cluster_id,
                voter_id=voter.node_id,
                replica_directory_id=request.candidate.directory_id or ZERO,
                voter_directory_id=voter.directory_id or ZERO,
                pre_vote=request.pre_vote,
            ),
        )
    return encode_body(_entity(request, version, config))


def _encode_fetch(request: FetchRequest, version: int, config: RaftConfig) -> bytes:
    partition = hot_fetch_request.FetchPartition(
        partition=0,
        fetch_offset=request.offset,
        max_bytes=config.fetch_max_bytes,
        current_leader_epoch=request.epoch,
        last_fetched_epoch=request.last_epoch,
        replica_directory_id=request.replica.directory_id or ZERO,
        high_watermark=request.high_watermark,
    )
    topic = hot_fetch_request.FetchTopic(TOPIC, METADATA_TOPIC_ID, [partition])
    return hot_fetch_request.encode_fetch_request(
        version,
        hot_fetch_request.FetchRequest(
            max_wait_ms=request.max_wait_ms,
            min_bytes=0,
            max_bytes=config.fetch_max_bytes,
            topics=[topic],
            replica_id=request.replica.node_id,
            cluster_id=config.cluster_id,
        ),
    )


def _entity(request: Request, version: int, config: RaftConfig) -> Any:
    key = API_KEYS[type(request)]
    module: Any = request_module(key, version)
    if isinstance(request, AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest):
        return _voter_change(request, version, config, module)
    if isinstance(request, FetchSnapshotRequest):
        partition = fill(
            module.PartitionSnapshot,
            partition=0,
            current_leader_epoch=request.epoch,
            snapshot_id=module.SnapshotId(
                end_offset=request.snapshot.offset, epoch=request.snapshot.epoch
            ),
            position=request.position,
            replica_directory_id=request.replica.directory_id,
        )
        return fill(
            module.FetchSnapshotRequest,
            cluster_id=config.cluster_id,
            replica_id=request.replica.node_id,
            max_bytes=config.fetch_snapshot_max_bytes,
            topics=(module.TopicSnapshot(name=TOPIC, partitions=(partition,)),),
        )
    assert isinstance(request, BeginEpochRequest | EndEpochRequest), request
    fields: dict[str, Any] = {
        "partition_index": 0,
        "leader_id": request.leader_id,
        "leader_epoch": request.epoch,
    }
    voter: ReplicaKey | None = None
    if isinstance(request, BeginEpochRequest):
        voter = request.voter
        fields["voter_directory_id"] = None if voter is None else voter.directory_id
    else:
        fields["preferred_successors"] = tuple(k.node_id for k in request.successors)
        if version >= 1:
            fields["preferred_candidates"] = tuple(
                module.ReplicaInfo(candidate_id=k.node_id, candidate_directory_id=k.directory_id)
                for k in request.successors
            )
    address = config.own_address
    endpoints: tuple[Any, ...] = ()
    if version >= 1 and address is not None:
        endpoints = (
            module.LeaderEndpoint(name=config.listener_name, host=address[0], port=address[1]),
        )
    topic = module.TopicData(topic_name=TOPIC, partitions=(fill(module.PartitionData, **fields),))
    return fill(
        request_class(key, version),
        cluster_id=config.cluster_id,
        voter_id=-1 if voter is None else voter.node_id,
        topics=(topic,),
        leader_endpoints=endpoints,
    )


def _voter_change(
    request: VoterChangeRequest, version: int, config: RaftConfig, module: Any
) -> Any:
    key = request.voter if isinstance(request, RemoveVoterRequest) else request.voter.key
    fields: dict[str, Any] = {
        "cluster_id": config.cluster_id,
        "voter_id": key.node_id,
        "voter_directory_id": key.directory_id,
    }
    if not isinstance(request, RemoveVoterRequest):
        fields["listeners"] = tuple(
            module.Listener(name=name, host=host, port=port)
            for name, (host, port) in request.voter.endpoints.items()
        )
    if isinstance(request, AddVoterRequest):
        fields["timeout"] = millis(request.timeout_ms)
        if version >= 1:
            fields["ack_when_committed"] = request.until_committed
    elif isinstance(request, UpdateVoterRequest):
        fields["current_leader_epoch"] = request.epoch
        fields["k_raft_version_feature"] = module.KRaftVersionFeature(
            min_supported_version=request.voter.min_kraft_version,
            max_supported_version=request.voter.max_kraft_version,
        )
    return fill(request_class(API_KEYS[type(request)], version), **fields)


# Responses


def decode(request: Request, version: int, body: memoryview) -> Response:
    """The answer to `request`. Raises DecodeError, or Refused with the error's name."""
    if isinstance(request, FetchRequest):
        return _decode_fetch(request, version, body)
    entity = decode_body(response_class(API_KEYS[type(request)], version), body, 0, MAX_ELEMENTS)
    if isinstance(request, AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest):
        return _decode_voter_change(entity)
    if entity.error_code != ErrorCode.none:
        raise _refused(entity.error_code)
    try:
        (topic,) = entity.topics
        (part,) = topic.partitions
    except ValueError:
        raise Refused("the answer isn't about one partition") from None
    error = part.error_code
    endpoints = getattr(entity, "node_endpoints", ())
    if isinstance(request, FetchSnapshotRequest):
        return FetchSnapshotResponse(
            error,
            part.current_leader.leader_id,
            part.current_leader.leader_epoch,
            OffsetAndEpoch(part.snapshot_id.end_offset, part.snapshot_id.epoch),
            part.position,
            part.size,
            len(part.unaligned_records or b""),
            part.unaligned_records,
            _address_among(endpoints, part.current_leader.leader_id),
        )
    leader_id, epoch = part.leader_id, part.leader_epoch
    address = _address_among(endpoints, leader_id)
    if isinstance(request, VoteRequest):
        return VoteResponse(error, leader_id, epoch, part.vote_granted, address)
    if isinstance(request, BeginEpochRequest):
        return BeginEpochResponse(error, leader_id, epoch, address)
    return EndEpochResponse(error, leader_id, epoch, address)


def _address_among(endpoints: Iterable[Any], leader_id: int) -> Address | None:
    """Where the sender says that the leader listens, None if it doesn't."""
    return next((address_of(e.host, e.port) for e in endpoints if e.node_id == leader_id), None)


def address_of(host: str, port: int) -> Address | None:
    """An address as others give it; None where there is none in it."""
    return (host, port) if host and 0 < port < 65536 else None


def _decode_voter_change(entity: Any) -> VoterChangeResponse:
    leader = getattr(entity, "current_leader", None)
    message = getattr(entity, "error_message", None)
    if leader is None:
        return VoterChangeResponse(entity.error_code, -1, -1, message)
    return VoterChangeResponse(
        entity.error_code,
        leader.leader_id,
        leader.leader_epoch,
        message,
        address_of(leader.host, leader.port),
    )


def _refused(error: ErrorCode) -> Refused:
    kind = OtherCluster if error is ErrorCode.inconsistent_cluster_id else Refused
    return kind(error.name)


def _decode_fetch(request: FetchRequest, version: int, body: memoryview) -> FetchResponse:
    answer = hot_fetch_response.decode_fetch_response(version, body, MAX_ELEMENTS)
    if answer.error_code:
        raise _refused(ErrorCode(answer.error_code))
    try:
        (topic,) = answer.topics
        (part,) = topic.partitions
        error = ErrorCode(part.error_code)
    except ValueError:
        raise Refused("the answer isn't about one partition") from None
    leader_id, epoch = part.current_leader or (-1, -1)
    diverging = snapshot = None
    if part.diverging_epoch is not None and part.diverging_epoch[1] >= 0:
        diverging = OffsetAndEpoch(part.diverging_epoch[1], part.diverging_epoch[0])
    if part.snapshot_id is not None and part.snapshot_id[0] >= 0:
        snapshot = OffsetAndEpoch(*part.snapshot_id)
    records = None
    if part.records:
        data = part.records[0]
        records = describe_fetched(
            data, request.offset, last_epoch=request.last_epoch, epoch=request.epoch
        )
        if records is None and len(data):
            raise DecodeError(f"fetched records at offset {request.offset} aren't sound")
    return FetchResponse(
        error,
        leader_id,
        epoch,
        part.high_watermark,
        diverging,
        snapshot,
        None,
        records,
        _address_among(answer.node_endpoints, leader_id),
    )
