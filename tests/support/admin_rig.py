"""What the tests of the Admin service share: an image, a controller that answers, a context."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import grpc

from admin.errors import DETAILS_KEY
from admin.ports import AdminPorts, WatchedRecord
from admin.service import AdminService
from admin.stubs import admin_pb2 as pb
from metadata.image import EMPTY, MetadataImage
from metadata.records import encode
from metadata.records.types import (
    ConfigRecord,
    Endpoint,
    Feature,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from net.server import FeatureView
from wire.errors import ErrorCode, KafkaError
from wire.messages import decode_body, encode_body, request_class, request_module, response_module

TOPIC_ID = UUID(int=0x1234)
DIRECTORY = UUID(int=0x5678 << 64)


def records() -> list[Any]:
    return [
        FeatureLevelRecord(name="metadata.version", feature_level=25),
        RegisterBrokerRecord(
            broker_id=1,
            incarnation_id=UUID(int=99 << 64),
            broker_epoch=5,
            end_points=(
                Endpoint(name="PLAINTEXT", host="localhost", port=9092, security_protocol=0),
            ),
            features=(
                Feature(name="metadata.version", min_supported_version=7, max_supported_version=25),
            ),
            rack="r1",
            fenced=False,
            log_dirs=(DIRECTORY,),
        ),
        TopicRecord(name="orders", topic_id=TOPIC_ID),
        PartitionRecord(
            partition_id=0,
            topic_id=TOPIC_ID,
            replicas=(1, 2),
            isr=(1,),
            leader=1,
            leader_epoch=3,
            partition_epoch=4,
            directories=(DIRECTORY, DIRECTORY),
            eligible_leader_replicas=(2,),
        ),
        PartitionRecord(
            partition_id=1,
            topic_id=TOPIC_ID,
            replicas=(2,),
            isr=(2,),
            removing_replicas=(2,),
            adding_replicas=(1,),
            leader=-1,
            leader_epoch=0,
            partition_epoch=0,
        ),
        TopicRecord(name="audit", topic_id=UUID(int=0x99)),
        ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="5000"),
        ConfigRecord(resource_type=4, resource_name="", name="log.retention.ms", value="7000"),
        ConfigRecord(resource_type=4, resource_name="1", name="message.max.bytes", value="99"),
        ConfigRecord(resource_type=4, resource_name="1", name="nobody.knows", value="secret"),
    ]


def image() -> MetadataImage:
    made = EMPTY
    for record in records():
        made = made.apply(record)
    return made.at(41, 7, 1_700_000_000_000)


class Controller:
    """Answers Kafka requests: `answers[api_key](request entity, response module)`.

    Each request goes through its bytes, so that what can't be encoded is found here.
    """

    def __init__(self, version: dict[int, int] | None = None) -> None:
        self.answers: dict[int, Callable[[Any, Any], Any]] = {}
        self.seen: list[Any] = []
        self.timeouts: list[int] = []
        self.error: Exception | None = None
        self.version = {19: 7, 20: 6, 37: 3, 44: 1, 43: 2, 64: 0, 55: 2, 57: 2}
        self.version |= {80: 1, 81: 0} | (version or {})

    async def __call__(self, api_key: int, build: Any, timeout_ms: int) -> Any:
        self.timeouts.append(timeout_ms)
        if self.error is not None:
            raise self.error
        version = self.version[int(api_key)]
        entity = build(version, request_module(api_key, version))
        request = decode_body(request_class(api_key, version), encode_body(entity))
        self.seen.append(request)
        return self.answers[int(api_key)](request, response_module(api_key, version))


class ListWatch:
    """A watch source over a list; it ends, waits for ever, or raises after the last record."""

    def __init__(self) -> None:
        self.records = [
            WatchedRecord(n, 7, 1000 + n, encode(record)) for n, record in enumerate(records())
        ]
        self.start = 0
        self.end: Exception | None = None
        self.closed = 0
        self.taken = 0

    async def iterate(self, from_offset: int):
        if from_offset < self.start:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"offset {from_offset}: the log starts at {self.start}",
            )
        try:
            for record in self.records:
                if record.offset >= from_offset:
                    self.taken += 1
                    yield record
            if self.end is not None:
                raise self.end
            await asyncio.Event().wait()
        finally:
            self.closed += 1


class Rig:
    def __init__(self, **version: int) -> None:
        self.controller = Controller()
        self.watch = ListWatch()
        self.image = image()
        self.confirmed = 0
        self.confirm_error: Exception | None = None

        async def confirm_read() -> int:
            if self.confirm_error is not None:
                raise self.confirm_error
            self.confirmed += 1
            return 42

        self.ports = AdminPorts(
            cluster_id="the-cluster",
            image=lambda: self.image,
            controller_call=self.controller,
            confirm_read=confirm_read,
            features=lambda: FeatureView(
                {"metadata.version": (7, 25)}, {"metadata.version": 25}, 41
            ),
            active_controller=lambda: 3001,
            watch=self.watch,
        )
        self.errors: list[dict[str, Any]] = []
        self.service = AdminService(self.ports, watch_stall_ms=200, log=self)

    def error(self, event: str, **fields: Any) -> None:
        self.errors.append({"event": event, **fields})

    def call(self, method: str, request: Any, *, left_s: float | None = None) -> Any:
        """The response, or what `context.abort` was told, as Aborted."""

        async def main() -> Any:
            context = Context(left_s)
            return await getattr(self.service, method)(request, context)

        return asyncio.run(main())


class Aborted(Exception):
    def __init__(self, status: grpc.StatusCode, details: str, trailers: Any) -> None:
        super().__init__(f"{status.name}: {details}")
        self.status = status
        self.details = details
        found = dict(trailers)[DETAILS_KEY]
        message = pb.StatusDetails()
        message.ParseFromString(found)
        assert message.code == status.value[0]
        self.error = pb.KafkaError()
        assert message.details[0].Unpack(self.error)


class Context:
    """What the service uses of gRPC's context."""

    def __init__(self, left_s: float | None = None, take: int = 10**9) -> None:
        self.left_s = left_s
        self.written: list[Any] = []
        self.take = take
        self.headers = 0

    def time_remaining(self) -> float | None:
        return self.left_s

    async def abort(self, status: Any, details: str, trailers: Any) -> Any:
        raise Aborted(status, details, trailers)

    async def send_initial_metadata(self, metadata: Any) -> None:
        self.headers += 1

    async def write(self, message: Any) -> None:
        if len(self.written) >= self.take:
            await asyncio.Event().wait()
        self.written.append(message)
