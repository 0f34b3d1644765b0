"""The asyncio side: a quorum that can be told to wait, to refuse, to go away."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

import pytest

from controller.config import ControllerConfig
from controller.envelope import encode_principal
from controller.events import Principal
from controller.shell import ControllerShell
from metadata.image import METADATA_VERSION
from metadata.loader import ImageLoader
from metadata.records import FeatureLevelRecord
from net.client import Connection
from net.errors import NetworkError
from net.handlers import Api, HandlerTable, Later
from net.server import ListenerConfig, serve
from wire.apis import ApiKey
from wire.errors import ErrorCode, KafkaError
from wire.messages import (
    RequestHeader,
    decode_response,
    encode_request,
    fill,
    request_class,
    request_module,
    response_class,
)
from world.real import real_env

E = ErrorCode
NODE = 3000


class NotLeader(KafkaError):
    pass


@dataclass
class FakeQuorum:
    """Offset 0 is the LeaderChange; `hold` keeps appended batches uncommitted."""

    shell: ControllerShell | None = None
    end_offset: int = 1
    hold: bool = False
    refuse: bool = False
    resigned: int = 0
    loader: ImageLoader = field(default_factory=ImageLoader)
    waiting: list = field(default_factory=list)
    kraft_version: int = 0
    upgrade_refused: KafkaError | None = None
    may_upgrade: asyncio.Event = field(default_factory=asyncio.Event)
    upgrades: list = field(default_factory=list)
    upgrade_asked: asyncio.Event = field(default_factory=asyncio.Event)
    appended: asyncio.Event = field(default_factory=asyncio.Event)
    committed: asyncio.Event = field(default_factory=asyncio.Event)

    def append(self, values, epoch):
        if self.refuse:
            raise NotLeader(E.not_leader_or_follower, "not the leader any more")
        base = self.end_offset
        self.end_offset += len(values)
        self.waiting.append((base, epoch, values))
        self.appended.set()
        if not self.hold:
            self.commit()
        return base, self.end_offset - 1

    def commit(self):
        waiting, self.waiting = self.waiting, []
        for base, epoch, values in waiting:
            self.loader.on_batch(base, epoch, 0, values)
        self.shell.on_image(self.loader.image, in_transaction=self.loader.in_transaction)
        self.shell.on_committed(self.end_offset)
        self.committed.set()

    async def hold_next(self, request):
        """Sends the request and returns when its records wait for their commit."""
        self.hold = True
        self.appended.clear()
        waiting = asyncio.ensure_future(request)
        await self.appended.wait()
        return waiting

    async def upgrade_kraft_version(self, level, *, validate_only):
        self.upgrades.append((level, validate_only))
        self.upgrade_asked.set()
        await self.may_upgrade.wait()
        if self.upgrade_refused is not None:
            raise self.upgrade_refused
        if not validate_only:
            self.kraft_version = level
            self.end_offset += 2  # the level and the voters
            self.shell.on_committed(self.end_offset)

    def resign(self):
        self.resigned += 1
        self.shell.on_leader_change(None, 2)


class Setting:
    """A shell behind a real listener on loopback, and a client."""

    def __init__(self, **config):
        self.config = {"max_idle_interval_ms": 0} | config

    async def __aenter__(self):
        self.env = real_env(7)
        self.quorum = FakeQuorum()
        self.shell = ControllerShell(
            self.env,
            self.quorum,
            ControllerConfig(node_id=NODE, cluster_id="c", **self.config),
            bootstrap=[FeatureLevelRecord(name=METADATA_VERSION, feature_level=25)],
            quorum_apis=HandlerTable(
                [
                    Api(ApiKey.REMOVE_RAFT_VOTER, 0, 0, self._remove_voter),
                    Api(ApiKey.ADD_RAFT_VOTER, 0, 0, lambda request: self.later),
                ]
            ),
        )
        self.later = Later()
        self.quorum.shell = self.shell
        listener = ListenerConfig("CONTROLLER", "127.0.0.1", 0)
        self.server = await serve(self.env, listener, HandlerTable(self.shell.apis()))
        self.client = await Connection.connect(
            self.env, "127.0.0.1", self.server.port, client_id="test", timeout_ms=5_000
        )
        return self

    async def __aexit__(self, *_):
        self.client.close()
        self.shell.stop()
        await self.server.close()

    def _remove_voter(self, request):
        voter_id = request.entity().voter_id
        return fill(
            response_class(ApiKey.REMOVE_RAFT_VOTER, 0),
            throttle_time=timedelta(0),
            error_code=E.voter_not_found,
            error_message=f"no voter {voter_id}",
        )

    def lead(self):
        self.shell.on_leader_change(NODE, 1)
        return self

    async def ask(self, key, version, **fields):
        return await self.client.send(fill(request_class(key, version), **fields), 5_000)

    async def register(self, broker=1):
        module = request_module(ApiKey.BROKER_REGISTRATION, 4)
        return await self.ask(
            ApiKey.BROKER_REGISTRATION,
            4,
            broker_id=broker,
            cluster_id="c",
            incarnation_id=UUID(int=5000 + broker),
            listeners=(),
            features=(
                module.Feature(
                    name=METADATA_VERSION, min_supported_version=1, max_supported_version=25
                ),
            ),
            rack=None,
            log_dirs=(UUID(int=1000 + broker),),
            previous_broker_epoch=-1,
        )

    async def heartbeat(self, epoch, broker=1):
        return await self.ask(
            ApiKey.BROKER_HEARTBEAT,
            0,
            broker_id=broker,
            broker_epoch=epoch,
            current_metadata_offset=self.quorum.end_offset,
            want_fence=False,
            want_shut_down=False,
        )

    def new_topic_request(self, name, timeout_ms=5_000):
        module = request_module(ApiKey.CREATE_TOPICS, 7)
        topic = module.CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()
        )
        return module.CreateTopicsRequest(
            topics=(topic,), timeout=timedelta(milliseconds=timeout_ms), validate_only=False
        )

    async def create(self, name, timeout_ms=5_000):
        reply = await self.client.send(self.new_topic_request(name, timeout_ms), 5_000)
        return reply.topics[0]


def run(story, **config):
    async def main():
        async with Setting(**config) as setting:
            await story(setting)

    asyncio.run(main())


def test_from_registration_to_a_topic():
    async def story(s):
        s.lead()
        registered = await s.register()
        assert registered.error_code is E.none
        assert not (await s.heartbeat(registered.broker_epoch)).is_fenced
        assert (await s.create("t")).error_code is E.none
        assert s.shell.image.topic("t") is not None
        assert s.shell.metrics.active
        assert (s.shell.metrics.active_brokers, s.shell.metrics.topics) == (1, 1)

    run(story)


def test_the_answer_about_two_thousand_topics_is_understood():
    """It tells all configs of each, so it has far more elements than the request."""

    async def story(s):
        s.lead()
        await s.heartbeat((await s.register()).broker_epoch)
        module = request_module(ApiKey.CREATE_TOPICS, 7)
        reply = await s.ask(
            ApiKey.CREATE_TOPICS,
            7,
            topics=tuple(
                fill(
                    module.CreatableTopic,
                    name=f"t-{i}",
                    num_partitions=1,
                    replication_factor=1,
                    assignments=(),
                    configs=(),
                )
                for i in range(2000)
            ),
            timeout=timedelta(seconds=5),
            validate_only=False,
        )
        assert [topic.error_code for topic in reply.topics] == [E.none] * 2000
        assert min(len(topic.configs) for topic in reply.topics) > 20

    run(story)


def test_a_standby_says_not_controller():
    async def story(s):
        assert (await s.register()).error_code is E.not_controller
        assert (await s.create("t")).error_code is E.not_controller

    run(story)


def test_answers_wait_for_the_commit_and_fall_with_the_leadership():
    async def story(s):
        s.lead()
        epoch = (await s.register()).broker_epoch
        await s.heartbeat(epoch)
        first = await s.quorum.hold_next(s.create("a"))
        assert not first.done()
        s.quorum.commit()
        assert (await first).error_code is E.none
        second = await s.quorum.hold_next(s.create("b"))
        s.shell.on_leader_change(3001, 2)
        assert (await second).error_code is E.not_controller
        assert not s.shell.active

    run(story)


def test_sessions_end_by_the_timer():
    async def story(s):
        s.lead()
        epoch = (await s.register()).broker_epoch
        await s.heartbeat(epoch)
        async with asyncio.timeout(5):
            while not s.shell.image.broker(1).fenced:
                s.quorum.committed.clear()
                await s.quorum.committed.wait()
        assert s.shell.metrics.fenced_brokers == 1

    run(story, session_timeout_ms=50)


def test_a_request_times_out_while_nothing_is_committed():
    async def story(s):
        s.lead()
        await s.heartbeat((await s.register()).broker_epoch)
        s.quorum.hold = True
        assert (await s.create("a", timeout_ms=30)).error_code is E.request_timed_out

    run(story)


def test_a_refused_append_costs_the_office_and_answers_not_controller():
    async def story(s):
        s.lead()
        await s.heartbeat((await s.register()).broker_epoch)
        s.quorum.refuse = True
        assert (await s.create("a")).error_code is E.not_controller
        assert s.quorum.resigned == 1
        assert not s.shell.active

    run(story)


def test_records_that_land_elsewhere_cost_the_office():
    async def story(s):
        s.lead()
        original = s.quorum.append
        s.quorum.append = lambda values, epoch: (original(values, epoch)[0] + 1, 0)
        assert (await s.register()).error_code is E.not_controller
        assert s.quorum.resigned == 1

    run(story)


def test_a_log_cut_by_another_leader_makes_a_standby():
    async def story(s):
        s.lead()
        s.quorum.end_offset -= 1
        assert (await s.register()).error_code is E.not_controller
        assert not s.shell.active

    run(story)


def test_control_records_of_the_quorum_move_the_next_offset():
    async def story(s):
        s.lead()
        s.quorum.end_offset += 1
        registered = await s.register()
        assert registered.broker_epoch == s.quorum.end_offset - 1

    run(story)


def test_a_fault_in_the_core_closes_that_connection_only():
    async def story(s):
        s.lead()
        epoch = (await s.register()).broker_epoch
        s.shell.core._apis = {}
        with pytest.raises(NetworkError):
            await s.heartbeat(epoch)
        assert s.shell.active
        assert s.shell.metrics.core_failures == 1

    run(story)


def test_describe_cluster_is_answered_by_any_controller():
    async def story(s):
        reply = await s.ask(
            ApiKey.DESCRIBE_CLUSTER,
            2,
            include_cluster_authorized_operations=False,
            endpoint_type=2,
            include_fenced_brokers=False,
        )
        assert (reply.error_code, reply.cluster_id, reply.controller_id) == (E.none, "c", -1)

    run(story)


# Envelope


async def forward(s, frame, principal=None, address=b"\x7f\0\0\1"):
    return await s.ask(
        ApiKey.ENVELOPE,
        0,
        request_data=frame,
        request_principal=encode_principal(Principal("User", "alice"))
        if principal is None
        else principal,
        client_host_address=address,
    )


def test_a_forwarded_request_is_answered_in_its_own_form():
    async def story(s):
        s.lead()
        await s.heartbeat((await s.register()).broker_epoch)
        header = RequestHeader(ApiKey.CREATE_TOPICS, 7, 4711, "client")
        frame = encode_request(header, s.new_topic_request("t"))[4:]
        reply = await forward(s, frame)
        assert reply.error_code is E.none
        correlation_id, inner = decode_response(ApiKey.CREATE_TOPICS, 7, reply.response_data)
        assert correlation_id == 4711
        assert inner.topics[0].error_code is E.none
        assert isinstance(inner, response_class(ApiKey.CREATE_TOPICS, 7))

    run(story)


def test_as_many_partitions_as_are_created_at_once_can_be_assigned_by_hand():
    """At the controller's own door, and in an envelope."""
    count = 9_999  # and a record for the topic

    def asked(validate_only):
        module = request_module(ApiKey.CREATE_TOPICS, 7)
        topic = module.CreatableTopic(
            name="t",
            num_partitions=-1,
            replication_factor=-1,
            assignments=tuple(
                module.CreatableReplicaAssignment(partition_index=i, broker_ids=(1, 2, 3))
                for i in range(count)
            ),
            configs=(),
        )
        return module.CreateTopicsRequest(
            topics=(topic,), timeout=timedelta(seconds=5), validate_only=validate_only
        )

    async def story(s):
        s.lead()
        for broker in (1, 2, 3):
            await s.heartbeat((await s.register(broker)).broker_epoch, broker)
        header = RequestHeader(ApiKey.CREATE_TOPICS, 7, 1, "client")
        reply = await forward(s, encode_request(header, asked(True))[4:])
        assert reply.error_code is E.none
        _, inner = decode_response(ApiKey.CREATE_TOPICS, 7, reply.response_data)
        assert inner.topics[0].error_code is E.none, inner.topics[0].error_message
        reply = await s.client.send(asked(False), 5_000)
        assert reply.topics[0].num_partitions == count
        assert len(s.shell.image.topic("t").partitions) == count

    run(story)


def test_the_quorums_own_requests_are_forwarded_too():
    async def story(s):
        s.lead()
        remove = fill(
            request_class(ApiKey.REMOVE_RAFT_VOTER, 0),
            cluster_id=None,
            voter_id=9,
            voter_directory_id=None,
        )
        header = RequestHeader(ApiKey.REMOVE_RAFT_VOTER, 0, 4711, "client")
        frame = encode_request(header, remove)[4:]
        reply = await forward(s, frame)
        correlation_id, inner = decode_response(ApiKey.REMOVE_RAFT_VOTER, 0, reply.response_data)
        assert (correlation_id, inner.error_message) == (4711, "no voter 9")
        assert (await forward(s, frame[:-3])).error_code is E.invalid_request
        add = fill(
            request_class(ApiKey.ADD_RAFT_VOTER, 0),
            cluster_id=None,
            timeout=timedelta(seconds=1),
            voter_id=9,
            voter_directory_id=None,
            listeners=(),
        )
        header = RequestHeader(ApiKey.ADD_RAFT_VOTER, 0, 4712, "client")
        waiting = asyncio.ensure_future(forward(s, encode_request(header, add)[4:]))
        await asyncio.sleep(0.02)
        s.later.set(
            fill(
                response_class(ApiKey.ADD_RAFT_VOTER, 0),
                throttle_time=timedelta(0),
                error_code=E.none,
                error_message=None,
            )
        )
        reply = await waiting
        _, inner = decode_response(ApiKey.ADD_RAFT_VOTER, 0, reply.response_data)
        assert inner.error_code is E.none

    run(story)


def test_errors_of_the_envelope_itself():
    async def story(s):
        header = RequestHeader(ApiKey.CREATE_TOPICS, 7, 1, "client")
        frame = encode_request(header, s.new_topic_request("t"))[4:]
        assert (await forward(s, frame)).error_code is E.not_controller
        s.lead()
        assert (await forward(s, b"\0")).error_code is E.invalid_request
        assert (await forward(s, frame[:-3])).error_code is E.invalid_request
        assert (await forward(s, frame, b"\0\7x")).error_code is E.principal_deserialization_failure
        assert (await forward(s, frame, address=b"xx")).error_code is E.invalid_request
        old = frame[:2] + b"\0\1" + frame[4:]
        assert (await forward(s, old)).error_code is E.unsupported_version
        heartbeat = fill(
            request_class(ApiKey.BROKER_HEARTBEAT, 0),
            broker_id=1,
            current_metadata_offset=0,
            want_fence=False,
            want_shut_down=False,
        )
        header = RequestHeader(ApiKey.BROKER_HEARTBEAT, 0, 1, "client")
        inner = encode_request(header, heartbeat)[4:]
        assert (await forward(s, inner)).error_code is E.invalid_request

    run(story)


def test_losing_office_tells_the_broker_not_its_client():
    async def story(s):
        s.lead()
        await s.heartbeat((await s.register()).broker_epoch)
        header = RequestHeader(ApiKey.CREATE_TOPICS, 7, 1, "client")
        frame = encode_request(header, s.new_topic_request("t"))[4:]
        waiting = await s.quorum.hold_next(forward(s, frame))
        s.shell.on_leader_change(3001, 2)
        reply = await waiting
        assert (reply.error_code, reply.response_data) == (E.not_controller, None)

    run(story)


async def update_features(setting, *updates, validate_only=False):
    """Updates are (feature, level, upgrade type)."""
    module = request_module(ApiKey.UPDATE_FEATURES, 2)
    return await setting.ask(
        ApiKey.UPDATE_FEATURES,
        2,
        feature_updates=tuple(
            module.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level, kind in updates
        ),
        timeout=timedelta(seconds=5),
        validate_only=validate_only,
    )


UPGRADE = ("kraft.version", 1, 1)


def test_kraft_version_is_raised_by_the_quorum_before_the_rest():
    async def story():
        async with Setting() as setting:
            setting.lead()
            quorum = setting.quorum
            asked = asyncio.ensure_future(
                update_features(setting, ("metadata.version", 26, 1), UPGRADE)
            )
            await quorum.upgrade_asked.wait()
            assert quorum.upgrades == [(1, False)]
            assert setting.shell.image.metadata_version == 25
            quorum.may_upgrade.set()
            assert (await asked).error_code is E.none
            assert setting.shell.image.metadata_version == 26
            assert setting.shell.core.image.kraft_version == 1
            # It is there now: nothing is left to ask for.
            assert (await update_features(setting, UPGRADE)).error_code is E.none
            assert quorum.upgrades == [(1, False)]
            down = await update_features(setting, ("kraft.version", 0, 2))
            assert down.error_code is E.invalid_update_version
            assert "it is at 1 and never goes down" in down.error_message

    asyncio.run(story())


def test_an_upgrade_of_kraft_version_that_is_only_validated():
    async def story():
        async with Setting() as setting:
            setting.lead().quorum.may_upgrade.set()
            tried = await update_features(
                setting, ("metadata.version", 26, 1), UPGRADE, validate_only=True
            )
            assert tried.error_code is E.none
            assert setting.quorum.upgrades == [(1, True)]
            assert setting.quorum.kraft_version == 0
            assert setting.shell.image.metadata_version == 25

    asyncio.run(story())


def test_what_the_quorum_refuses_refuses_all():
    async def story():
        async with Setting() as setting:
            quorum = setting.lead().quorum
            quorum.may_upgrade.set()
            quorum.upgrade_refused = KafkaError(E.invalid_update_version, "voter 2 is too old")
            refused = await update_features(setting, ("metadata.version", 26, 1), UPGRADE)
            assert (refused.error_code, refused.error_message) == (
                E.invalid_update_version,
                "voter 2 is too old",
            )
            assert setting.shell.image.metadata_version == 25
            wrong = await update_features(setting, ("metadata.version", 99, 1), UPGRADE)
            assert wrong.error_code is E.invalid_update_version
            assert quorum.upgrades == [(1, False)], "nothing is asked for what can't be done"
            quorum.upgrade_refused = NotLeader(E.not_leader_or_follower, "no more")
            gone = await update_features(setting, UPGRADE)
            assert gone.error_code is E.not_controller

    asyncio.run(story())


def test_an_upgrade_of_kraft_version_ends_with_the_leadership():
    async def story():
        async with Setting() as setting:
            setting.lead()
            asked = asyncio.ensure_future(update_features(setting, UPGRADE))
            await setting.quorum.upgrade_asked.wait()
            assert setting.shell.core.waiting == 1
            setting.shell.on_leader_change(1, 2)
            assert (await asked).error_code is E.not_controller
            # The quorum's late answer means nothing any more.
            setting.quorum.may_upgrade.set()
            await asyncio.sleep(0.01)
            assert setting.shell.core.waiting == 0

    asyncio.run(story())


def test_a_broker_that_lacks_kraft_version_stands_in_its_way():
    async def story():
        async with Setting() as setting:
            setting.lead()
            await setting.register()
            refused = await update_features(setting, UPGRADE)
            assert refused.error_code is E.invalid_update_version
            assert "broker 1 does not support this feature" in refused.error_message
            assert setting.quorum.upgrades == []

    asyncio.run(story())
