"""The service over real gRPC on a free port, used by the Python client."""

import asyncio
import socket
import threading
import time
from contextlib import contextmanager
from uuid import UUID

import grpc
import pytest
from admin_rig import TOPIC_ID, Rig, image
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from test_admin_changes import create_answer, elect_answer
from test_admin_quorum import quorum_answer

from admin.client import AdminClient
from admin.errors import from_message
from admin.ports import WatchedRecord
from admin.server import SERVICE_NAME, serve_admin
from admin.service import AdminService
from admin.stubs import admin_pb2 as pb
from admin.stubs import admin_pb2_grpc
from metadata.records import encode
from metadata.records.types import TopicRecord
from metadata.state import state_json
from net.errors import ConnectFailed
from wire.errors import ErrorCode, KafkaError
from wire.messages import fill, millis
from wire.uuids import to_text


class Running:
    """A server on its own loop in its own thread, as seen from the test's thread."""

    def __init__(self, rig: Rig, port: int = 0) -> None:
        self.rig = rig
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        try:
            self.server = self.do(serve_admin(rig.service, "127.0.0.1", port))
        except BaseException:
            self._end()
            raise
        self.address = f"127.0.0.1:{self.server.port}"

    def do(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(120)

    def close(self) -> None:
        self.do(self.server.close(0))
        self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def running(rig=None, port=0):
    server = Running(rig or Rig(), port)
    try:
        yield server
    finally:
        server.close()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def test_the_clients_methods():
    rig = Rig()
    rig.controller.answers.update({19: create_answer(), 43: elect_answer(), 55: quorum_answer(-1)})
    with running(rig) as server, AdminClient(server.address) as client:
        assert client.list_topics() == ["audit", "orders"]
        assert client.list_topics(linearizable=True) == ["audit", "orders"]
        assert rig.confirmed == 1
        assert client.describe_topics() == state_json(image())["topics"]
        assert list(client.describe_topics(["orders"])) == ["orders"]
        assert client.create_topic("t", 3, 2, configs={"a": "b"}) == to_text(TOPIC_ID)
        assert 0 < rig.controller.timeouts[0] <= 30_000
        assert client.create_topic("t", assignments={0: [1, 2]}, timeout_ms=900)
        assert 0 < rig.controller.timeouts[1] <= 900
        assert client.elect_leaders({"a": [0, 1]}) == [
            {"topic": "a", "partition": 0, "error": None},
            {
                "topic": "a",
                "partition": 1,
                "error": "ELECTION_NOT_NEEDED: Election not needed",
            },
        ]
        quorum = client.describe_quorum()
        assert (quorum["leader"], quorum["epoch"], quorum["high_watermark"]) == (2, 9, 100)
        assert [v["id"] for v in quorum["voters"]] == [1, 2]
        assert quorum["observers"][0]["end_offset"] == 5
        cluster = client.describe_cluster()
        assert cluster["active_controller"] == 3001
        assert cluster["brokers"][0]["endpoints"] == [["PLAINTEXT", "localhost", 9092, 0]]
        features = client.describe_features()
        assert features == {"metadata.version": {"min": 7, "max": 25, "finalized": 25}}
        retention = next(
            c for c in client.describe_config(2, "orders") if c["name"] == "retention.ms"
        )
        assert (retention["value"], retention["source"]) == ("5000", "TOPIC")


def test_the_other_changes():
    rig = Rig()

    def named(answer_name, result_name, field):
        def answer(request, module):
            items = request.topics if hasattr(request, "topics") else request.resources
            results = tuple(
                fill(
                    getattr(module, result_name),
                    name=getattr(item, "name", None),
                    resource_name=getattr(item, "resource_name", None),
                    resource_type=getattr(item, "resource_type", None),
                    topic_id=UUID(int=5 << 64),
                    error_code=ErrorCode.none,
                    error_message=None,
                )
                for item in items
            )
            return fill(getattr(module, answer_name), throttle_time=millis(0), **{field: results})

        return answer

    rig.controller.answers.update(
        {
            20: named("DeleteTopicsResponse", "DeletableTopicResult", "responses"),
            37: named("CreatePartitionsResponse", "CreatePartitionsTopicResult", "results"),
            44: named(
                "IncrementalAlterConfigsResponse", "AlterConfigsResourceResponse", "responses"
            ),
            64: lambda request, module: fill(
                module.UnregisterBrokerResponse,
                throttle_time=millis(0),
                error_code=ErrorCode.none,
                error_message=None,
            ),
        }
    )
    with running(rig) as server, AdminClient([server.address]) as client:
        client.delete_topic("a")
        client.create_partitions("a", 9, assignments=[[1, 2]])
        client.alter_config(
            2, "a", set={"x": "1"}, delete=["y"], append={"z": "2"}, subtract={"w": "3"}
        )
        client.unregister_broker(4)
        deleted, partitions, configs, broker = rig.controller.seen
        assert deleted.topics[0].name == "a"
        assert partitions.topics[0].count == 9
        assert [(c.name, c.config_operation, c.value) for c in configs.resources[0].configs] == [
            ("x", 0, "1"),
            ("y", 1, None),
            ("z", 2, "2"),
            ("w", 3, "3"),
        ]
        assert broker.broker_id == 4


def test_features_through_the_client():
    rig = Rig()
    rig.controller.answers[57] = lambda request, module: module.UpdateFeaturesResponse(
        throttle_time=millis(0), error_code=ErrorCode.none, error_message=None
    )
    with running(rig) as server, AdminClient([server.address]) as client:
        client.update_features({"a": 2, "b": 1})
        client.update_features({"a": 1}, downgrade=True, validate_only=True)
        client.update_features({"a": 0}, downgrade=True, unsafe=True)
        with pytest.raises(KafkaError, match=r"INVALID_UPDATE_VERSION.*a: level -1"):
            client.update_features({"a": -1})
        seen = rig.controller.seen
        assert [[u.upgrade_type for u in one.feature_updates] for one in seen] == [[1, 1], [2], [3]]
        assert [one.validate_only for one in seen] == [False, True, False]
        rig.controller.answers[57] = lambda request, module: module.UpdateFeaturesResponse(
            throttle_time=millis(0),
            error_code=ErrorCode.invalid_update_version,
            error_message="so far only",
        )
        with pytest.raises(KafkaError, match="INVALID_UPDATE_VERSION: so far only"):
            client.update_features({"a": 9})


def test_errors_arrive_as_kafka_errors():
    rig = Rig()
    rig.controller.answers[19] = create_answer({"t": (ErrorCode.topic_already_exists, "there is")})
    with running(rig) as server, AdminClient(server.address, timeout_ms=3000) as client:
        with pytest.raises(KafkaError, match="TOPIC_ALREADY_EXISTS: there is"):
            client.create_topic("t")
        with pytest.raises(KafkaError, match=r"UNKNOWN_TOPIC_OR_PARTITION.*nope"):
            client.describe_topics(["orders", "nope"])
        with pytest.raises(KafkaError, match=r"INVALID_PARTITIONS.*-3"):
            client.create_topic("t", -3)
        with pytest.raises(KafkaError, match=r"INVALID_PARTITIONS.*9999999999"):
            client.create_topic("t", 9999999999)
        with pytest.raises(KafkaError, match=r"UNSUPPORTED_VERSION.*AlterClientQuotas"):
            client.call("AlterClientQuotas", pb.AlterClientQuotasRequest())
        with pytest.raises(KafkaError, match=r"INVALID_REQUEST.*directory 'here'"):
            client.add_voter(4, "here", {"CONTROLLER": ("h", 1)})
        with pytest.raises(KafkaError, match=r"INVALID_REQUEST.*9999999999"):
            client.remove_voter(9999999999, "x")
        with pytest.raises(KafkaError, match=r"INVALID_REQUEST.*lonely"):
            client.elect_leaders({"lonely": []}, unclean=True)
        rig.controller.error = RuntimeError("a bug")
        with pytest.raises(KafkaError, match="UNKNOWN_SERVER_ERROR: RuntimeError: a bug"):
            client.create_topic("u")


def test_any_client_finds_the_details_in_the_standard_trailer():
    with running() as server, grpc.insecure_channel(server.address) as channel:
        stub = admin_pb2_grpc.AdminStub(channel)
        with pytest.raises(grpc.RpcError) as failed:
            stub.AlterClientQuotas(pb.AlterClientQuotasRequest())
        assert failed.value.code() == grpc.StatusCode.UNIMPLEMENTED
        trailers = dict(failed.value.trailing_metadata())
        details = pb.StatusDetails.FromString(trailers["grpc-status-details-bin"])
        assert details.code == 12
        assert details.details[0].type_url == "type.googleapis.com/pykraft.admin.v1.KafkaError"


def test_a_dead_address_is_passed_over_at_once():
    dead = f"127.0.0.1:{free_port()}"
    with running() as server, AdminClient(f"{dead}, {server.address}") as client:
        began = time.monotonic()
        assert client.list_topics() == ["audit", "orders"]
        assert time.monotonic() - began < 1.5


def test_a_silent_address_is_passed_over():
    with socket.create_server(("127.0.0.1", 0)) as silent, running() as server:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with AdminClient([address, server.address]) as client:
            began = time.monotonic()
            assert client.list_topics() == ["audit", "orders"]
            assert time.monotonic() - began < 4


def test_nobody_there():
    dead = f"127.0.0.1:{free_port()}"
    with AdminClient(dead, timeout_ms=400, source="PYKRAFT_ADMIN") as client:
        began = time.monotonic()
        with pytest.raises(
            KafkaError, match=rf"400 ms from {dead} \(PYKRAFT_ADMIN\): {dead}: "
        ) as failed:
            client.list_topics()
        assert failed.value.code == ErrorCode.network_exception
        assert 0.3 < time.monotonic() - began < 3


def test_unavailable_is_tried_again():
    rig = Rig()
    rig.controller.answers[19] = create_answer()
    rig.controller.error = ConnectFailed("no leader yet")
    with running(rig) as server, AdminClient(server.address, timeout_ms=5000) as client:
        threading.Timer(0.3, lambda: setattr(rig.controller, "error", None)).start()
        assert client.create_topic("t") == to_text(TOPIC_ID)
        assert len(rig.controller.timeouts) > 1
        rig.controller.error = KafkaError(ErrorCode.not_controller, "no leader")
        with pytest.raises(KafkaError, match=r"NOT_CONTROLLER.*no leader"):
            client.create_topic("t", timeout_ms=300)


class Mute(AdminService):
    """Takes what is asked, and never answers."""

    async def CreateTopics(self, request, context):
        await asyncio.Event().wait()

    ListTopics = CreateTopics


def test_no_answer_leaves_open_whether_a_change_is_made():
    rig = Rig()
    rig.service = Mute(rig.ports)
    with running(rig) as server, AdminClient(server.address, life_ms=600) as client:
        began = time.monotonic()
        for call, told in (
            (lambda: client.create_topic("t", timeout_ms=200), "; it may still be done"),
            (client.list_topics, ""),
            (lambda: client.create_topic("t"), ": no attempt was made"),
        ):
            with pytest.raises(KafkaError, match=rf"got no answer within \d+ ms .*{told}$"):
                call()
        # Each has a quarter of a second more, in which the service may say why itself.
        assert time.monotonic() - began < 2.5, "all calls together"


class Stopping(AdminService):
    """Cancels what is at work, as gRPC may do when a server stops."""

    cancelled = 0

    async def CreateTopics(self, request, context):
        self.cancelled += 1
        await context.abort(grpc.StatusCode.CANCELLED, "")

    Watch = CreateTopics


def test_what_a_stopping_service_cancels_goes_on_with_the_next_one():
    stopping, next_one = Rig(), Rig()
    stopping.service = Stopping(stopping.ports)
    next_one.controller.answers[19] = create_answer()
    with running(stopping) as first, running(next_one) as second:
        addresses = f"{first.address},{second.address}"
        with AdminClient(addresses) as client:
            assert client.create_topic("t", 3, 2) == to_text(TOPIC_ID)
        with AdminClient(addresses) as client:
            stream = client.watch(3)
            assert next(stream)["offset"] == 3
            stream.close()
    assert stopping.service.cancelled == 2


def test_a_client_comes_back_after_a_restart():
    port = free_port()
    with AdminClient(f"127.0.0.1:{port}", timeout_ms=10_000) as client:
        for _ in range(2):
            with running(port=port):
                assert client.list_topics() == ["audit", "orders"]


@pytest.mark.parametrize("address", ["", "x", "host:", ":1", "host:port", "host:99999", "a:1,b"])
def test_bad_addresses(address):
    with pytest.raises(KafkaError, match=r"must be HOST:PORT") as refused:
        AdminClient(address, source="--admin")
    assert "--admin" in refused.value.message


def test_health_and_reflection():
    with running() as server, grpc.insecure_channel(server.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", SERVICE_NAME):
            request = health_pb2.HealthCheckRequest(service=name)
            assert health.Check(request).status == health_pb2.HealthCheckResponse.NOT_SERVING
        server.do(server.server.set_serving(True))
        for name in ("", SERVICE_NAME):
            request = health_pb2.HealthCheckRequest(service=name)
            assert health.Check(request).status == health_pb2.HealthCheckResponse.SERVING
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        asked = [
            reflection_pb2.ServerReflectionRequest(list_services=""),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol="pykraft.admin.v1.Admin"),
        ]
        listed, described = reflection.ServerReflectionInfo(iter(asked))
        names = [service.name for service in listed.list_services_response.service]
        assert names == [
            "grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection",
            "pykraft.admin.v1.Admin",
        ]
        assert described.file_descriptor_response.file_descriptor_proto


def test_a_taken_port_is_an_error():
    with running() as server, pytest.raises(OSError, match=str(server.server.port)):
        Running(Rig(), server.server.port)


def test_garbage_on_the_port_hurts_nobody():
    with running() as server:
        with socket.create_connection(("127.0.0.1", server.server.port)) as sock:
            sock.sendall(b"\x7f\xff\xff\xff" + bytes(1000))
            sock.settimeout(5)
            while sock.recv(4096):
                pass
        with AdminClient(server.address) as client:
            assert client.list_topics() == ["audit", "orders"]


def test_watch_follows_and_ends():
    rig = Rig()
    rig.watch.end = KafkaError(ErrorCode.offset_out_of_range, "trimmed")
    with running(rig) as server, AdminClient(server.address) as client:
        stream = client.watch(3)
        got = [next(stream) for _ in range(7)]
        assert [one["offset"] for one in got] == list(range(3, 10))
        assert got[0]["type"] == "PartitionRecord"
        assert got[0]["data"]["Replicas"] == [1, 2]
        with pytest.raises(KafkaError, match="OFFSET_OUT_OF_RANGE: trimmed"):
            next(stream)


def test_watch_goes_on_after_a_lost_server():
    port = free_port()
    with AdminClient(f"127.0.0.1:{port}", timeout_ms=10_000) as client:
        with running(port=port):
            stream = client.watch(0)
            assert [next(stream)["offset"] for _ in range(10)] == list(range(10))
        rig = Rig()
        rig.watch.records = [r._replace(offset=r.offset + 3) for r in rig.watch.records]
        with running(rig, port=port):
            assert [next(stream)["offset"] for _ in range(3)] == [10, 11, 12]
            stream.close()


def test_watch_with_the_state_first_then_what_follows():
    rig = Rig()
    rig.watch.records = [
        WatchedRecord(n, 8, 1, encode(TopicRecord(name=f"t{n}", topic_id=UUID(int=n << 64))))
        for n in range(42, 45)
    ]
    with running(rig) as server, AdminClient(server.address) as client:
        stream = client.watch(snapshot_first=True)
        offsets = []
        while len(offsets) < 3 or offsets[-1] != 44:
            offsets.append(next(stream)["offset"])
        assert offsets[-3:] == [42, 43, 44]
        assert offsets.count(41) == len(offsets) - 3 > 5
        stream.close()


def test_a_watcher_that_reads_nothing_is_ended_without_buffering():
    rig = Rig()
    big = encode(TopicRecord(name="x" * 20_000, topic_id=TOPIC_ID))
    rig.watch.records = [WatchedRecord(n, 1, 1, big) for n in range(20_000)]
    with running(rig) as server, grpc.insecure_channel(server.address) as channel:
        stub = admin_pb2_grpc.AdminStub(channel)
        stream = stub.Watch(pb.WatchRequest())
        assert next(stream).offset == 0
        deadline = time.monotonic() + 10
        while not rig.watch.closed and time.monotonic() < deadline:
            time.sleep(0.05)
        assert rig.watch.closed == 1
        # Only what fits the windows of the connection was ever read from the source.
        assert rig.watch.taken < 5000
        with pytest.raises(grpc.RpcError) as failed:
            for _ in stream:
                pass
        assert failed.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_unknown_codes_of_a_newer_controller():
    error = from_message(pb.KafkaError(code=9999, name="BRAND_NEW", message="what"))
    assert error.code == ErrorCode.unknown_server_error
    assert "BRAND_NEW: what" in error.message
