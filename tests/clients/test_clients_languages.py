"""Clients of other languages on a cluster of three brokers: records there and back, admin calls.

Libraries with protocol code of their own, not bindings: franz-go and Sarama (Go), KafkaJS (Node).
"""

import os

import pytest
import traffic
from foreign_clients import LANGUAGES, ForeignClient

pytestmark = pytest.mark.clients

COUNT = 50_000 if os.environ.get("CI") == "true" else 10_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# KafkaJS brings gzip alone, and consumes in groups only: it reads in test_clients_groups.py.
WRITES = {"franz-go": CODECS, "sarama": CODECS, "kafkajs": ("none", "gzip")}
READS = ("franz-go", "sarama")


@pytest.fixture(scope="module", params=LANGUAGES)
def client(request):
    return ForeignClient(request.param)


@pytest.mark.parametrize(
    ("client", "codec"),
    [(library, codec) for library, codecs in WRITES.items() for codec in codecs],
    indirect=["client"],
)
def test_records_there_and_back(shared_cluster, client, codec):
    """In assigned partitions; another library reads what it wrote, and it what another wrote."""
    topic = f"{client.name}-{codec}"
    with shared_cluster.admin() as admin:
        admin.create_topic(topic, 3, 3)
    traffic.wait_for_leaders(shared_cluster.bootstrap, topic)
    client.write(shared_cluster.bootstrap, topic, COUNT, codec)
    traffic.confluent_read(shared_cluster.bootstrap, topic, traffic.Seen(COUNT))
    if client.name in READS:
        traffic.confluent_produce(
            shared_cluster.bootstrap,
            topic,
            COUNT,
            codec,
            start=COUNT,
            **{"enable.idempotence": True},
        )
        client.read(shared_cluster.bootstrap, topic, traffic.Seen(2 * COUNT))


def test_admin(shared_cluster, client):
    told = client.admin(shared_cluster.bootstrap, f"admin-{client.name}")
    assert sorted(told["brokers"]) == [1, 2, 3]
    assert told["partitions"] == 5
    assert told["bytes"] == "12345"
    assert told["retention"] == "604800000", "the change took the topic's own away"
    assert told["again"] == "TOPIC_ALREADY_EXISTS"
    assert told["wide"] == "INVALID_REPLICATION_FACTOR"
    assert told["gone"] == "UNKNOWN_TOPIC_OR_PARTITION"
    # Sarama doesn't say.
    assert told.get("cluster") in (None, shared_cluster.local.status()["cluster_id"])
