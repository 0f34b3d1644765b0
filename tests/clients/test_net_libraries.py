"""Stock client libraries find their way through our ApiVersions and framing."""

import asyncio
import threading

import pytest

from net.handlers import Api, HandlerTable
from net.server import FeatureView, ListenerConfig, serve
from wire.errors import ErrorCode
from wire.messages import fill, millis, response_class, response_module
from world.real import real_env

pytestmark = pytest.mark.clients


@pytest.fixture
def bootstrap():
    """A listener that serves ApiVersions and a Metadata of one broker, itself, without topics."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    port = 0

    def metadata(request):
        request.entity()
        module = response_module(3, request.api_version)
        broker = fill(
            module.MetadataResponseBroker, node_id=1, host="127.0.0.1", port=port, rack=None
        )
        return fill(
            response_class(3, request.api_version),
            throttle_time=millis(0),
            brokers=(broker,),
            cluster_id="cluster",
            controller_id=1,
            topics=(),
            error_code=ErrorCode.none,
        )

    table = HandlerTable([Api(3, 0, 12, metadata)])
    features = FeatureView({"metadata.version": (7, 25)}, {"metadata.version": 25}, 10)

    def do(coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(120)

    config = ListenerConfig("PLAINTEXT", "127.0.0.1", 0)
    server = do(serve(real_env(1), config, table, lambda: features))
    port = server.port
    yield f"127.0.0.1:{port}"
    counters = server.counters
    do(server.close())
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
    assert counters.requests >= 2
    assert counters.malformed == 0
    assert counters.handler_errors == 0


def test_librdkafka(bootstrap):
    admin = pytest.importorskip("confluent_kafka.admin")
    client = admin.AdminClient({"bootstrap.servers": bootstrap})
    found = client.list_topics(timeout=60)
    assert list(found.brokers) == [1]
    assert found.cluster_id == "cluster"


def test_kafka_python(bootstrap):
    kafka = pytest.importorskip("kafka")
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap)
    try:
        assert consumer.topics() == set()
    finally:
        consumer.close()


def test_aiokafka(bootstrap):
    client_module = pytest.importorskip("aiokafka.client")

    async def main():
        client = client_module.AIOKafkaClient(bootstrap_servers=bootstrap)
        await client.bootstrap()
        try:
            assert [broker.nodeId for broker in client.cluster.brokers()] == [1]
        finally:
            await client.close()

    asyncio.run(main())
