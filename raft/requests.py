"""The quorum's APIs as served on the controller listener: from Kafka's requests to events.

Vote 0-2, BeginQuorumEpoch 0-1, EndQuorumEpoch 0-1, Fetch 12-18 and FetchSnapshot 0-1 of
`__cluster_metadata`-0; AddRaftVoter 0-1, RemoveRaftVoter 0 and UpdateRaftVoter 0 are in
`voter_apis`. Checked here: cluster id, topic and partition. All else is the core's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from net.handlers import Api, Frame, Later, Request
from raft import messages as msg
from raft.config import TOPIC, RaftConfig
from raft.protocol import FETCH_MIN_VERSION, MAX_ELEMENTS, address_of, directory_of
from raft.voter_apis import VoterApis
from raft.voters import OffsetAndEpoch, ReplicaKey
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.hot import fetch_request as hot_fetch_request
from wire.hot import fetch_response as hot_fetch_response
from wire.hot.primitives import NodeEndpoint
from wire.messages import fill, millis, response_class, response_module
from wire.uuids import METADATA_TOPIC_ID

_NOTHING = millis(0)


class Call(NamedTuple):
    """A request being served, as far as its answer needs it."""

    api_key: int
    version: int
    correlation_id: int
    records_max_bytes: int


class Slice(NamedTuple):
    """Records or snapshot bytes that go into an answer."""

    data: Any
    size: int


class QuorumApis:
    """Handlers. `ask(request, message, call)` tells the core; its reply comes later. `address`
    says where a member can be reached."""

    def __init__(
        self,
        config: RaftConfig,
        address: Callable[[int], tuple[str, int] | None],
        ask: Callable[[Request, msg.Request, Call], Later],
    ) -> None:
        self._config = config
        self._address = address
        self._ask = ask
        self._voter_apis = VoterApis(
            config, lambda request, message: ask(request, message, _call(request))
        )

    def apis(self) -> list[Api]:
        return [
            Api(ApiKey.FETCH, FETCH_MIN_VERSION, 18, self._fetch, max_elements=MAX_ELEMENTS),
            Api(ApiKey.VOTE, 0, 2, self._vote, max_elements=MAX_ELEMENTS),
            Api(ApiKey.BEGIN_QUORUM_EPOCH, 0, 1, self._begin_epoch, max_elements=MAX_ELEMENTS),
            Api(ApiKey.END_QUORUM_EPOCH, 0, 1, self._end_epoch, max_elements=MAX_ELEMENTS),
            Api(ApiKey.FETCH_SNAPSHOT, 0, 1, self._fetch_snapshot, max_elements=MAX_ELEMENTS),
            *self._voter_apis.apis(),
        ]

    # Requests

    def _fetch(self, request: Request) -> Any:
        wanted = hot_fetch_request.decode_fetch_request(
            request.api_version, request.body, request.max_elements
        )
        topics = wanted.topics
        error = self._cluster_error(wanted.cluster_id)
        if error is None and (
            len(topics) != 1
            or len(topics[0].partitions) != 1
            or topics[0].partitions[0].partition != 0
            or (topics[0].topic_id or METADATA_TOPIC_ID) != METADATA_TOPIC_ID
            or (topics[0].name or TOPIC) != TOPIC
        ):
            error = ErrorCode.invalid_request
        if error is not None:
            return Frame(
                hot_fetch_response.encode_fetch_response(
                    request.api_version, request.correlation_id, [], error_code=error
                )
            )
        part = topics[0].partitions[0]
        call = Call(
            request.api_key,
            request.api_version,
            request.correlation_id,
            min(wanted.max_bytes, part.max_bytes),
        )
        message = msg.FetchRequest(
            ReplicaKey(wanted.replica_id, directory_of(part.replica_directory_id)),
            part.current_leader_epoch,
            part.fetch_offset,
            part.last_fetched_epoch,
            wanted.max_wait_ms,
            part.high_watermark,
        )
        return self._ask(request, message, call)

    def _vote(self, request: Request) -> Any:
        entity = request.entity()
        part = self._partition(entity)
        if isinstance(part, ErrorCode):
            return self._refusal(request, part)
        voter = None
        if getattr(entity, "voter_id", -1) >= 0:
            voter = ReplicaKey(entity.voter_id, directory_of(part.voter_directory_id))
        directory_id = directory_of(getattr(part, "replica_directory_id", None))
        message = msg.VoteRequest(
            voter,
            part.replica_epoch,
            ReplicaKey(part.replica_id, directory_id),
            OffsetAndEpoch(part.last_offset, part.last_offset_epoch),
            getattr(part, "pre_vote", False),
        )
        return self._ask(request, message, _call(request))

    def _begin_epoch(self, request: Request) -> Any:
        entity = request.entity()
        part = self._partition(entity)
        if isinstance(part, ErrorCode):
            return self._refusal(request, part)
        voter = None
        if getattr(entity, "voter_id", -1) >= 0:
            voter = ReplicaKey(entity.voter_id, directory_of(part.voter_directory_id))
        name = self._config.listener_name
        address = next(
            (
                address_of(end.host, end.port)
                for end in getattr(entity, "leader_endpoints", ())
                if end.name == name
            ),
            None,
        )
        message = msg.BeginEpochRequest(voter, part.leader_id, part.leader_epoch, address)
        return self._ask(request, message, _call(request))

    def _end_epoch(self, request: Request) -> Any:
        part = self._partition(request.entity())
        if isinstance(part, ErrorCode):
            return self._refusal(request, part)
        if request.api_version >= 1:
            successors = tuple(
                ReplicaKey(c.candidate_id, directory_of(c.candidate_directory_id))
                for c in part.preferred_candidates
            )
        else:
            successors = tuple(ReplicaKey(node_id) for node_id in part.preferred_successors)
        message = msg.EndEpochRequest(part.leader_id, part.leader_epoch, successors)
        return self._ask(request, message, _call(request))

    def _fetch_snapshot(self, request: Request) -> Any:
        entity = request.entity()
        part = self._partition(entity)
        if isinstance(part, ErrorCode):
            return self._refusal(request, part)
        snapshot = part.snapshot_id
        message = msg.FetchSnapshotRequest(
            ReplicaKey(
                entity.replica_id, directory_of(getattr(part, "replica_directory_id", None))
            ),
            part.current_leader_epoch,
            OffsetAndEpoch(snapshot.end_offset, snapshot.epoch),
            part.position,
        )
        return self._ask(request, message, _call(request, entity.max_bytes))

    def _cluster_error(self, cluster_id: str | None) -> ErrorCode | None:
        if cluster_id is not None and cluster_id != self._config.cluster_id:
            return ErrorCode.inconsistent_cluster_id
        return None

    def _partition(self, entity: Any) -> Any:
        """The one partition that a request is about, or the error that it gets as a whole."""
        error = self._cluster_error(entity.cluster_id)
        if error is not None:
            return error
        topics = entity.topics
        if len(topics) != 1 or len(topics[0].partitions) != 1:
            return ErrorCode.invalid_request
        topic, part = topics[0], topics[0].partitions[0]
        name = topic.name if hasattr(topic, "name") else topic.topic_name
        index = part.partition if hasattr(part, "partition") else part.partition_index
        if name != TOPIC or index != 0:
            return ErrorCode.invalid_request
        return part

    def _refusal(self, request: Request, error: ErrorCode) -> Any:
        return fill(
            response_class(request.api_key, request.api_version),
            throttle_time=_NOTHING,
            error_code=error,
            topics=(),
        )

    # Answers

    def reply(self, call: Call, response: msg.Response, data: Slice | None) -> Any:
        """The answer as net takes it; `data` are the records or snapshot bytes that go with it."""
        if isinstance(response, msg.FetchResponse):
            return self._fetch_reply(call, response, data)
        if isinstance(response, msg.VoterChangeResponse):
            address = self._address(response.leader_id)
            return self._voter_apis.reply(call.api_key, call.version, response, address)
        module: Any = response_module(call.api_key, call.version)
        common: dict[str, Any] = {
            "error_code": response.error,
            "leader_id": response.leader_id,
            "leader_epoch": response.epoch,
        }
        if isinstance(response, msg.FetchSnapshotResponse):
            topic = self._snapshot_topic(module, response, data)
        else:
            if isinstance(response, msg.VoteResponse):
                common["vote_granted"] = response.granted
            topic = module.TopicData(
                topic_name=TOPIC,
                partitions=(fill(module.PartitionData, partition_index=0, **common),),
            )
        address = self._address(response.leader_id)
        endpoints: tuple[Any, ...] = ()
        if call.version >= 1 and address is not None:
            endpoints = (
                module.NodeEndpoint(node_id=response.leader_id, host=address[0], port=address[1]),
            )
        return fill(
            response_class(call.api_key, call.version),
            throttle_time=_NOTHING,
            error_code=ErrorCode.none,
            topics=(topic,),
            node_endpoints=endpoints,
        )

    def _snapshot_topic(
        self, module: Any, response: msg.FetchSnapshotResponse, data: Slice | None
    ) -> Any:
        part = module.PartitionSnapshot(
            index=0,
            error_code=response.error,
            snapshot_id=module.SnapshotId(
                end_offset=response.snapshot.offset, epoch=response.snapshot.epoch
            ),
            current_leader=module.LeaderIdAndEpoch(
                leader_id=response.leader_id, leader_epoch=response.epoch
            ),
            size=max(response.size, 0),
            position=response.position,
            unaligned_records=b"" if data is None else data.data,
        )
        return module.TopicSnapshot(name=TOPIC, partitions=(part,))

    def _fetch_reply(self, call: Call, response: msg.FetchResponse, data: Slice | None) -> Frame:
        diverging, snapshot = response.diverging, response.snapshot
        part = hot_fetch_response.FetchedPartition(
            index=0,
            error_code=response.error,
            high_watermark=response.high_watermark,
            last_stable_offset=-1,
            log_start_offset=-1,
            records=() if data is None else (data.data,),
            records_size=0 if data is None else data.size,
            diverging_epoch=None if diverging is None else (diverging.epoch, diverging.offset),
            current_leader=(response.leader_id, response.epoch),
            snapshot_id=None if snapshot is None else (snapshot.offset, snapshot.epoch),
        )
        address = self._address(response.leader_id)
        return Frame(
            hot_fetch_response.encode_fetch_response(
                call.version,
                call.correlation_id,
                [hot_fetch_response.FetchedTopic(TOPIC, METADATA_TOPIC_ID, [part])],
                node_endpoints=()
                if address is None
                else (NodeEndpoint(response.leader_id, *address),),
            )
        )


def _call(request: Request, records_max_bytes: int = 0) -> Call:
    return Call(request.api_key, request.api_version, request.correlation_id, records_max_bytes)
