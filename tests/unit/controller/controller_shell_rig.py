"""The shell of a controller behind a real listener, on a quorum that can be told to wait, to
refuse, to go away."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from controller.config import ControllerConfig
from controller.shell import ControllerShell
from metadata.image import METADATA_VERSION
from metadata.loader import ImageLoader
from metadata.records import FeatureLevelRecord
from net.client import Connection
from net.handlers import Api, HandlerTable, Later
from net.server import ListenerConfig, serve
from wire.apis import ApiKey
from wire.errors import ErrorCode, KafkaError
from wire.messages import fill, request_class, request_module, response_class
from world.real import real_env

E = ErrorCode
NODE = 3000
ANSWER_MS = 30_000
NEVER_MS = 600_000
"""A session as long as this doesn't end in a test, however busy the machine is."""


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
        return await self.client.send(fill(request_class(key, version), **fields), ANSWER_MS)

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
        reply = await self.client.send(self.new_topic_request(name, timeout_ms), ANSWER_MS)
        return reply.topics[0]


def run(story, **config):
    async def main():
        async with Setting(**config) as setting:
            await story(setting)

    asyncio.run(main())
