"""The Python client of the Admin service, which the command line is made of."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import grpc

from admin.errors import from_message, from_rpc_error, says_why, was_sent
from admin.stubs import admin_pb2 as pb
from admin.stubs import admin_pb2_grpc
from wire.addresses import split_target
from wire.errors import ErrorCode, KafkaError
from world.env import Env
from world.real import real_env

__all__ = ["AdminClient"]

_BACKOFF_MS = 50
_BACKOFF_MAX_MS = 1000
# A service that stops cancels what is still at work in it; nobody here cancels a call.
_GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
_READS = ("Describe", "List", "Watch")
_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # The time that one attempt to connect has, whatever the name says.
    ("grpc.min_reconnect_backoff_ms", 2000),
    # A watch is silent for long: this notices a controller that is gone without a word.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5000),
    ("grpc.max_receive_message_length", 256 * 1024 * 1024),
)


class AdminClient:
    """Calls the Admin service of any of several controllers.

    `addresses` are `host:port`, as a sequence or separated by commas. A controller that can't be
    reached, or can't reach an active one, is left for the next, with backoff, until
    `timeout_ms`. Every failure is a KafkaError; that of a single item too, in methods that take
    one item. A change whose answer got lost is sent again and may then meet its own effect
    (TOPIC_ALREADY_EXISTS). Use it from one thread, and as a context manager or with `close`.

    `on_wait` is told, in a sentence, why a call tries all addresses again, each time another
    reason holds it up: the call may go on for all of its time, unless `on_wait` raises. `source`
    is what errors call the place that the addresses come from. `life_ms`: no call goes on for
    longer than that after the client was made.
    """

    def __init__(
        self,
        addresses: str | Sequence[str],
        *,
        timeout_ms: int = 30_000,
        env: Env | None = None,
        on_wait: Callable[[str], None] | None = None,
        source: str = "",
        life_ms: int | None = None,
    ) -> None:
        listed = addresses.split(",") if isinstance(addresses, str) else list(addresses)
        self.addresses = [address.strip() for address in listed if address.strip()]
        for address in self.addresses:
            if split_target(address) is None:
                named = f" of {source}" if source else ""
                raise KafkaError(
                    ErrorCode.invalid_request,
                    f"address {address!r}{named}: must be HOST:PORT, the port from 1 to 65535",
                )
        if not self.addresses:
            raise KafkaError(
                ErrorCode.invalid_request,
                f"no address was given{f' by {source}' if source else ''}: must be HOST:PORT",
            )
        self._source = f" ({source})" if source else ""
        self._timeout_ms = timeout_ms
        self._env = real_env() if env is None else env
        self._ends_ms = None if life_ms is None else self._env.clock.now_ms() + life_ms
        self._on_wait = on_wait
        self._channels: dict[str, Any] = {}
        self._turn = 0

    def __enter__(self) -> AdminClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    # Topics.

    def create_topic(
        self,
        name: str,
        partitions: int = 0,
        replication_factor: int = 0,
        *,
        configs: Mapping[str, str] | None = None,
        assignments: Mapping[int, Sequence[int]] | None = None,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> str:
        """Creates a topic (0: the cluster's default) and returns its id, "" if only validated."""
        topic = pb.NewTopic(
            name=name,
            partitions=_int32("partitions", partitions, ErrorCode.invalid_partitions),
            replication_factor=_int32(
                "replication factor", replication_factor, ErrorCode.invalid_replication_factor
            ),
            assignments=[
                pb.ReplicaAssignment(partition=n, replicas=replicas)
                for n, replicas in sorted((assignments or {}).items())
            ],
            configs=configs or {},
        )
        request = pb.CreateTopicsRequest(topics=[topic], validate_only=validate_only)
        result = self.call("CreateTopics", request, timeout_ms).results[0]
        _raise(result)
        return str(result.topic_id)

    def delete_topic(self, name: str, *, timeout_ms: int | None = None) -> None:
        """Deletes a topic."""
        request = pb.DeleteTopicsRequest(names=[name])
        _raise(self.call("DeleteTopics", request, timeout_ms).results[0])

    def create_partitions(
        self,
        name: str,
        count: int,
        *,
        assignments: Sequence[Sequence[int]] = (),
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Raises a topic's number of partitions to `count`."""
        topic = pb.NewPartitions(
            name=name,
            count=_int32("partitions", count, ErrorCode.invalid_partitions),
            assignments=[pb.NewPartitionReplicas(replicas=one) for one in assignments],
        )
        request = pb.CreatePartitionsRequest(topics=[topic], validate_only=validate_only)
        _raise(self.call("CreatePartitions", request, timeout_ms).results[0])

    def list_topics(self, *, linearizable: bool = False) -> list[str]:
        """The names of all topics, sorted."""
        response = self.call("ListTopics", pb.ListTopicsRequest(linearizable=linearizable))
        return [topic.name for topic in response.topics]

    def describe_topics(
        self, names: Sequence[str] = (), *, linearizable: bool = False
    ) -> dict[str, Any]:
        """The named topics, or all, in the form of `topics` in STATE (docs of `audit state`)."""
        request = pb.DescribeTopicsRequest(names=names, linearizable=linearizable)
        topics = {}
        for topic in self.call("DescribeTopics", request).topics:
            _raise(topic)
            topics[topic.name] = {
                "id": topic.topic_id,
                "partitions": {str(one.partition): _partition(one) for one in topic.partitions},
            }
        return topics

    # Configs.

    def describe_config(
        self, resource_type: int, name: str, *, linearizable: bool = False
    ) -> list[dict[str, Any]]:
        """What is set for a resource (2 topic, 4 broker): name, value, source, sensitive."""
        resource = pb.ConfigResource(type=_enum(resource_type), name=name)
        request = pb.DescribeConfigsRequest(resources=[resource], linearizable=linearizable)
        result = self.call("DescribeConfigs", request).results[0]
        _raise(result)
        return [
            {
                "name": one.name,
                "value": None if one.sensitive else one.value,
                "source": pb.ConfigSource.Name(one.source).removeprefix("CONFIG_SOURCE_"),
                "sensitive": one.sensitive,
                "read_only": one.read_only,
            }
            for one in result.configs
        ]

    def alter_config(
        self,
        resource_type: int,
        name: str,
        *,
        set: Mapping[str, str] | None = None,
        delete: Sequence[str] = (),
        append: Mapping[str, str] | None = None,
        subtract: Mapping[str, str] | None = None,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Changes some configs of a resource in one step; what isn't named stays."""
        changes = [
            *_alterations(pb.ALTER_CONFIG_OPERATION_SET, set),
            *_alterations(pb.ALTER_CONFIG_OPERATION_DELETE, dict.fromkeys(delete, "")),
            *_alterations(pb.ALTER_CONFIG_OPERATION_APPEND, append),
            *_alterations(pb.ALTER_CONFIG_OPERATION_SUBTRACT, subtract),
        ]
        resource = pb.ConfigAlteration(type=_enum(resource_type), name=name, configs=changes)
        request = pb.AlterConfigsRequest(resources=[resource], validate_only=validate_only)
        _raise(self.call("AlterConfigs", request, timeout_ms).results[0])

    # Cluster.

    def describe_cluster(self, *, linearizable: bool = False) -> dict[str, Any]:
        """Cluster id, active controller (None: none known), brokers and controllers."""
        request = pb.DescribeClusterRequest(linearizable=linearizable)
        response = self.call("DescribeCluster", request)
        active = response.active_controller
        return {
            "cluster_id": response.cluster_id,
            "active_controller": None if active < 0 else active,
            "metadata_offset": response.metadata_offset,
            "brokers": [_broker(one) for one in response.brokers],
            "controllers": [_controller(one) for one in response.controllers],
        }

    def describe_quorum(self, *, timeout_ms: int | None = None) -> dict[str, Any]:
        """The metadata quorum as its leader sees it."""
        response = self.call("DescribeQuorum", pb.DescribeQuorumRequest(), timeout_ms)
        return {
            "leader": None if response.leader_id < 0 else response.leader_id,
            "epoch": response.leader_epoch,
            "high_watermark": response.high_watermark,
            "voters": _replicas(response.voters),
            "observers": _replicas(response.observers),
        }

    def add_voter(
        self,
        node_id: int,
        directory: str,
        endpoints: Mapping[str, tuple[str, int]],
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Makes a controller, named by its id and its metadata directory's, one of the voters.
        `endpoints`: its (host, port) by listener name. Returns once that is committed."""
        request = pb.AddVoterRequest(
            id=_int32("node id", node_id, ErrorCode.invalid_request),
            directory=directory,
            endpoints=[
                pb.Endpoint(listener=name, host=host, port=port)
                for name, (host, port) in endpoints.items()
            ],
        )
        self.call("AddVoter", request, timeout_ms)

    def remove_voter(self, node_id: int, directory: str, *, timeout_ms: int | None = None) -> None:
        """Takes a controller out of the voters. Returns once that is committed."""
        number = _int32("node id", node_id, ErrorCode.invalid_request)
        request = pb.RemoveVoterRequest(id=number, directory=directory)
        self.call("RemoveVoter", request, timeout_ms)

    def describe_features(self) -> dict[str, dict[str, int]]:
        """Per feature: min and max supported level, and the finalised one (0: none)."""
        response = self.call("DescribeFeatures", pb.DescribeFeaturesRequest())
        return {
            one.name: {
                "min": one.min_supported,
                "max": one.max_supported,
                "finalized": one.finalized,
            }
            for one in response.features
        }

    def update_features(
        self,
        levels: Mapping[str, int],
        *,
        downgrade: bool = False,
        unsafe: bool = False,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Sets the finalised levels of features, all or none; 0 removes one.

        Levels go up; with `downgrade` down, with `unsafe` too where that may lose metadata.
        """
        request = pb.UpdateFeaturesRequest(
            updates=[
                pb.FeatureUpdate(
                    name=name,
                    level=_int32("level", level, ErrorCode.invalid_update_version),
                    allow_downgrade=downgrade,
                    allow_unsafe_downgrade=downgrade and unsafe,
                )
                for name, level in levels.items()
            ],
            validate_only=validate_only,
        )
        for result in self.call("UpdateFeatures", request, timeout_ms).results:
            _raise(result)

    def elect_leaders(
        self,
        partitions: Mapping[str, Sequence[int]] | None = None,
        *,
        unclean: bool = False,
        timeout_ms: int | None = None,
    ) -> list[dict[str, Any]]:
        """Elects leaders (None: for all partitions); one dict a partition, error None or text."""
        request = pb.ElectLeadersRequest(
            type=pb.ELECTION_TYPE_UNCLEAN if unclean else pb.ELECTION_TYPE_PREFERRED,
            topics=[
                pb.TopicPartitions(topic=topic, partitions=numbers)
                for topic, numbers in (partitions or {}).items()
            ],
        )
        response = self.call("ElectLeaders", request, timeout_ms)
        return [
            {
                "topic": one.topic,
                "partition": one.partition,
                "error": str(from_message(one.error)) if one.HasField("error") else None,
            }
            for one in response.results
        ]

    def unregister_broker(self, broker_id: int, *, timeout_ms: int | None = None) -> None:
        """Removes a broker's registration."""
        number = _int32("broker id", broker_id, ErrorCode.invalid_request)
        self.call("UnregisterBroker", pb.UnregisterBrokerRequest(broker_id=number), timeout_ms)

    def watch(
        self, from_offset: int = 0, *, snapshot_first: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Committed records as they come: offset, epoch, timestamp, type, version, data.

        It goes on at another controller, after the last record seen, when one is lost; a state
        that wasn't read whole then comes again.
        """
        request = pb.WatchRequest(from_offset=from_offset, snapshot_first=snapshot_first)
        state_offset = -1
        failures = 0
        while True:
            stream = self.call("Watch", request, stream=True)
            try:
                for one in stream:
                    failures = 0
                    if request.snapshot_first and state_offset in (-1, one.offset):
                        state_offset = one.offset
                    else:
                        request = pb.WatchRequest(from_offset=one.offset + 1)
                    yield _watched(one)
            except grpc.RpcError as error:
                if error.code() not in _GONE:
                    raise from_rpc_error(error) from None
                self._turn += 1
                failures += 1
                self._pause(failures, self._timeout_ms)
            finally:
                stream.cancel()

    # Calls.

    def call(
        self, method: str, request: Any, timeout_ms: int | None = None, *, stream: bool = False
    ) -> Any:
        """Calls a method of the service by its name; raises KafkaError.

        `timeout_ms` (default: the client's) is for everything, and is told to the service where
        the request has such a field and leaves it 0. A stream has no deadline once it stands.
        """
        clock = self._env.clock
        limit_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        if self._ends_ms is not None:
            limit_ms = max(0, min(limit_ms, self._ends_ms - clock.now_ms()))
        deadline_ms = clock.now_ms() + limit_ms
        failures, told, sent = 0, "", False
        last = KafkaError(ErrorCode.network_exception, "no attempt was made")
        while (left_ms := deadline_ms - clock.now_ms()) > 0:
            address = self.addresses[self._turn % len(self.addresses)]
            try:
                return self._attempt(address, method, request, left_ms, stream)
            except grpc.RpcError as error:
                last, sent = from_rpc_error(error), sent or was_sent(error)
                if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and not says_why(error):
                    break
                if error.code() not in _GONE:
                    raise last from None
            self._turn += 1
            failures += 1
            if failures % len(self.addresses) == 0:
                if self._on_wait is not None and last.message != told:
                    told = last.message
                    self._on_wait(told)
                self._pause(failures // len(self.addresses), deadline_ms - clock.now_ms())
        raise KafkaError(
            last.code,
            f"{method} got no answer within {limit_ms} ms from {', '.join(self.addresses)}"
            f"{self._source}: {last.message}"
            f"{'; it may still be done' if sent and not method.startswith(_READS) else ''}",
        )

    def _attempt(self, address: str, method: str, request: Any, left_ms: int, stream: bool) -> Any:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = grpc.insecure_channel(address, options=_OPTIONS)
        rpc = getattr(admin_pb2_grpc.AdminStub(channel), method)  # type: ignore[no-untyped-call]
        if stream:
            opened = rpc(request)
            # Waits for the headers, which the service sends at once, or for the end.
            opened.initial_metadata()
            if not opened.is_active() and opened.code() == grpc.StatusCode.UNAVAILABLE:
                raise opened
            return opened
        if "timeout_ms" in request.DESCRIPTOR.fields_by_name and request.timeout_ms == 0:
            sent = type(request)()
            sent.CopyFrom(request)
            sent.timeout_ms = min(left_ms, 2**31 - 1)
            request = sent
        # A little longer than the service has, so that its own words arrive first.
        return rpc(request, timeout=left_ms / 1000 + 0.25)

    def _pause(self, round_number: int, left_ms: int) -> None:
        """Waits after all addresses failed, longer each round, a fifth more or less at random."""
        base_ms = min(_BACKOFF_MS << min(round_number - 1, 10), _BACKOFF_MAX_MS)
        wait_ms = min(base_ms * self._env.chance.uniform(0.8, 1.2), left_ms)
        threading.Event().wait(max(wait_ms, 0) / 1000)


def _raise(item: Any) -> None:
    if item.HasField("error"):
        raise from_message(item.error)


def _int32(what: str, value: int, code: ErrorCode) -> int:
    if not -(2**31) <= value < 2**31:
        raise KafkaError(code, f"{what} {value}: does not fit 32 bits")
    return value


def _enum(resource_type: int) -> Any:
    # Proto3 enums are open: a number that is none is the service's to refuse.
    return resource_type


def _alterations(operation: Any, values: Mapping[str, str] | None) -> list[pb.AlterConfig]:
    return [
        pb.AlterConfig(name=name, operation=operation, value=value)
        for name, value in (values or {}).items()
    ]


def _partition(one: Any) -> dict[str, Any]:
    return {
        "replicas": list(one.replicas),
        "isr": list(one.isr),
        "removing": list(one.removing),
        "adding": list(one.adding),
        "elr": list(one.elr),
        "lastKnownElr": list(one.last_known_elr),
        "leader": one.leader,
        "leaderEpoch": one.leader_epoch,
        "partitionEpoch": one.partition_epoch,
        "recovery": one.recovery,
        "directories": list(one.directories),
    }


def _registration(one: Any) -> dict[str, Any]:
    return {
        "id": one.id,
        "incarnation": one.incarnation,
        "endpoints": [[e.listener, e.host, e.port, e.security_protocol] for e in one.endpoints],
        "features": {f.name: [f.min_level, f.max_level] for f in one.features},
    }


def _broker(one: Any) -> dict[str, Any]:
    return _registration(one) | {
        "epoch": one.epoch,
        "rack": one.rack or None,
        "fenced": one.fenced,
        "in_controlled_shutdown": one.in_controlled_shutdown,
        "log_dirs": list(one.log_dirs),
    }


def _controller(one: Any) -> dict[str, Any]:
    return _registration(one)


def _watched(one: Any) -> dict[str, Any]:
    return {
        "offset": one.offset,
        "epoch": one.epoch,
        "timestamp": one.timestamp_ms,
        "type": one.type,
        "version": one.version,
        "data": json.loads(one.json),
    }


def _replicas(told: Sequence[Any]) -> list[dict[str, Any]]:
    """In the same order each time: the leader names them as they have fetched last."""
    return sorted(map(_replica, told), key=lambda one: (one["id"], one["directory"]))


def _replica(one: Any) -> dict[str, Any]:
    return {
        "id": one.id,
        "directory": one.directory,
        "end_offset": one.end_offset,
        "lag_ms": one.lag_ms,
    }
