"""What anybody may ask who reaches the controllers' listeners: none of it ends a node."""

import asyncio
import itertools
from uuid import UUID

import pytest
from clusters import running_cluster
from waiting import wait_until

from net.client import Connection
from net.handlers import Api, Frame, HandlerTable
from net.server import ListenerConfig, serve
from raft import protocol
from raft.config import TOPIC, RaftConfig
from raft.messages import (
    AddVoterRequest,
    BeginEpochRequest,
    EndEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    RemoveVoterRequest,
    UpdateVoterRequest,
    VoteRequest,
)
from raft.quorum import MAX_EPOCH
from raft.voters import OffsetAndEpoch, ReplicaKey, Voter
from wire.apis import ApiKey
from wire.errors import DecodeError
from wire.hot import fetch_response as hot
from wire.uuids import METADATA_TOPIC_ID
from world.real import real_env

pytestmark = pytest.mark.cluster

HOST = "127.0.0.1"
STRANGER = 9
FORGED = UUID(int=77)
TIME_MS = 10_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with running_cluster(tmp_path_factory.mktemp("strangers"), 3, 1) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def survived(cluster):
    """Afterwards the processes are those from before, and the quorum serves."""
    before = {id_: cluster.process(id_).pid for id_ in cluster.ids()}
    yield
    with cluster.admin() as admin:
        admin.create_topic(f"after-{len(admin.list_topics())}", 1, 1)
    assert {id_: cluster.process(id_).pid for id_ in cluster.ids()} == before
    for id_ in cluster.ids():
        assert [e for e in cluster.log_entries(id_) if e["level"] in ("error", "critical")] == []


def quorum(cluster):
    with cluster.admin() as admin:
        return admin.describe_quorum()


def config(address=None):
    """Of a stranger, who doesn't even know the cluster's id."""
    return RaftConfig(
        node_id=STRANGER, directory_id=FORGED, cluster_id=None, voters={}, advertised=address
    )


async def ask(cluster, target, messages, own=None):
    """Sends messages to a controller, each answered before the next; the answers, None where one
    doesn't say what it is asked."""
    host, _, port = cluster.node(target).controller.rpartition(":")
    connection = await Connection.connect(
        real_env(1), host, int(port), client_id="stranger", timeout_ms=TIME_MS
    )
    answers = []
    try:
        for message in messages:
            key = protocol.API_KEYS[type(message)]
            version = connection.version(key, 17 if key == ApiKey.FETCH else 9)
            body = protocol.encode(message, version, own or config())
            data = await connection.send_raw(key, version, body, TIME_MS)
            try:
                answers.append(protocol.decode(message, version, data))
            except (protocol.Refused, DecodeError):
                answers.append(None)
    finally:
        connection.close()
    return answers


def hostile(target, others, epoch):
    """Requests of every kind, for the epochs about the present one and the last that there is: they
    know `target` by another disk, and whoever isn't it as leader."""
    forged = ReplicaKey(target, FORGED)
    epochs = (epoch - 1, epoch, epoch + 1, MAX_EPOCH)
    for at, named in itertools.product(epochs, (*others, STRANGER)):
        key = ReplicaKey(named, FORGED)
        voter = Voter(key, {"CONTROLLER": (HOST, 1)}, 0, 1)
        for pre_vote in (True, False):
            yield VoteRequest(forged, at, key, OffsetAndEpoch(10**9, max(at - 1, 0)), pre_vote)
        yield BeginEpochRequest(forged, named, at)
        yield BeginEpochRequest(None, named, at)
        yield EndEpochRequest(named, at, (ReplicaKey(target), key))
        yield FetchRequest(key, at, 10**9, at, 0, 10**9)
        yield FetchRequest(key, at, 0, 0, 0, -1)
        yield FetchSnapshotRequest(key, at, OffsetAndEpoch(10**9, at), 0)
        yield AddVoterRequest(voter, 0)
        yield UpdateVoterRequest(at, voter)
    yield RemoveVoterRequest(forged)


@pytest.mark.parametrize("leader_first", [True, False])
def test_requests_of_every_kind(cluster, leader_first):
    leader = quorum(cluster)["leader"]
    ids = sorted(cluster.ids("controller"), key=lambda id_: (id_ == leader) != leader_first)
    for target in ids:
        others = [id_ for id_ in ids if id_ != target]
        epoch = quorum(cluster)["epoch"]
        answers = asyncio.run(ask(cluster, target, list(hostile(target, others, epoch))))
        assert any(answers)


def test_a_leader_that_a_stranger_has_named(cluster):
    """It is followed, as one that a later set of voters may have elected; but it can't have what
    is committed taken back."""
    now = quorum(cluster)
    follower = next(id_ for id_ in cluster.ids("controller") if id_ != now["leader"])
    epoch = now["epoch"] + 1
    fetched = asyncio.Event()

    def nothing_is_committed(request):
        fetched.set()
        part = hot.FetchedPartition(
            index=0,
            error_code=0,
            high_watermark=0,
            last_stable_offset=-1,
            log_start_offset=-1,
            records=(),
            records_size=0,
            diverging_epoch=(0, 0),
            current_leader=(STRANGER, epoch),
            snapshot_id=None,
        )
        topic = hot.FetchedTopic(TOPIC, METADATA_TOPIC_ID, [part])
        return Frame(
            hot.encode_fetch_response(request.api_version, request.correlation_id, [topic])
        )

    async def main():
        table = HandlerTable([Api(ApiKey.FETCH, 12, 17, nothing_is_committed)])
        listener = ListenerConfig(name="CONTROLLER", host=HOST, port=0)
        server = await serve(real_env(2), listener, table)
        try:
            message = BeginEpochRequest(None, STRANGER, epoch)
            await ask(cluster, follower, [message], config((HOST, server.port)))
            async with asyncio.timeout(TIME_MS / 1000):
                await fetched.wait()
        finally:
            await server.close()

    asyncio.run(main())

    def noticed():
        entries = cluster.log_entries(follower)
        told = [e["reason"] for e in entries if e["event"] == "message_refused"]
        return [reason for reason in told if "would have us cut committed records" in reason]

    wait_until(noticed, "it has noticed")
