"""Bytes that are not the protocol, on every port: they end that connection alone."""

import random
import socket
import struct

import psutil
import pytest
import traffic
from clusters import running_cluster
from confluent_kafka.admin import AdminClient
from waiting import wait_until

pytestmark = pytest.mark.cluster

MIB = 1 << 20
RSS_LIMIT = 150 * MIB


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """One node with both roles, so that every kind of port is there."""
    with running_cluster(tmp_path_factory.mktemp("hostile"), 0, 1) as cluster:
        yield cluster


def address(text):
    host, _, port = text.rpartition(":")
    return host, int(port)


def frame(body):
    return struct.pack(">i", len(body)) + body


def header(api_key, api_version, correlation_id=7):
    return struct.pack(">hhih", api_key, api_version, correlation_id, -1)


CHANCE = random.Random(20)
BYTES = {
    "garbage": CHANCE.randbytes(4096),
    "more-garbage": b"\xff" * 64 + CHANCE.randbytes(100_000),
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "tls": bytes.fromhex("16030100c8010000c40303") + CHANCE.randbytes(200),
    "two-gigabytes": struct.pack(">i", 2**31 - 1) + CHANCE.randbytes(100),
    "negative-length": struct.pack(">i", -1) + header(18, 0),
    "empty-frame": struct.pack(">i", 0),
    "unknown-api": frame(header(999, 0)),
    "negative-api": frame(header(-5, 0)),
    "unknown-version": frame(header(0, 99) + bytes(20)),
    "not-served-here": frame(header(38, 0) + bytes(20)),
    "body-cut-off": frame(header(3, 9)),
    "bytes-of-nonsense-in-a-body": frame(header(3, 9) + CHANCE.randbytes(300)),
    "produce-of-nonsense": frame(header(0, 9) + b"\0" + CHANCE.randbytes(300)),
}


def is_served(cluster):
    """The node answers a client, on a connection from before and on a new one."""
    return bool(
        AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=60).brokers
    )


def ends(connection, timeout_s=10):
    """Whether the other side closes; what it may say before is dropped."""
    connection.settimeout(timeout_s)
    try:
        while connection.recv(65536):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize("listener", ["broker", "controller"])
@pytest.mark.parametrize("kind", BYTES)
def test_a_kafka_port_closes_that_connection_alone(cluster, listener, kind):
    node = cluster.node(1)
    place = address(getattr(node, listener))
    with socket.create_connection(place) as neighbour, socket.create_connection(place) as hostile:
        ask = frame(header(18, 0, 1))
        neighbour.sendall(ask)
        assert neighbour.recv(65536)[4:8] == struct.pack(">i", 1)
        hostile.sendall(BYTES[kind])
        assert ends(hostile), f"{kind} is still connected"
        neighbour.sendall(frame(header(18, 0, 2)))
        neighbour.settimeout(10)
        assert neighbour.recv(65536)[4:8] == struct.pack(">i", 2)
    assert cluster.process(1) is not None
    assert is_served(cluster)


@pytest.mark.parametrize("listener", ["admin", "metrics"])
@pytest.mark.parametrize("kind", ["garbage", "more-garbage", "tls", "two-gigabytes", "unknown-api"])
def test_the_other_ports_go_on(cluster, listener, kind):
    place = address(getattr(cluster.node(1), listener))
    with cluster.admin() as admin, socket.create_connection(place) as hostile:
        admin.list_topics()
        hostile.sendall(BYTES[kind])
        if listener == "metrics" and kind != "more-garbage":
            # Not HTTP yet, and it may still become it: only the end of the client ends it.
            hostile.shutdown(socket.SHUT_WR)
        assert ends(hostile), f"{kind} is still connected"
        admin.list_topics()
    assert cluster.local.status()["nodes"][0]["state"] == "ready"


@pytest.mark.parametrize("listener", ["broker", "controller", "admin", "metrics"])
def test_half_a_frame_and_then_the_end(cluster, listener):
    place = address(getattr(cluster.node(1), listener))
    for cut in (1, 3, 4, 9, 30):
        with socket.create_connection(place) as hostile:
            hostile.sendall(frame(header(18, 3) + bytes(40))[:cut])
    assert is_served(cluster)
    assert cluster.local.status()["nodes"][0]["state"] == "ready"


def test_announced_bytes_take_no_memory(cluster):
    process = psutil.Process(cluster.process(1).pid)
    before = process.memory_info().rss
    node = cluster.node(1)
    # Below the limit of a request (100 MiB), so the node waits for the rest.
    announced = struct.pack(">i", 100 * MIB - 1) + header(0, 9) + bytes(1000)
    held = []
    try:
        for n in range(200):
            place = address(node.broker if n % 2 else node.controller)
            connection = socket.create_connection(place)
            connection.sendall(announced)
            held.append(connection)
        assert is_served(cluster)
        # Its turn came after theirs: what they sent has been read.
        most = process.memory_info().rss
        print(f"\nRSS {before / MIB:.0f} MiB before, {most / MIB:.0f} MiB with 200 announcements")
        assert most < RSS_LIMIT
        with cluster.admin() as admin:
            admin.create_topic("meanwhile", 3, 1)
        traffic.wait_for_leaders(cluster.bootstrap, "meanwhile")
        traffic.confluent_produce(cluster.bootstrap, "meanwhile", 3000)
        traffic.confluent_read(cluster.bootstrap, "meanwhile", traffic.Seen(3000))
    finally:
        for connection in held:
            connection.close()
    wait_until(lambda: len(process.net_connections()) < 50, "the connections are closed", 20)
    assert process.memory_info().rss < RSS_LIMIT


def test_the_log_is_free_of_tracebacks(cluster):
    """After the tests above, in this file's order."""
    entries = cluster.log_entries(1)
    assert [e for e in entries if "exception" in e or e["level"] in ("error", "critical")] == []
