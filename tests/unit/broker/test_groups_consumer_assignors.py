"""The server-side assignors, against their rules and against naive ones."""

from itertools import combinations
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from broker.groups.consumer import range_assignor, uniform_assignor
from broker.groups.consumer.assignors import Subscriber

TOPICS = [UUID(int=n) for n in range(1, 5)]


def subscriber(name, topics, current=None, instance=None):
    return Subscriber(name, instance, tuple(sorted(topics)), current or {})


def as_pairs(partitions):
    return {(topic, p) for topic, those in partitions.items() for p in those}


def check_whole(members, counts, target):
    """Each partition that somebody subscribes to has one owner, who subscribes to it."""
    assert list(target) == [m.member_id for m in members]
    subscribed = {t for m in members for t in m.topics}
    wanted = {(t, p) for t in subscribed for p in range(counts[t])}
    given_out = [pair for partitions in target.values() for pair in as_pairs(partitions)]
    assert sorted(given_out) == sorted(wanted)
    for member in members:
        partitions = target[member.member_id]
        assert set(partitions) <= set(member.topics)
        assert all(those and those == tuple(sorted(those)) for those in partitions.values())


counts_of_topics = st.fixed_dictionaries({t: st.integers(0, 7) for t in TOPICS})
subscriptions = st.lists(st.sets(st.sampled_from(TOPICS)), min_size=1, max_size=6)


@st.composite
def same_subscriptions(draw):
    topics = draw(st.sets(st.sampled_from(TOPICS)))
    return [topics] * draw(st.integers(1, 6))


@st.composite
def histories(draw, subscription_lists):
    """Members, some of whom have something from an earlier, arbitrary target."""
    counts = draw(counts_of_topics)
    lists = draw(subscription_lists)
    names = [f"m{n}" for n in range(len(lists))]
    current = {name: {} for name in names}
    for topic in TOPICS:
        # A count that the topic had earlier may have been smaller, never greater.
        for partition in range(draw(st.integers(0, counts[topic]))):
            owner = draw(st.sampled_from([*names, "gone"]))
            if owner in current:
                current[owner].setdefault(topic, []).append(partition)
    members = tuple(
        subscriber(name, topics, {t: tuple(p) for t, p in current[name].items()})
        for name, topics in zip(names, lists, strict=True)
    )
    return members, counts


def loads(target):
    return {name: len(as_pairs(partitions)) for name, partitions in target.items()}


@given(histories(same_subscriptions()))
def test_uniform_is_within_one_partition_and_moves_no_more_than_it_must(history):
    members, counts = history
    target = uniform_assignor.assign(members, counts)
    check_whole(members, counts, target)
    sizes = sorted(loads(target).values())
    assert sizes[-1] - sizes[0] <= 1
    kept = sum(len(as_pairs(target[m.member_id]) & as_pairs(m.current)) for m in members)
    assert kept == most_that_can_stay(members, counts)
    assert all(
        target[m.member_id] is m.current for m in members if target[m.member_id] == m.current
    )


def most_that_can_stay(members, counts):
    """Over all choices of who has the extra partitions, the most that members can keep."""
    have = [len({p for p in as_pairs(m.current) if p[0] in m.topics}) for m in members]
    quota, extras = divmod(sum(counts[t] for t in members[0].topics), len(members))
    return max(
        sum(min(size, quota + (n in chosen)) for n, size in enumerate(have))
        for chosen in combinations(range(len(members)), extras)
    )


@given(histories(subscriptions))
def test_uniform_leaves_no_move_that_would_improve_it(history):
    members, counts = history
    target = uniform_assignor.assign(members, counts)
    check_whole(members, counts, target)
    sizes = loads(target)
    for giver in members:
        for topic in target[giver.member_id]:
            for taker in members:
                if topic in taker.topics:
                    assert sizes[giver.member_id] - sizes[taker.member_id] <= 1


@given(histories(subscriptions))
def test_what_uniform_says_stands_until_something_changes(history):
    members, counts = history
    target = uniform_assignor.assign(members, counts)
    again = tuple(m._replace(current=target[m.member_id]) for m in members)
    assert all(
        after is target[name] for name, after in uniform_assignor.assign(again, counts).items()
    )


@given(histories(same_subscriptions()))
def test_uniform_forgets_partitions_that_two_have_or_that_do_not_exist(history):
    members, counts = history
    damaged = tuple(m._replace(current={t: (0, counts[t] + 3) for t in m.topics}) for m in members)
    check_whole(damaged, counts, uniform_assignor.assign(damaged, counts))


def test_uniform_of_nobody_and_of_nothing():
    assert uniform_assignor.assign((), {}) == {}
    assert uniform_assignor.assign((subscriber("a", []),), {}) == {"a": {}}


def naive_range(members, counts):
    target = {m.member_id: {} for m in members}
    static = sorted((m for m in members if m.instance_id is not None), key=lambda m: m.instance_id)
    dynamic = sorted((m for m in members if m.instance_id is None), key=lambda m: m.member_id)
    for topic in counts:
        owners = [m.member_id for m in static + dynamic if topic in m.topics]
        for partition in range(counts[topic] if owners else 0):
            # The first `counts % len` owners have one more than the others.
            share, more = divmod(counts[topic], len(owners))
            if partition < more * (share + 1):
                owner = owners[partition // (share + 1)]
            else:
                owner = owners[more + (partition - more * (share + 1)) // share]
            target[owner].setdefault(topic, []).append(partition)
    return {name: {t: tuple(p) for t, p in those.items()} for name, those in target.items()}


@given(histories(subscriptions), st.data())
def test_range_gives_each_topic_in_ranges(history, data):
    members, counts = history
    members = tuple(
        m._replace(instance_id=data.draw(st.sampled_from([None, f"i{len(members) - n}"])))
        for n, m in enumerate(members)
    )
    target = range_assignor.assign(members, counts)
    check_whole(members, counts, target)
    assert target == naive_range(members, counts)


def test_range_puts_partitions_of_one_number_together():
    members = tuple(subscriber(name, TOPICS[:2]) for name in "abc")
    target = range_assignor.assign(members, {TOPICS[0]: 5, TOPICS[1]: 5})
    assert target == {
        "a": {TOPICS[0]: (0, 1), TOPICS[1]: (0, 1)},
        "b": {TOPICS[0]: (2, 3), TOPICS[1]: (2, 3)},
        "c": {TOPICS[0]: (4,), TOPICS[1]: (4,)},
    }
