"""The APIs that only the active controller can answer, sent on to it inside an Envelope (KIP-590).

CreateTopics 2-7, DeleteTopics 1-6, AlterConfigs 0-2, CreatePartitions 0-3, ElectLeaders 0-2,
IncrementalAlterConfigs 0-1, UpdateFeatures 0-2, UnregisterBroker 0, AddRaftVoter 0-1,
RemoveRaftVoter 0. A request is held and repeated through a failover until its own timeout
(request.timeout.ms where it names none), and is then answered REQUEST_TIMED_OUT. The client's
correlation id goes along, so its answer comes back as is. DescribeQuorum 0-2 is the quorum's own
API: it is asked again, on the controller's listener.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address
from struct import Struct
from typing import Any

from broker.context import BrokerContext
from net.controller_channel import ControllerUnreachable
from net.errors import UnsupportedVersion
from net.handlers import Api, Frame, Request
from wire.apis import ApiKey, ErrorCode
from wire.errors import KafkaError
from wire.messages import fill, millis, request_header, response_module
from wire.reader import MAX_ELEMENTS, MAX_NAMED

_SIZE = Struct(">i")
# DefaultPrincipalData v0 of User:ANONYMOUS, after its two bytes of version.
_ANONYMOUS = b"\x00\x00\x05User\x0aANONYMOUS\x00\x00"
_QUORUM_ELEMENTS = 10  # there is one topic with one partition to be asked for

Refuse = Callable[[Any, Any, ErrorCode, str], Any]


def apis(context: BrokerContext) -> list[Api]:
    """The forwarded APIs with the versions that the controller serves."""

    def forwarded(
        key: ApiKey, low: int, high: int, refuse: Refuse, max_elements: int = MAX_ELEMENTS
    ) -> Api:
        return Api(
            key,
            low,
            high,
            lambda request: _forward(context, request, refuse),
            max_elements=max_elements,
        )

    return [
        forwarded(ApiKey.CREATE_TOPICS, 2, 7, _refuse_create_topics, MAX_NAMED),
        forwarded(ApiKey.DELETE_TOPICS, 1, 6, _refuse_delete_topics),
        forwarded(ApiKey.ALTER_CONFIGS, 0, 2, _refuse_alter_configs),
        forwarded(ApiKey.CREATE_PARTITIONS, 0, 3, _refuse_create_partitions, MAX_NAMED),
        forwarded(ApiKey.ELECT_LEADERS, 0, 2, _refuse_elect_leaders, MAX_NAMED),
        forwarded(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, _refuse_incremental_alter_configs),
        Api(
            ApiKey.DESCRIBE_QUORUM,
            0,
            2,
            lambda request: _relay_describe_quorum(context, request),
            max_elements=_QUORUM_ELEMENTS,
        ),
        forwarded(ApiKey.UPDATE_FEATURES, 0, 2, _refuse_update_features),
        forwarded(ApiKey.UNREGISTER_BROKER, 0, 0, _refuse_unregister_broker),
        forwarded(ApiKey.ADD_RAFT_VOTER, 0, 1, _refuse_voter_change),
        forwarded(ApiKey.REMOVE_RAFT_VOTER, 0, 0, _refuse_voter_change),
    ]


async def send_enveloped(
    context: BrokerContext, request_bytes: bytes, client_host: bytes, timeout_ms: int
) -> bytes:
    """The active controller's response, header included, to a request, header included.

    Raises KafkaError: REQUEST_TIMED_OUT when no controller answered in time, or what the
    controller made of the envelope.
    """

    def build(version: int, module: Any) -> Any:
        return module.EnvelopeRequest(
            request_data=request_bytes,
            request_principal=_ANONYMOUS,
            client_host_address=client_host,
        )

    try:
        answer = await context.forwarding.request(ApiKey.ENVELOPE, build, timeout_ms)
    except (ControllerUnreachable, UnsupportedVersion) as error:
        raise KafkaError(ErrorCode.request_timed_out, f"the controller gave {error}") from error
    if answer.error_code is not ErrorCode.none:
        raise KafkaError(answer.error_code, "the controller refused the forwarded request")
    response: bytes = answer.response_data or b""
    return response


def _forward(context: BrokerContext, request: Request, refuse: Refuse) -> Any:
    entity = request.entity()
    timeout = getattr(entity, "timeout", None)
    timeout_ms = context.config.request_timeout_ms
    if timeout is not None:
        timeout_ms = max(0, round(timeout.total_seconds() * 1000))
    data = request_header(request.header) + bytes(request.body)
    host = _client_host(request.connection.peer)
    return _send(context, request.header, entity, data, host, timeout_ms, refuse)


async def _send(
    context: BrokerContext,
    header: Any,
    entity: Any,
    data: bytes,
    client_host: bytes,
    timeout_ms: int,
    refuse: Refuse,
) -> Any:
    try:
        response = await send_enveloped(context, data, client_host, timeout_ms)
    except KafkaError as error:
        module = response_module(header.api_key, header.api_version)
        return refuse(module, entity, error.code, error.message)
    return Frame([_SIZE.pack(len(response)), response])


def _relay_describe_quorum(context: BrokerContext, request: Request) -> Any:
    return _describe_quorum(context, request.entity(), request.api_version)


async def _describe_quorum(context: BrokerContext, asked: Any, version: int) -> Any:
    def build(_: int, m: Any) -> Any:
        return m.DescribeQuorumRequest(
            topics=tuple(
                m.TopicData(
                    topic_name=topic.topic_name,
                    partitions=tuple(
                        m.PartitionData(partition_index=p.partition_index) for p in topic.partitions
                    ),
                )
                for topic in asked.topics
            )
        )

    try:
        answer = await context.forwarding.request(
            ApiKey.DESCRIBE_QUORUM, build, context.config.request_timeout_ms, max_version=version
        )
    except (ControllerUnreachable, UnsupportedVersion) as error:
        return _quorum_error(version, ErrorCode.request_timed_out, str(error))
    if answer.__version__ != version:
        return _quorum_error(
            version, ErrorCode.unsupported_version, "the controller speaks an older version"
        )
    return answer


def _quorum_error(version: int, code: ErrorCode, message: str) -> Any:
    m: Any = response_module(ApiKey.DESCRIBE_QUORUM, version)
    return fill(
        m.DescribeQuorumResponse, error_code=code, error_message=message, topics=(), nodes=()
    )


def _client_host(peer: Any) -> bytes:
    try:
        return ip_address(peer[0]).packed
    except (ValueError, TypeError, IndexError):
        return b"\x7f\x00\x00\x01"


def _refuse_create_topics(m: Any, request: Any, code: ErrorCode, message: str) -> Any:
    topics = tuple(
        fill(
            m.CreatableTopicResult,
            name=topic.name,
            topic_id=None,
            error_code=code,
            error_message=message,
            configs=(),
        )
        for topic in request.topics
    )
    return m.CreateTopicsResponse(throttle_time=millis(0), topics=topics)


def _refuse_delete_topics(m: Any, request: Any, code: ErrorCode, message: str) -> Any:
    if hasattr(request, "topics"):
        named = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        named = [(name, None) for name in request.topic_names]
    responses = tuple(
        fill(
            m.DeletableTopicResult,
            name=name,
            topic_id=topic_id,
            error_code=code,
            error_message=message,
        )
        for name, topic_id in named
    )
    return m.DeleteTopicsResponse(throttle_time=millis(0), responses=responses)


def _refuse_create_partitions(m: Any, request: Any, code: ErrorCode, message: str) -> Any:
    results = tuple(
        m.CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)
        for topic in request.topics
    )
    return m.CreatePartitionsResponse(throttle_time=millis(0), results=results)


def _config_results(m: Any, request: Any, code: ErrorCode, message: str) -> Any:
    return tuple(
        m.AlterConfigsResourceResponse(
            error_code=code,
            error_message=message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource in request.resources
    )


def _refuse_alter_configs(m: Any, request: Any, code: ErrorCode, message: str) -> Any:
    return m.AlterConfigsResponse(
        throttle_time=millis(0), responses=_config_results(m, request, code, message)
    )


def _refuse_incremental_alter_configs(m: Any, request: Any, code: ErrorCode, message: str) -> Any:
    return m.IncrementalAlterConfigsResponse(
        throttle_time=millis(0), responses=_config_results(m, request, code, message)
    )


def _refuse_elect_leaders(m: Any, request: Any, code: ErrorCode, message: str) -> Any:
    results = tuple(
        m.ReplicaElectionResult(
            topic=topic.topic,
            partition_result=tuple(
                m.PartitionResult(partition_id=p, error_code=code, error_message=message)
                for p in topic.partitions
            ),
        )
        for topic in request.topic_partitions or ()
    )
    return fill(
        m.ElectLeadersResponse,
        throttle_time=millis(0),
        error_code=code,
        replica_election_results=results,
    )


def _refuse_update_features(m: Any, request: Any, code: ErrorCode, message: str) -> Any:
    return fill(
        m.UpdateFeaturesResponse,
        throttle_time=millis(0),
        error_code=code,
        error_message=message,
        results=(),
    )


def _refuse_unregister_broker(m: Any, request: Any, code: ErrorCode, message: str) -> Any:
    return m.UnregisterBrokerResponse(
        throttle_time=millis(0), error_code=code, error_message=message
    )


def _refuse_voter_change(m: Any, request: Any, code: ErrorCode, message: str) -> Any:
    name = type(request).__name__.replace("Request", "Response")
    fields = {"throttle_time": millis(0), "error_code": code, "error_message": message}
    return getattr(m, name)(**fields)
