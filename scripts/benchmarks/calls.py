"""Kafka requests to controllers over plain sockets: one call at a time, no client's habits."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from benchmarks.servers import BenchFailed
from wire.apis import ApiKey, ErrorCode
from wire.messages import (
    RequestHeader,
    decode_response,
    encode_request,
    fill,
    request_class,
    request_module,
)

CALL_TIMEOUT_S = 10.0
PAUSE_S = 0.02
CREATE_TOPICS_VERSION = 5
# A broker that exists on paper: topics need one to be placed on, and nobody talks to it.
PAPER_BROKER = 900
_FEATURES = (("metadata.version", 1, 27), ("kraft.version", 0, 1), ("group.version", 0, 1))


class Caller:
    """One connection to one node. OSError where it ends."""

    def __init__(self, address: str, timeout_s: float = CALL_TIMEOUT_S) -> None:
        host, port = address.rsplit(":", 1)
        self.address = address
        self.socket = socket.create_connection((host, int(port)), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation = 0
        self._asked = (ApiKey.API_VERSIONS, 0)

    def call(self, key: ApiKey, version: int, /, **fields: Any) -> Any:
        """Sends a request with these fields; the response's entity."""
        self.send(key, version, **fields)
        return self.receive()

    def receive(self) -> Any:
        """The answer to what was sent last."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return decode_response(*self._asked, memoryview(self._exactly(size)))[1]

    def send(self, key: ApiKey, version: int, /, **fields: Any) -> None:
        """Sends a request and leaves its answer to be read."""
        self._correlation += 1
        self._asked = (key, version)
        body = fill(request_class(key, version), **fields)
        header = RequestHeader(key, version, self._correlation, "bench")
        self.socket.sendall(encode_request(header, body))

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionResetError(f"{self.address} closed the connection")
            data += part
        return bytes(data)

    def close(self) -> None:
        """Ends the connection."""
        self.socket.close()

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def topics_of(names: Iterable[str], partitions: int = 1) -> dict[str, Any]:
    """The fields of a CreateTopics request for topics of one replica."""
    module = request_module(ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION)
    return {
        "topics": tuple(
            fill(
                module.CreatableTopic,
                name=name,
                num_partitions=partitions,
                replication_factor=1,
                assignments=(),
                configs=(),
            )
            for name in names
        ),
        "timeout": timedelta(seconds=CALL_TIMEOUT_S),
        "validate_only": False,
    }


def create_topics(caller: Caller, names: Sequence[str]) -> None:
    """Creates them all; BenchFailed where one is refused."""
    answer = caller.call(ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION, **topics_of(names))
    for topic in answer.topics:
        if topic.error_code not in (ErrorCode.none, ErrorCode.topic_already_exists):
            raise BenchFailed(f"{caller.address}: topic {topic.name}: {topic.error_code.name}")


def quorum_of(caller: Caller) -> Any | None:
    """What DescribeQuorum says of `__cluster_metadata`; None where this node doesn't lead."""
    module = request_module(ApiKey.DESCRIBE_QUORUM, 1)
    topic = fill(
        module.TopicData,
        topic_name="__cluster_metadata",
        partitions=(fill(module.PartitionData, partition_index=0),),
    )
    answer = caller.call(ApiKey.DESCRIBE_QUORUM, 1, topics=(topic,))
    if answer.error_code != ErrorCode.none or not answer.topics:
        return None
    part = answer.topics[0].partitions[0]
    return part if part.error_code == ErrorCode.none else None


def register_paper_broker(caller: Caller, cluster_id: str) -> None:
    """Registers a broker and unfences it; it stays so for the session's time."""
    key, version = ApiKey.BROKER_REGISTRATION, 4
    module = request_module(key, version)
    answer = caller.call(
        key,
        version,
        broker_id=PAPER_BROKER,
        cluster_id=cluster_id,
        incarnation_id=UUID(int=(1 << 80) + PAPER_BROKER),
        listeners=(
            fill(module.Listener, name="PLAINTEXT", host="127.0.0.1", port=9, security_protocol=0),
        ),
        features=tuple(
            fill(module.Feature, name=name, min_supported_version=low, max_supported_version=high)
            for name, low, high in _FEATURES
        ),
        rack=None,
        log_dirs=(UUID(int=(1 << 90) + PAPER_BROKER),),
    )
    if answer.error_code != ErrorCode.none:
        raise BenchFailed(f"{caller.address}: the broker is refused: {answer.error_code.name}")
    deadline = time.monotonic() + CALL_TIMEOUT_S
    while True:
        beat = caller.call(
            ApiKey.BROKER_HEARTBEAT,
            1,
            broker_id=PAPER_BROKER,
            broker_epoch=answer.broker_epoch,
            current_metadata_offset=answer.broker_epoch + 1_000_000,
            want_fence=False,
            want_shut_down=False,
        )
        if beat.error_code == ErrorCode.none and not beat.is_fenced:
            return
        if time.monotonic() > deadline:
            raise BenchFailed(f"{caller.address}: the broker stays fenced: {beat.error_code.name}")
        time.sleep(PAUSE_S)
