"""The same requests to whatever broker, of groups whose members change the protocol (KIP-848).

Members of the classic protocol here are cooperative consumers: they say which partitions they have.
"""

from consumer_group_story import LEAVES, LEAVES_FOR_A_WHILE, beat, joins
from subscriptions import subscription

from wire.apis import ApiKey
from wire.messages import encode_body

OLD, SYNC, BEAT = 9, 5, 4
NEW = "NNNNNNNNQACNNNNNNNNNNN"
SECOND = "OOOOOOOOQACOOOOOOOOOOO"


def assignment(*partitions):
    from kio.schema.consumer_protocol_assignment.v3 import data

    given = (data.TopicPartition(topic="t", partitions=partitions),) if partitions else ()
    return b"\0\3" + encode_body(
        data.ConsumerProtocolAssignment(assigned_partitions=given, user_data=None)
    )


async def old_joins(t, what, group, member, *owned, **more):
    protocols = more.pop("protocols", (("sticky", subscription("t", owned=owned)),))
    return await t.join(what, OLD, group, member, protocols=protocols, **more)


async def old_alone(t, group, instance=None):
    """A classic group of one, which has all partitions; its id."""
    first = await old_joins(t, f"{group}, old comes", group, "", instance=instance)
    if instance is None:
        first = await old_joins(t, f"{group}, old joins", group, first.member_id)
    await t.sync(
        f"{group}, old is alone",
        SYNC,
        group,
        first.generation_id,
        first.member_id,
        ((first.member_id, assignment(0, 1, 2)),),
        instance=instance,
        protocol_name="sticky",
    )
    return first.member_id


async def up_and_down(t):
    """A new member joins a classic group; it leaves, and the group is a classic one again."""
    group = "migrates"
    old = await old_alone(t, group)

    async def syncs(what, generation):
        return await t.sync(what, SYNC, group, generation, old, protocol_name="sticky")

    await joins(t, "new joins old", 1, group, NEW)
    await t.beat("old must rejoin", BEAT, group, 1, old)
    await syncs("old is late", 1)
    joined = await old_joins(t, "old rejoins", group, old, 0, 1, 2)
    await syncs("old is told what it keeps", joined.generation_id)
    await beat(t, "new waits", 1, group, NEW, 2, owned=())
    await t.beat("old must rejoin again", BEAT, group, joined.generation_id, old)
    joined = await old_joins(t, "old has given", group, old, 0, 1)
    generation = joined.generation_id
    await syncs("old has what it keeps", generation)
    await beat(t, "new takes", 1, group, NEW, 2, owned=())
    for what, member, at in (
        ("right", old, generation),
        ("another generation", old, 9),
        ("of the other protocol", NEW, 2),
        ("of nobody", SECOND, 2),
    ):
        await t.beat(f"old beats, {what}", BEAT, group, at, member)
        await t.sync(f"old syncs, {what}", SYNC, group, at, member, protocol_name="sticky")
        await t.commit(f"old commits, {what}", 9, group, generation=at, member=member)
    await strangers(t, group)
    await t.leave("strangers leave", 5, group, (SECOND, None), ("", "nobody"))
    await t.ask(
        "both protocols",
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        1,
        lambda m: m.ConsumerGroupDescribeRequest(
            group_ids=(group,), include_authorized_operations=False
        ),
    )
    await beat(t, "new leaves old", 1, group, NEW, LEAVES)
    await beat(t, "new is gone", 1, group, NEW, 2)
    await t.beat("old must rejoin once more", BEAT, group, generation, old)
    await t.describe("classic again", 6, group)


async def strangers(t, group):
    """Joins that a consumer group refuses."""
    await old_joins(t, "another assignor", group, "", protocols=(("x", subscription("t")),))
    await old_joins(t, "no consumer", group, "", protocol_type="connect")
    await old_joins(t, "no subscription", group, "old", protocols=(("sticky", b"\0"),))
    await old_joins(t, "too short a session", group, "", timeout_ms=1)


async def static_member(t):
    """A static member takes the other protocol, and the first one again."""
    group = "migrates-static"
    old = await old_alone(t, group, "i")
    await joins(t, "migrating static, new", 1, group, NEW, instance="i")
    await t.beat("migrating static, old beats", BEAT, group, 1, old, "i")
    await beat(t, "migrating static, away", 1, group, NEW, LEAVES_FOR_A_WHILE, instance="i")
    joined = await old_joins(t, "migrating static, old again", group, "", instance="i")
    await t.sync(
        "migrating static, old has all",
        SYNC,
        group,
        joined.generation_id,
        joined.member_id,
        instance="i",
        protocol_name="sticky",
    )


async def old_joins_new(t):
    """A member of the classic protocol in a group of the new one, which stays that."""
    group = "mixed"
    await joins(t, "mixed, new", 1, group, NEW)
    first = await old_joins(t, "mixed, old comes", group, "")
    joined = await old_joins(t, "mixed, old joins", group, first.member_id)
    generation = joined.generation_id
    member = first.member_id
    await t.sync("mixed, sync", SYNC, group, generation, member, protocol_name="sticky")
    await t.beat("mixed, old waits", BEAT, group, generation, member)
    await beat(t, "mixed, new gives", 1, group, NEW, 2, owned=(0, 1, 2))
    await t.leave("mixed, old leaves", 5, group, (member, None))
    await beat(t, "mixed, new keeps", 1, group, NEW, 2, owned=(0, 1, 2))


async def groups_that_migrate(t):
    await up_and_down(t)
    await static_member(t)
    await old_joins_new(t)
