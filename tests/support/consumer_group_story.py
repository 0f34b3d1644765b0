"""The same requests of the consumer protocol (KIP-848) to whatever broker: what it answers."""

import asyncio

from wire.apis import ApiKey
from wire.messages import fill, millis

A, B, S = "AAAAAAAAQACAAAAAAAAAAA", "BBBBBBBBQACBBBBBBBBBBB", "SSSSSSSSQACSSSSSSSSSSS"
LEAVES, LEAVES_FOR_A_WHILE = -1, -2


async def beat(t, what, version, group, member, epoch, **more):
    """A heartbeat; None is "as before". `owned` are partitions of the topic."""
    owned = more.get("owned")

    def build(m):
        partitions = None
        if owned is not None:
            partitions = ()
            if owned:
                partitions = (m.TopicPartitions(topic_id=t.topic_id, partitions=owned),)
        return fill(
            m.ConsumerGroupHeartbeatRequest,
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            instance_id=more.get("instance"),
            rack_id=more.get("rack"),
            rebalance_timeout=millis(more.get("timeout_ms", -1)),
            subscribed_topic_names=more.get("topics"),
            subscribed_topic_regex=more.get("regex"),
            server_assignor=more.get("assignor"),
            topic_partitions=partitions,
        )

    return await t.ask(what, ApiKey.CONSUMER_GROUP_HEARTBEAT, version, build)


async def joins(t, what, version, group, member, **more):
    fields = {"timeout_ms": 20_000, "topics": ("t",), "owned": (), **more}
    return await beat(t, what, version, group, member, 0, **fields)


async def told(t, what, version, group, member, epoch, **more):
    """Heartbeats until the member is given partitions: a broker may assign them in between."""
    for number in range(200):
        answer = await beat(t, f"{what} {number}", version, group, member, epoch, **more)
        label = f"{what} {number}: CONSUMER_GROUP_HEARTBEAT {version}"
        last = t.told.pop(label)
        epoch = answer.member_epoch
        if answer.assignment is not None:
            t.told[f"{what}: CONSUMER_GROUP_HEARTBEAT {version}"] = last
            return answer
        await asyncio.sleep(0.02)
    raise AssertionError(f"{what}: no partitions")


async def describe(t, what, *groups):
    for version in (0, 1):
        await t.ask(
            what,
            ApiKey.CONSUMER_GROUP_DESCRIBE,
            version,
            lambda m: m.ConsumerGroupDescribeRequest(
                group_ids=groups, include_authorized_operations=True
            ),
        )


async def refusals(t, version):
    group = f"refused-consumer-{version}"

    async def refused(what, member=A, **more):
        await joins(t, f"refused, {what}", version, more.pop("group", group), member, **more)

    await refused("no group", group="")
    await refused("no timeout", timeout_ms=-1)
    await refused("no topics", topics=None)
    await refused("partitions at once", owned=(0,))
    await refused("partitions not told", owned=None)
    await refused("an unknown assignor", assignor="nobody")
    await refused("an empty instance", instance="")
    await refused("an empty rack", rack="")
    if version:
        await refused("no member id", member="")
        await refused("no expression", topics=None, regex="(")
        await refused("an empty expression", topics=None, regex="")
    for epoch in (-3, LEAVES_FOR_A_WHILE, LEAVES, 5):
        await beat(t, f"refused, epoch {epoch}", version, group, A, epoch, timeout_ms=100)
    await beat(t, "refused, nobody", version, group, "", 5)
    await describe(t, f"refused {version}", group, "nobody-at-all", "")


async def two_members(t, version):
    group = f"consumer-{version}"
    first = await joins(t, "first", version, group, A, rack="r")
    if first.assignment is None or not first.assignment.topic_partitions:
        first = await told(t, "first has all", version, group, A, first.member_epoch)
    epoch = first.member_epoch
    await beat(t, "first, as before", version, group, A, epoch, owned=(0, 1, 2))
    await describe(t, f"one member {version}", group)
    await joins(t, "second", version, group, B)
    given = await told(t, "first is to give", version, group, A, epoch, owned=(0, 1, 2))
    [kept] = given.assignment.topic_partitions
    t.told[f"first keeps {version}"] = len(kept.partitions)
    await describe(t, f"revoking {version}", group)
    given = await beat(
        t, "first has given", version, group, A, given.member_epoch, owned=kept.partitions
    )
    taken = await told(t, "second takes", version, group, B, given.member_epoch, owned=())
    [mine] = taken.assignment.topic_partitions
    await beat(t, "second has", version, group, B, taken.member_epoch, owned=mine.partitions)
    await describe(t, f"two members {version}", group)
    epoch = taken.member_epoch
    await offsets(t, version, group, epoch)
    await others_apis(t, version, group)
    for strange in (epoch + 1, epoch - 1, epoch - 5):
        what = f"strange epoch {strange - epoch}"
        await beat(t, what, version, group, A, strange, owned=kept.partitions)
    await beat(t, "a stranger", version, group, S, epoch)
    await beat(t, "second leaves", version, group, B, LEAVES)
    await beat(t, "second leaves again", version, group, B, LEAVES)
    await told(t, "first has all again", version, group, A, epoch, owned=kept.partitions)
    await beat(t, "first leaves", version, group, A, LEAVES)
    await describe(t, f"empty {version}", group)
    await t.delete(f"empty consumer {version}", 2, group)
    await describe(t, f"deleted {version}", group)


async def offsets(t, version, group, epoch):
    """Commits and fetches with a member's epoch."""
    for committing in (8, 9, 10):
        what = f"{version}, of a consumer"
        await t.commit(f"{what} right", committing, group, generation=epoch, member=A)
        await t.commit(f"{what} stale", committing, group, generation=epoch - 1, member=A)
        await t.commit(f"{what} early", committing, group, generation=epoch + 1, member=A)
        await t.commit(f"{what} strange", committing, group, generation=epoch, member=S)
        await t.commit(f"{what} from outside", committing, group)
    for committing in range(2, 9):
        what = f"{version}, of an older client"
        await t.commit(what, committing, group, generation=epoch - 1, member=A)
    for fetching in (9, 10):
        for what, member, at in (
            ("right", A, epoch),
            ("stale", A, epoch - 1),
            ("strange", S, epoch),
            ("from outside", None, -1),
        ):
            label = f"{version}, consumer {what}"
            await t.fetch(label, fetching, group, member_id=member, member_epoch=at)
    await t.delete_offsets(f"of consumers {version}", group, ("t", (0,)))


async def others_apis(t, version, group):
    """The classic protocol's APIs on a consumer group."""
    for describing in range(7):
        await t.describe(f"a consumer group {version}", describing, group)
    await t.beat(f"a consumer group {version}", 4, group, 1, A)
    await t.sync(f"a consumer group {version}", 5, group, 1, A)
    await t.leave(f"a consumer group {version}", 5, group, (S, None))
    await t.delete(f"a consumer group {version}", 2, group)


async def static_member(t):
    group = "consumer-static"
    first = await joins(t, "static", 1, group, A, instance="i")
    epoch = first.member_epoch
    if first.assignment is None or not first.assignment.topic_partitions:
        epoch = (await told(t, "static has all", 1, group, A, epoch, instance="i")).member_epoch
    await joins(t, "static, taken", 1, group, B, instance="i")
    # As franz-go 1.22 leaves.
    await beat(t, "static goes, unnamed", 1, group, A, LEAVES_FOR_A_WHILE)
    await beat(t, "static goes", 1, group, A, LEAVES_FOR_A_WHILE, instance="i")
    await describe(t, "static gone", group)
    again = await joins(t, "static, again", 1, group, B, instance="i")
    await beat(t, "static, fenced", 1, group, A, epoch, instance="i")
    await beat(t, "static, new", 1, group, B, again.member_epoch, instance="i", owned=(0, 1, 2))
    await beat(t, "static leaves", 1, group, B, LEAVES, instance="i")


async def other_groups(t):
    """Classic groups asked by the consumer protocol, and the other way round."""
    await t.commit("simple, for consumers", 9, "simple-then-consumer")
    await describe(t, "a simple group", "simple-then-consumer")
    await t.list("before", 5, (), ("consumer",))
    await joins(t, "simple becomes consumer", 1, "simple-then-consumer", A)
    await t.fetch("after becoming", 9, "simple-then-consumer")
    await t.list("after", 5, (), ("Consumer",))
    await beat(t, "leaves", 1, "simple-then-consumer", A, LEAVES)
    first = await t.join("consumer becomes classic", 3, "simple-then-consumer")
    await t.describe("became classic", 6, "simple-then-consumer")
    await t.leave("became classic", 5, "simple-then-consumer", (first.member_id, None))


async def expressions(t):
    group = "consumer-regex"
    first = await joins(t, "regex", 1, group, A, topics=None, regex="t|u.*")
    if first.assignment is None or not first.assignment.topic_partitions:
        first = await told(t, "regex has all", 1, group, A, first.member_epoch)
    await describe(t, "regex", group)
    await t.delete_offsets("regex", group, ("t", (0,)))
    await beat(t, "regex leaves", 1, group, A, LEAVES)


async def consumer_groups(t):
    """All of the consumer protocol."""
    for version in (0, 1):
        await refusals(t, version)
        await two_members(t, version)
    await static_member(t)
    await expressions(t)
    await other_groups(t)
