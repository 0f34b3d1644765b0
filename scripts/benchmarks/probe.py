"""Waits for a cluster that isn't there yet: `probe.py '{"bootstrap": …, "replicas": …}'`.

Prints "waiting" once its client exists, then, when a record in a topic with that many replicas is
acknowledged at acks=all, the monotonic time of the acknowledgement. The topic is asked for over a
plain socket: librdkafka's admin client sits out its time limit when the first answer is "not yet".
"""

from __future__ import annotations

import json
import socket
import sys
import time
from datetime import timedelta
from typing import Any

from confluent_kafka import Producer

from wire.apis import ApiKey, ErrorCode
from wire.messages import (
    RequestHeader,
    decode_response,
    encode_request,
    fill,
    request_class,
    request_module,
)

TIMEOUT_S = 120.0
CALL_TIMEOUT_S = 10.0
PAUSE_S = 0.01
CREATE_TOPICS_VERSION = 5
IMPATIENT = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 20,
    "topic.metadata.refresh.fast.interval.ms": 20,
    "broker.address.family": "v4",
    "log_level": 0,
}


def create_topic(address: str, request: bytes, deadline: float) -> None:
    """Asks again until the cluster makes the topic."""
    host, port = address.rsplit(":", 1)
    while True:
        try:
            if _ask(host, int(port), request) in (
                ErrorCode.none,
                ErrorCode.topic_already_exists,
            ):
                return
        except OSError:
            pass
        if time.monotonic() > deadline:
            raise TimeoutError("the topic was not created")
        time.sleep(PAUSE_S)


def _request(replicas: int) -> bytes:
    key, version = ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION
    module = request_module(key, version)
    topic = fill(
        module.CreatableTopic,
        name="first",
        num_partitions=replicas,
        replication_factor=replicas,
        assignments=(),
        configs=(),
    )
    body = fill(
        request_class(key, version),
        topics=(topic,),
        timeout=timedelta(seconds=CALL_TIMEOUT_S),
        validate_only=False,
    )
    return encode_request(RequestHeader(key, version, 1, "probe"), body)


def _ask(host: str, port: int, request: bytes) -> ErrorCode:
    with socket.create_connection((host, port), CALL_TIMEOUT_S) as connection:
        connection.sendall(request)
        size = int.from_bytes(_exactly(connection, 4), "big")
        answer = memoryview(_exactly(connection, size))
    _, entity = decode_response(ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION, answer)
    return ErrorCode(entity.topics[0].error_code)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionResetError("closed")
        data += part
    return data


def main() -> int:
    """One acknowledged record."""
    job = json.loads(sys.argv[1])
    settings = {**IMPATIENT, "bootstrap.servers": job["bootstrap"]}
    producer = Producer({**settings, "acks": "all", "linger.ms": 0})
    acknowledged: list[float] = []

    def delivered(error: Any, _: Any) -> None:
        if error is None:
            acknowledged.append(time.monotonic())

    request = _request(job["replicas"])
    print("waiting", flush=True)
    deadline = time.monotonic() + TIMEOUT_S
    create_topic(job["bootstrap"].split(",")[0], request, deadline)
    while not acknowledged and time.monotonic() < deadline:
        producer.produce("first", b"first", partition=0, on_delivery=delivered)
        producer.flush(TIMEOUT_S)
    if not acknowledged:
        print("no record was acknowledged", file=sys.stderr)
        return 1
    print(acknowledged[0], flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
