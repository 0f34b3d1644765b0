"""Random changes of the image, faster than logs open and close: what is left is what it says."""

import asyncio
import random

import pytest
from broker_fakes import cluster, until
from test_broker_end_to_end import batch, produce

from broker.partition import Role
from broker.partition_events import Assigned, MinIsr
from metadata.loader import ImageLoader
from metadata.records import encode
from metadata.records import types as t
from wire.apis import ErrorCode


def change(c, chance):
    controller = c.controller
    names = sorted(controller.image.topics_by_name)
    op = chance.choice(["create", "create", "delete", "lead", "lead", "move", "config", "again"])
    if op == "create" and len(names) < 12:
        free = [f"t{i}" for i in range(12) if f"t{i}" not in names]
        controller.create_topic(chance.choice(free), chance.randint(1, 3), (1, 2))
    if not names:
        return
    name = chance.choice(names)
    topic = controller.image.topic(name)
    index = chance.choice(sorted(topic.partitions))
    if op == "delete":
        controller.delete_topic(name)
    elif op == "again":
        controller.delete_topic(name)
        controller.create_topic(name, 2, (1, 2))
    elif op == "lead" and topic.partitions[index].replicas == (1, 2):
        leader = chance.choice([1, 2, -1])
        controller.set_leader(name, index, leader, (1, 2))
    elif op == "move":
        replicas = chance.choice([(1,), (2,), (1, 2)])
        controller.commit(
            t.PartitionChangeRecord(
                partition_id=index,
                topic_id=topic.id,
                replicas=replicas,
                isr=replicas,
                leader=replicas[0],
            )
        )
    elif op == "config":
        value = str(chance.randint(1, 1000))
        controller.commit(
            t.ConfigRecord(resource_type=2, resource_name=name, name="retention.ms", value=value)
        )


def check(c, broker_id):
    broker, image = c.brokers[broker_id], c.controller.image
    wanted = {}
    for topic, index in image.partitions_of_broker(broker_id):
        wanted[topic.name, index] = (topic.id, topic.partitions[index])
    held = {(r.topic, r.index): r for r in broker.replicas}
    assert sorted(held) == sorted(wanted)
    for key, (topic_id, partition) in wanted.items():
        replica = held[key]
        assert replica.topic_id == topic_id == replica.log.topic_id
        core = replica.core
        core.check_invariants()
        assert (core.leader, core.leader_epoch) == (partition.leader, partition.leader_epoch)
        assert core.role is (Role.LEADER if partition.leader == broker_id else Role.FOLLOWER)
        override = image.topic_config(key[0]).get("retention.ms")
        if override is not None:
            assert replica.log.config.retention_ms == int(override)
    on_disk = {key for d in broker.store.directories for key in d.partitions()}
    assert on_disk == set(wanted)
    assert {key for d in broker.store.directories for key in d.logs} == set(wanted)
    followed = {
        (topic.name, index)
        for topic, index in image.partitions_of_broker(broker_id)
        if topic.partitions[index].leader not in (broker_id, -1)
    }
    fetched = {
        (f.replica.topic, f.replica.index)
        for fetcher in broker.fetchers._by_source.values()
        for f in fetcher._partitions.values()
    }
    assert fetched == followed


@pytest.mark.parametrize("seed", range(2))
def test_replicas_are_what_the_image_says(tmp_path, seed):
    chance = random.Random(seed)

    async def main():
        async with cluster(tmp_path, (1, 2)) as c:
            for round_ in range(4):
                for _ in range(15):
                    change(c, chance)
                    if chance.random() < 0.4:
                        await asyncio.sleep(chance.choice([0, 0, 0.001, 0.01]))
                await asyncio.sleep(0)
                for broker in c.brokers.values():
                    await broker.replicas.settled()
                for broker_id in (1, 2):
                    check(c, broker_id)
                if round_ == 1:
                    await c.stop_broker(1)
                    await c.start_broker(1)
                if round_ == 2:
                    await c.kill_broker(2)
                    c.controller.fence(2)
                    change(c, chance)
                    await c.start_broker(2)
            if c.controller.image.topic("last") is None:
                c.controller.create_topic("last", 1, (1, 2))
            await until(
                lambda: all(
                    not isinstance(b.replicas.find("last", None, 0), ErrorCode)
                    for b in c.brokers.values()
                )
            )
            connection = await c.connect(1)
            assert (await produce(connection, "last", 0, batch(b"x"))).error_code is ErrorCode.none

    asyncio.run(main())


@pytest.mark.parametrize("known", [True, False])
def test_a_new_minimum_is_told_before_the_isr_that_was_decided_on_it(tmp_path, monkeypatch, known):
    """Whether the node knows what changed between two images or not."""

    async def main():
        async with cluster(tmp_path, (1, 2)) as c:
            c.controller.create_topic("t", 1, (1, 2))
            await until(lambda: c.brokers[1].replicas.leaders == 1)
            replicas = c.brokers[1].replicas
            (replica,) = replicas
            told = []
            monkeypatch.setattr(type(replica), "tell", lambda self, event: told.append(type(event)))
            before = replicas.image
            topic = before.topic("t")
            records = (
                t.PartitionChangeRecord(partition_id=0, topic_id=topic.id, isr=(1,)),
                t.ConfigRecord(
                    resource_type=2, resource_name="t", name="min.insync.replicas", value="2"
                ),
            )
            values = [encode(record) for record in records]
            delta = ImageLoader(before).on_batch(before.last_offset + 1, 1, 0, values)
            replicas.on_image(delta.image, delta if known else None)
            assert told == [MinIsr, Assigned]
            monkeypatch.undo()

    asyncio.run(main())
