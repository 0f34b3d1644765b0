"""Where `pykraft groups reset` has a group begin, while the log moves on or goes away."""

import asyncio
import re
from types import SimpleNamespace

import pytest

from net.handlers import Api, HandlerTable
from net.server import ListenerConfig, serve
from pykraft.broker_client import EARLIEST, LATEST, BrokerClient, NobodyAnswers
from pykraft.group_client import Aim, GroupClient
from wire.apis import ApiKey
from wire.errors import ErrorCode, KafkaError
from world.real import real_env


class Brokers:
    """Brokers of one topic whose logs are as `logs` says, and longer each time that one asks."""

    def __init__(self, logs, committed=(), members=()):
        self.logs = dict(logs)
        self.committed = dict(committed)
        self.members = members

    async def coordinator(self, group):
        return None

    async def until_answered(self, what, ask):
        return (await ask())[1]

    async def ask(self, broker, api, build, most=None):
        parts = [
            SimpleNamespace(partition_index=index, committed_offset=offset)
            for index, offset in self.committed.items()
        ]
        topic = SimpleNamespace(name="t", partitions=parts)
        none = ErrorCode.none
        group = SimpleNamespace(
            error_code=none, group_state="Stable", assignor_name="", members=self.members
        )
        return SimpleNamespace(error_code=none, topics=[topic], groups=[group])

    async def partitions(self, topics):
        return {"t": [0, 1]}

    async def offsets(self, places, *, wait=True):
        found = {}
        for place, at in places.items():
            if place not in self.logs:
                continue
            start, end = self.logs[place]
            self.logs[place] = (start, end + 5)
            found[place] = {EARLIEST: start, LATEST: end}.get(at, -1 if at > 1000 else start + at)
        return found


BOTH = {("t", 0): (3, 10), ("t", 1): (0, 20)}


def aim(brokers, to, *, topics=(("t", None),), exact=False):
    return asyncio.run(GroupClient(brokers).aim("g", dict(topics), to, exact=exact))


@pytest.mark.parametrize(
    ("to", "least"), [(EARLIEST, (3, 0)), (LATEST, (10, 20)), (2, (5, 2)), (2000, (10, 20))]
)
def test_a_log_that_grows_meanwhile_refuses_nothing(to, least):
    """Only an offset that a person has named can be out of range."""
    found = aim(Brokers(BOTH, {0: 7}), to)
    assert [(one.topic, one.partition, one.before) for one in found] == [
        ("t", 0, 7),
        ("t", 1, None),
    ]
    for one, low in zip(found, least, strict=True):
        assert low <= one.offset <= low + 15


def test_a_group_with_members_is_refused_before_anything_is_shown():
    member = SimpleNamespace(
        member_id="m",
        instance_id=None,
        client_id="c",
        client_host="h",
        assignment=SimpleNamespace(topic_partitions=[]),
    )
    with pytest.raises(KafkaError, match="g has members: end them first"):
        aim(Brokers(BOTH, members=[member]), EARLIEST)


@pytest.mark.parametrize(
    ("to", "told"),
    [
        (2, r"^t-0 has offsets from 3 to \d+: 2 is not among them$"),
        (99, r"^t-0 has offsets from 3 to \d+, t-1 has offsets from 0 to \d+: 99 is not among "),
    ],
)
def test_an_offset_beyond_logs_is_refused_with_all_of_them(to, told):
    with pytest.raises(KafkaError) as refused:
        aim(Brokers(BOTH), to, exact=True)
    assert re.search(told, refused.value.message)


def test_a_group_without_a_name_is_not_deleted():
    """Brokers would look for one, and tell that there is none."""
    with pytest.raises(KafkaError, match="INVALID_GROUP_ID: group '': must not be empty"):
        asyncio.run(GroupClient(None).delete(""))


def test_a_group_of_which_nothing_is_left_to_go_by_is_told_to_name_topics():
    for committed in ((), {0: 7}):
        with pytest.raises(KafkaError, match="g has no committed offsets") as refused:
            aim(Brokers({}, committed), EARLIEST, topics=())
        assert refused.value.code is ErrorCode.invalid_request


def test_a_partition_that_goes_away_is_an_error_where_it_was_named():
    gone = Brokers({("t", 0): (3, 10)}, {0: 7, 1: 8})
    with pytest.raises(KafkaError, match="t-1 is gone"):
        aim(gone, LATEST)
    assert [one[:3] for one in aim(gone, EARLIEST, topics=())] == [Aim("t", 0, 7, 3)[:3]]


def test_a_silent_address_leaves_the_others_their_time():
    async def main():
        async def silent(reader, writer):
            await asyncio.Event().wait()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            addresses = [("127.0.0.1", port), ("127.0.0.1", 1)]
            async with BrokerClient(real_env(), addresses, 1000) as brokers:
                with pytest.raises(NobodyAnswers) as told:
                    await brokers.brokers()
        return str(told.value)

    told = asyncio.run(main())
    assert re.search(r"no answer to ApiVersions within (4\d\d|500) ms", told)
    assert "127.0.0.1:1: " in told


@pytest.mark.parametrize(
    ("apis", "told"),
    [
        ([Api(ApiKey.VOTE, 0, 2, None)], "this is a controller's listener, not a broker's"),
        ([Api(ApiKey.HEARTBEAT, 0, 4, None)], "this is no broker's listener"),
        ([Api(ApiKey.METADATA, 10, 13, None)], "API key 3: we speak 0-13, at most 9, the peer 10-"),
    ],
)
def test_a_listener_of_another_kind_is_named_with_its_address(apis, told):
    async def main():
        config = ListenerConfig("TEST", "127.0.0.1", 0)
        server = await serve(real_env(), config, HandlerTable(apis))
        try:
            address = ("127.0.0.1", server.port)
            async with BrokerClient(real_env(), [address], 5000) as brokers:
                with pytest.raises(NobodyAnswers) as refused:
                    await brokers.brokers()
        finally:
            await server.close()
        return server.port, str(refused.value)

    port, said = asyncio.run(main())
    assert said.startswith(f"127.0.0.1:{port}: {told}")
