"""Random commits, deletions and transactions: the log alone says which offsets count."""

import random

from examples import examples
from group_scene import GroupScene
from hypothesis import given
from hypothesis import strategies as st

from broker.groups import events as e
from wire.errors import ErrorCode
from wire.group_records import OffsetCommitKey, decode

PARTITIONS = (0, 1)
PRODUCERS = (7, 8)


def offsets_of(scene, upto):
    """Committed and unstable partitions after the first records of the log, by Kafka's rule: what a
    transaction committed counts if its record stands after that of what counts already."""
    counts, open_ = {}, {}
    for place, record in enumerate(scene.log[:upto]):
        if record is None:
            producer, committed = scene.markers[place]
            for key, (at, offset) in open_.pop(producer, {}).items():
                if committed and at > counts.get(key, (-1, 0))[0]:
                    counts[key] = at, offset
            continue
        key, value = decode(*record[:2])
        if not isinstance(key, OffsetCommitKey):
            continue
        if value is None:
            counts.pop(key, None)
            for pending in open_.values():
                pending.pop(key, None)
        elif record[2] == e.NO_PRODUCER:
            counts[key] = place, value.offset
        else:
            open_.setdefault(record[2], {})[key] = place, value.offset
    unstable = {key.partition for pending in open_.values() for key in pending}
    return {key.partition: offset for key, (_, offset) in counts.items()}, unstable


def commit(scene, producer, partition):
    one = (e.CommittedOffset("t", partition, len(scene.asked) + 1),)
    if producer is None:
        scene.ask(e.OffsetCommit, "g", "", -1, None, one)
    else:
        scene.ask(e.TxnOffsetCommit, "g", producer, 0, "", -1, None, one)


def check(scene):
    counts, unstable = offsets_of(scene, scene.high_watermark)
    told = scene.told(e.OffsetFetch, "g", (("t", PARTITIONS),)).topics[0][1]
    assert {one.partition: one.offset for one in told if one.offset >= 0} == counts
    everything = scene.told(e.OffsetFetch, "g", None).topics
    assert {one.partition: one.offset for _, ones in everything for one in ones} == counts
    if scene.high_watermark == len(scene.log):
        stable = scene.told(e.OffsetFetch, "g", (("t", PARTITIONS),), require_stable=True)
        errors = {one.partition for one in stable.topics[0][1] if one.error is not ErrorCode.none}
        assert errors == unstable


def step(scene, op, producer, partition):
    if op == "commit":
        commit(scene, None, partition)
    elif op == "transactional":
        commit(scene, producer, partition)
    elif op in ("end", "abort"):
        scene.end_transaction(producer, op == "end")
    elif op == "delete":
        scene.ask(e.OffsetDelete, "g", (("t", (partition,)),))
    elif op == "delete topic":
        scene.tell(e.TopicsDeleted(("t",)))
    elif op == "delete group":
        scene.ask(e.DeleteGroups, ("g",))
    elif op == "replicate":
        scene.commit()
        scene.replicated = not scene.replicated
    elif op == "fail":
        failing = scene.append_error is not None
        scene.append_error = None if failing else ErrorCode.request_timed_out
    elif op == "fail over":
        scene.fail_over()


OPS = ["commit"] * 4 + ["transactional"] * 6 + ["end", "end", "abort", "delete", "replicate"]
OPS += ["replicate", "fail", "delete topic", "delete group", "fail over"]
STEPS = st.lists(
    st.tuples(st.sampled_from(OPS), st.sampled_from(PRODUCERS), st.sampled_from(PARTITIONS)),
    max_size=60,
)


@examples(100)
@given(STEPS)
def test_what_counts_is_what_the_committed_log_says(steps):
    scene = GroupScene()
    for one in steps:
        step(scene, *one)
        check(scene)


def test_long_histories_agree_with_the_log_too():
    chance = random.Random(3)
    for _ in range(15):
        scene = GroupScene()
        for _ in range(150):
            step(scene, chance.choice(OPS), chance.choice(PRODUCERS), chance.choice(PARTITIONS))
            check(scene)
        assert len(scene.markers) > 5
