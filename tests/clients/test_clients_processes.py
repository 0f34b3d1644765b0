"""Stock clients on a cluster of three brokers, in processes of their own, at acks=all.

Every record once and in order, on each of three partitions; consumers assign their partitions.
"""

import os
import shutil

import pytest
import traffic
from kafka_jvm import skip_or_fail

from wire.batch import iter_headers

pytestmark = pytest.mark.clients

CI = os.environ.get("CI") == "true"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MANY = 1_000_000 if CI else 20_000
FIFTY_THOUSAND = 50_000 if CI else 10_000


@pytest.fixture(scope="module")
def cluster(shared_cluster):
    return shared_cluster


@pytest.fixture
def topic(cluster, request):
    """A topic of three partitions on three brokers, named after the test."""
    name = request.node.name.translate(str.maketrans("[]", "--")).strip("-")
    with cluster.admin() as admin:
        admin.create_topic(name, 3, 3)
    traffic.wait_for_leaders(cluster.bootstrap, name)
    return name


def stored_codecs(cluster, topic):
    """The codecs of the batches in the first megabyte of one replica, by their numbers."""
    segment = min((cluster.data(1) / f"{topic}-0").glob("*.log"))
    with segment.open("rb") as file:
        return {header.codec for _, header in iter_headers(file.read(1 << 20))}


@pytest.mark.parametrize("codec", CODECS)
def test_confluent_kafka(cluster, topic, codec):
    traffic.confluent_produce(cluster.bootstrap, topic, MANY, codec)
    traffic.confluent_read(cluster.bootstrap, topic, traffic.Seen(MANY))
    assert CODECS.index(codec) in stored_codecs(cluster, topic)


def test_confluent_kafka_idempotent(cluster, topic):
    settings = {"enable.idempotence": True}
    traffic.confluent_produce(cluster.bootstrap, topic, FIFTY_THOUSAND, "lz4", **settings)
    traffic.confluent_read(cluster.bootstrap, topic, traffic.Seen(FIFTY_THOUSAND))


@pytest.mark.ci
@pytest.mark.parametrize("codec", CODECS)
def test_kcat(cluster, topic, codec):
    if shutil.which("kcat") is None:
        skip_or_fail("no kcat on this machine")
    traffic.kcat_produce(cluster.bootstrap, topic, MANY, codec)
    traffic.kcat_read(cluster.bootstrap, topic, traffic.Seen(MANY))
    assert CODECS.index(codec) in stored_codecs(cluster, topic)


def test_kcat_sees_the_cluster(cluster, topic):
    if shutil.which("kcat") is None:
        skip_or_fail("no kcat on this machine")
    seen = traffic.kcat_metadata(cluster.bootstrap)
    assert {broker["name"] for broker in seen["brokers"]} == set(cluster.bootstrap.split(","))
    partitions = next(one["partitions"] for one in seen["topics"] if one["topic"] == topic)
    assert [len(one["isrs"]) for one in partitions] == [3, 3, 3]


def test_kafka_python(cluster, topic):
    traffic.kafka_python_produce(cluster.bootstrap, topic, FIFTY_THOUSAND)
    traffic.kafka_python_read(cluster.bootstrap, topic, traffic.Seen(FIFTY_THOUSAND))


def test_aiokafka(cluster, topic):
    traffic.aiokafka_round(cluster.bootstrap, topic, traffic.Seen(FIFTY_THOUSAND))


@pytest.mark.ci
@pytest.mark.parametrize("codec", ["gzip", "lz4"])
def test_python_clients_with_codecs(cluster, topic, codec):
    traffic.kafka_python_produce(cluster.bootstrap, topic, FIFTY_THOUSAND, codec)
    traffic.kafka_python_read(cluster.bootstrap, topic, traffic.Seen(FIFTY_THOUSAND))
    assert CODECS.index(codec) in stored_codecs(cluster, topic)
    with cluster.admin() as admin:
        admin.create_topic(f"{topic}-aio", 3, 3)
    seen = traffic.Seen(FIFTY_THOUSAND)
    traffic.aiokafka_round(cluster.bootstrap, f"{topic}-aio", seen, codec)


def test_no_broker_was_surprised(cluster):
    """After all of the above, in this file's order: no node logged an error."""
    for id_ in cluster.ids():
        entries = cluster.log_entries(id_)
        assert [entry for entry in entries if entry.get("level") in ("error", "critical")] == []
