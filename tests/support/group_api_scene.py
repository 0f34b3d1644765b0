"""A broker whose group coordinator's core says what a test wants: `run(path, test)` calls
`test(scene)`, and `scene.ask` gives what the core was asked, and what became of its answer."""

import asyncio
from contextlib import asynccontextmanager

from broker_fakes import cluster, until

from broker.group_partition import OFFSETS_TOPIC
from broker.groups.effects import Answer
from metadata.records import types as t
from wire.messages import fill, millis, request_module, response_class, response_module

MS0 = millis(0)


class Core:
    """Notes requests, and answers with what the test has put into `answers`, by the request's
    type; a function of the request or a value."""

    def __init__(self):
        self.asked = []
        self.answers = {}

    def handle(self, event, now_ms, wall_ms):
        if not hasattr(event, "caller"):
            return []
        self.asked.append(event._replace(caller=0))
        answer = self.answers[type(event)]
        return [Answer(event.caller, answer(event) if callable(answer) else answer)]

    def next_deadline_ms(self):
        return None

    def replay(self, *item):
        pass


class Scene:
    def __init__(self, c, core, topic_id, connection):
        self.c = c
        self.core = core
        self.topic_id = topic_id
        self.connection = connection

    async def ask(self, key, version, build, answer=None):
        """(what the core was asked, the response)."""
        entity = build(request_module(key, version))
        self.core.asked = []
        if answer is not None:
            self.core.answers = answer
        response = await self.connection.send(entity, 10_000)
        return self.core.asked, response


@asynccontextmanager
async def scene(path, group_version=1):
    async with cluster(path) as c:
        core = Core()
        c.brokers[1].groups._make_core = lambda: core
        c.controller.commit(t.FeatureLevelRecord(name="group.version", feature_level=group_version))
        topic_id = c.controller.create_topic("t", 2)
        c.controller.create_topic(OFFSETS_TOPIC)
        groups = c.brokers[1].groups
        await until(lambda: groups.partitions and groups.partitions[0].loaded)
        yield Scene(c, core, topic_id, await c.connect(1))


def run(path, test, **more):
    async def main():
        async with scene(path, **more) as s:
            await test(s)

    asyncio.run(main())


def expected(key, version, name=None, **fields):
    """A response entity of that version, or one of its nested ones."""
    cls = getattr(response_module(key, version), name) if name else response_class(key, version)
    return fill(cls, throttle_time=MS0, **fields)
