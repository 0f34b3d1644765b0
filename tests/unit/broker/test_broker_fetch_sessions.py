"""Incremental fetch sessions (KIP-227): the cache, and what passes over the wire."""

import asyncio
import gc
import random
import weakref
from uuid import UUID

import pytest
from broker_fakes import cluster, until
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from test_broker_end_to_end import batch, produce, values_of

from broker.fetch_sessions import FetchSessions, next_epoch
from wire.apis import ApiKey, ErrorCode
from wire.errors import KafkaError
from wire.hot import (
    FetchedPartition,
    FetchForgotten,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    decode_fetch_response,
    encode_fetch_request,
)

EVICTION_MS = 1000
NOW_MS = 1_000_000


def wanted(count, topic="t", first=0):
    parts = [FetchPartition(index, 0, 1 << 20) for index in range(first, first + count)]
    return [FetchTopic(topic, None, parts)]


def cache(slots, **kwargs):
    chance = random.Random(1)
    return FetchSessions(slots, chance.randint, eviction_ms=EVICTION_MS, **kwargs)


def create(sessions, size=1, now_ms=NOW_MS, privileged=False):
    return sessions.create(wanted(size), privileged=privileged, uses_ids=False, now_ms=now_ms)


def use(sessions, session, now_ms, topics=(), forgotten=()):
    return sessions.resume(session.id, session.epoch, topics, forgotten, by_id=False, now_ms=now_ms)


def refusal(call):
    with pytest.raises(KafkaError) as refused:
        call()
    return refused.value.code


def test_epochs_go_on_and_wrap():
    assert [next_epoch(e) for e in (-1, 0, 1, 2**31 - 1)] == [-1, 1, 2, 1]


def test_a_full_cache_refuses_what_is_worth_no_more():
    sessions = cache(2)
    first, second = create(sessions, 3), create(sessions, 3)
    assert create(sessions, 5) is None, "both are too young to go for a client"
    later = NOW_MS + EVICTION_MS + 1
    for session in (first, second):
        use(sessions, session, later)
    assert create(sessions, 3, later) is None, "no larger than both"
    assert create(sessions, 4, later) is not None
    assert len(sessions) == 2
    gone = min(first, second, key=lambda s: s.id)
    assert sessions.get(gone.id) is None
    assert sessions.evictions == 1


def test_idle_sessions_go_first_whoever_has_them():
    sessions = cache(2)
    idle = create(sessions, 9, privileged=True)
    busy = create(sessions, 1)
    later = NOW_MS + EVICTION_MS + 1
    use(sessions, busy, later)
    assert create(sessions, 1, later) is not None
    assert sessions.get(idle.id) is None
    assert sessions.get(busy.id) is busy


def test_a_follower_pushes_out_a_client_and_not_another_young_follower():
    sessions = cache(2)
    follower = create(sessions, 1, privileged=True)
    client = create(sessions, 99)
    assert create(sessions, 1, privileged=True) is not None
    assert sessions.get(client.id) is None
    assert sessions.get(follower.id) is follower
    assert create(sessions, 50, privileged=True) is None
    assert create(sessions, 50) is None


def test_without_slots_there_are_no_sessions():
    assert create(cache(0)) is None


def test_requests_are_checked():
    sessions = cache(10)
    session = create(sessions, 2)
    assert use(sessions, session, NOW_MS) is session
    resume = sessions.resume
    common = {"by_id": False, "now_ms": NOW_MS}
    code = refusal(lambda: resume(session.id + 1, 2, (), (), **common))
    assert code is ErrorCode.fetch_session_id_not_found
    for epoch in (1, 3, -7):
        code = refusal(lambda epoch=epoch: resume(session.id, epoch, (), (), **common))
        assert code is ErrorCode.invalid_fetch_session_epoch
    code = refusal(lambda: resume(session.id, 2, (), (), by_id=True, now_ms=NOW_MS))
    assert code is ErrorCode.fetch_session_topic_id_error
    assert resume(session.id, 2, (), (), **common) is session


def test_partitions_come_change_and_go():
    sessions = cache(10)
    session = create(sessions, 3)
    changed = [FetchTopic("t", None, [FetchPartition(1, 77, 5), FetchPartition(9, 1, 5)])]
    use(sessions, session, NOW_MS, changed, [FetchForgotten("t", None, [0, 4])])
    assert [p.asked.partition for p in session.partitions.values()] == [1, 2, 9]
    assert session.partitions["t", 1].asked.fetch_offset == 77
    assert sessions.partitions == 3
    assert use(sessions, session, NOW_MS, (), [FetchForgotten("t", None, [1, 2, 9])]) is None
    assert (len(sessions), sessions.partitions) == (0, 0)


def test_the_partitions_of_all_sessions_are_bounded():
    sessions = cache(10, most_partitions=10)
    session = create(sessions, 6)
    assert create(sessions, 5) is None
    assert create(sessions, 4) is not None
    code = refusal(lambda: use(sessions, session, NOW_MS, wanted(1, first=50)))
    assert code is ErrorCode.fetch_session_id_not_found
    assert (len(sessions), sessions.partitions) == (1, 4)


def answer(index, high_watermark=5, log_start=0, **kwargs):
    return FetchedPartition(index, kwargs.pop("error", 0), high_watermark, 5, log_start, **kwargs)


@pytest.mark.parametrize(
    "news",
    [
        {"high_watermark": 6},
        {"log_start": 1},
        {"records_size": 9},
        {"error": 6},
        {"diverging_epoch": (1, 2)},
        {"preferred_read_replica": 3},
    ],
)
def test_only_news_is_told(news):
    session = create(cache(10), 1)
    parts = list(session.partitions.values())
    assert session.news(parts, [answer(0)]) != []
    assert session.news(parts, [answer(0)]) == []
    [topic] = session.news(parts, [answer(0, **news)])
    assert (topic.name, [p.index for p in topic.partitions]) == ("t", [0])


def test_the_end_of_an_error_is_news():
    session = create(cache(10), 1)
    parts = list(session.partitions.values())
    session.news(parts, [answer(0)])
    assert session.news(parts, [answer(0, error=3)]) != []
    assert session.news(parts, [answer(0)]) != []
    assert session.news(parts, [answer(0)]) == []


def test_who_got_records_goes_to_the_end_of_the_line():
    session = create(cache(10), 4)
    parts = list(session.partitions.values())
    session.news(parts, [answer(0), answer(1, records_size=1), answer(2), answer(3)])
    assert [p.asked.partition for p in session.partitions.values()] == [0, 2, 3, 1]


class Twin:
    """Kafka's rules once more, the slow way: all is looked at each time."""

    def __init__(self, slots):
        self.slots = slots
        self.known = {}  # id: [privileged, size, created, used, ripe at its last use]

    def create(self, session_id, size, privileged, now_ms):
        self.known[session_id] = [privileged, size, now_ms, now_ms, False]

    def victim(self, size, privileged, now_ms):
        """None: there is room. False: nobody goes."""
        if len(self.known) < self.slots:
            return None
        if not self.known:
            return False
        order = list(self.known)
        idlest = min(order, key=lambda i: (self.known[i][3], order.index(i)))
        if now_ms - self.known[idlest][3] > EVICTION_MS:
            return idlest
        able = [i for i, k in self.known.items() if k[4] or (privileged and not k[0])]
        if not able:
            return False
        least = min(able, key=lambda i: (self.known[i][0], self.known[i][1], i))
        mine, its = (privileged, size, 0), (*self.known[least][:2], least)
        return False if mine < its else least

    def use(self, session_id, size, now_ms):
        entry = self.known.pop(session_id)
        entry[1], entry[3], entry[4] = size, now_ms, now_ms - entry[2] > EVICTION_MS
        self.known[session_id] = entry


actions = st.lists(
    st.tuples(
        st.sampled_from(["create", "use", "remove"]),
        st.integers(1, 5),
        st.booleans(),
        st.integers(0, 900),
        st.integers(0, 10),
    ),
    max_size=60,
)


@examples(200)
@given(actions, st.integers(0, 4))
def test_the_cache_is_its_twin(steps, slots):
    sessions, twin, now_ms = cache(slots), Twin(slots), NOW_MS
    for action, size, privileged, later_ms, which in steps:
        now_ms += later_ms
        if action == "create":
            victim = twin.victim(size, privileged, now_ms)
            made = create(sessions, size, now_ms, privileged)
            assert (made is None) == (victim is False)
            if made is not None:
                twin.known.pop(victim, None)
                twin.create(made.id, size, privileged, now_ms)
        elif twin.known:
            session = sessions.get(list(twin.known)[which % len(twin.known)])
            if action == "remove":
                sessions.remove(session.id)
                del twin.known[session.id]
            else:
                held = len(session.partitions)
                gone = [FetchForgotten("t", None, list(range(size, held)))]
                use(sessions, session, now_ms, wanted(size), gone)
                twin.use(session.id, size, now_ms)
        assert [s for s in twin.known if sessions.get(s) is None] == []
        assert len(sessions) == len(twin.known)
        assert sessions.partitions == sum(k[1] for k in twin.known.values())


# -- over the wire ---------------------------------------------------------------------------------


class Client:
    """Sends fetches of one session as a client does, by hand."""

    def __init__(self, connection, version, topic_ids):
        self.connection = connection
        self.version = version
        self.topic_ids = topic_ids
        self.session_id = 0
        self.epoch = 0

    async def fetch(self, offsets=None, *, forget=(), wait_ms=0, **kwargs):
        """`offsets` by (topic, partition); the answers by (topic, partition)."""
        limits = kwargs.pop("partition_bytes", 1 << 20), kwargs.pop("leader_epoch", -1)
        topics = [
            FetchTopic(name, self.topic_ids[name], [FetchPartition(index, offset, *limits)])
            for (name, index), offset in (offsets or {}).items()
        ]
        gone = [FetchForgotten(name, self.topic_ids[name], [index]) for name, index in forget]
        given = {
            "session_id": self.session_id,
            "session_epoch": self.epoch,
            "forgotten": gone,
            **kwargs,
        }
        request = FetchRequest(wait_ms, 1, given.pop("max_bytes", 1 << 25), topics, **given)
        body = await self.connection.send_raw(
            ApiKey.FETCH, self.version, encode_fetch_request(self.version, request), 20_000
        )
        response = decode_fetch_response(self.version, body)
        if not response.error_code and given["session_epoch"] >= 0:
            self.session_id = response.session_id
            self.epoch = next_epoch(given["session_epoch"]) if response.session_id else 0
        names = {topic_id: name for name, topic_id in self.topic_ids.items()}
        return response, {
            (names[t.topic_id] if self.version >= 13 else t.name, p.index): p
            for t in response.topics
            for p in t.partitions
        }


def with_topics(tmp_path, names, test, partitions=2, version=13, **properties):
    async def main():
        async with cluster(tmp_path, **properties) as c:
            ids = {name: c.controller.create_topic(name, partitions) for name in names}
            await until(lambda: c.brokers[1].replicas.leaders == partitions * len(names))
            client = Client(await c.connect(1), version, ids)
            await test(c, client, await c.connect(1))

    asyncio.run(main())


@pytest.mark.parametrize("version", [7, 11, 12, 13, 17, 18])
def test_a_session_tells_what_is_new(tmp_path, version):
    async def test(c, client, producer):
        for index in (0, 1):
            await produce(producer, "t", index, batch(b"0-%d" % index))
        response, answers = await client.fetch({("t", 0): 0, ("t", 1): 0, ("u", 0): 0})
        assert response.session_id > 0
        assert [(k, values_of(p.records[0] if p.records else b"")) for k, p in answers.items()] == [
            (("t", 0), [b"0-0"]),
            (("t", 1), [b"0-1"]),
            (("u", 0), []),
        ]
        # A client names what it moved, and is told nothing where nothing is new.
        response, answers = await client.fetch({("t", 0): 1, ("t", 1): 1})
        assert answers == {}
        waiting = asyncio.ensure_future(client.fetch(wait_ms=20_000))
        await until(lambda: c.brokers[1].replicas.find("u", None, 0).consumers)
        await produce(producer, "u", 0, batch(b"1"))
        response, answers = await waiting
        assert list(answers) == [("u", 0)]
        assert values_of(answers["u", 0].records[0]) == [b"1"]
        # The high watermark alone is news.
        await produce(producer, "t", 1, batch(b"2"))
        response, answers = await client.fetch({("t", 1): 2, ("u", 0): 1})
        assert list(answers) == [("t", 1)]
        assert answers["t", 1].high_watermark == 2
        assert answers["t", 1].records_size == 0
        # A log start, too.
        c.brokers[1].replicas.find("t", None, 1).advance_log_start(1)
        response, answers = await client.fetch()
        assert [(k, p.log_start_offset) for k, p in answers.items()] == [(("t", 1), 1)]
        # What is forgotten is told no more.
        await produce(producer, "t", 0, batch(b"3"))
        response, answers = await client.fetch(forget=[("t", 0)])
        assert answers == {}
        # An error is told each time, and its end.
        for asked in ({("u", 0): 9}, None):
            response, answers = await client.fetch(asked)
            assert answers["u", 0].error_code == ErrorCode.offset_out_of_range
        response, answers = await client.fetch({("u", 0): 1})
        assert answers["u", 0].error_code == ErrorCode.none

    with_topics(tmp_path, ["t", "u"], test, version=version)


def test_a_session_that_is_not_there_or_elsewhere(tmp_path):
    async def test(c, client, producer):
        await client.fetch({("t", 0): 0})
        first = (client.session_id, client.epoch)
        response, answers = await client.fetch(session_epoch=5)
        assert response.error_code == ErrorCode.invalid_fetch_session_epoch
        assert (response.session_id, answers) == (0, {})
        response, _ = await client.fetch(session_id=first[0] + 1)
        assert response.error_code == ErrorCode.fetch_session_id_not_found
        client.version = 12
        response, _ = await client.fetch()
        assert response.error_code == ErrorCode.fetch_session_topic_id_error
        client.version = 13
        response, _ = await client.fetch()
        assert response.error_code == ErrorCode.none
        # A full request ends the session that it names, and begins another one.
        response, _ = await client.fetch({("t", 0): 0}, session_epoch=0)
        assert response.session_id not in (0, first[0])
        response, _ = await client.fetch(session_id=first[0], session_epoch=2)
        assert response.error_code == ErrorCode.fetch_session_id_not_found
        assert len(c.brokers[1].context.fetch_sessions) == 1
        # The last one ends it.
        response, answers = await client.fetch({("t", 0): 0}, session_epoch=-1)
        assert (response.session_id, list(answers)) == (0, [("t", 0)])
        assert len(c.brokers[1].context.fetch_sessions) == 0

    with_topics(tmp_path, ["t"], test)


def test_a_request_that_was_overtaken_is_told_so(tmp_path):
    async def test(c, client, producer):
        await client.fetch({("t", 0): 0})
        session = (client.session_id, client.epoch)
        waiting = asyncio.ensure_future(client.fetch(wait_ms=20_000))
        await until(lambda: c.brokers[1].replicas.find("t", None, 0).consumers)
        other = Client(producer, 13, client.topic_ids)
        other.session_id, other.epoch = session[0], session[1] + 1
        response, _ = await other.fetch({("t", 0): 0})
        assert response.error_code == ErrorCode.none
        await produce(await c.connect(1), "t", 0, batch(b"x"))
        response, answers = await waiting
        assert response.error_code == ErrorCode.invalid_fetch_session_epoch
        assert (response.session_id, answers) == (session[0], {})

    with_topics(tmp_path, ["t"], test)


def test_small_answers_starve_nobody(tmp_path):
    async def test(c, client, producer):
        count = 5
        for index in range(count):
            for number in range(3):
                await produce(producer, "t", index, batch(b"%d" % number))
        offsets = {("t", index): 0 for index in range(count)}
        asked, seen = dict(offsets), []
        while len(seen) < 3 * count:
            _, answers = await client.fetch(asked, max_bytes=1)
            asked = {}
            for place, got in answers.items():
                if got.records_size:
                    seen.append(place[1])
                    offsets[place] += 1
                    asked[place] = offsets[place]
        # The first answer, which begins the session, moves nobody in the line.
        assert seen == [0, *range(count), *range(count), *range(1, count)]

    with_topics(tmp_path, ["t"], test, partitions=5)


def test_unknown_topics_come_to_life_in_a_session(tmp_path):
    async def test(c, client, producer):
        client.topic_ids["later"] = UUID(int=77 << 64)
        _, answers = await client.fetch({("t", 0): 0, ("later", 0): 0})
        assert answers["later", 0].error_code == ErrorCode.unknown_topic_id
        _, answers = await client.fetch()
        assert {k: p.error_code for k, p in answers.items()} == {
            ("later", 0): ErrorCode.unknown_topic_id
        }

    with_topics(tmp_path, ["t"], test)


def test_a_topic_that_is_gone_is_let_go_of(tmp_path):
    async def test(c, client, producer):
        await client.fetch({("t", 0): 0, ("t", 1): 0})
        await client.fetch()
        gone = weakref.ref(c.brokers[1].replicas.find("t", None, 0))
        c.controller.delete_topic("t")
        await until(lambda: len(c.brokers[1].replicas) == 0)
        await c.brokers[1].replicas.settled()

        def is_let_go_of():
            gc.collect()
            return gone() is None

        await until(is_let_go_of)
        _, answers = await client.fetch()
        assert answers["t", 0].error_code == ErrorCode.unknown_topic_id
        # One of the same name is another topic; who names it finds it.
        client.topic_ids["again"] = c.controller.create_topic("t", 2)
        await until(lambda: c.brokers[1].replicas.leaders == 2)
        _, answers = await client.fetch({("again", 0): 0})
        assert answers["again", 0].error_code == ErrorCode.none
        assert answers["t", 0].error_code == ErrorCode.unknown_topic_id

    with_topics(tmp_path, ["t"], test)


def test_a_topic_of_the_same_name_takes_the_place_of_one_that_is_gone(tmp_path):
    async def test(c, client, producer):
        await produce(producer, "t", 0, batch(b"old"))
        _, answers = await client.fetch({("t", 0): 0})
        assert answers["t", 0].high_watermark == 1
        c.controller.delete_topic("t")
        await until(lambda: len(c.brokers[1].replicas) == 0)
        c.controller.create_topic("t", 2)
        await until(lambda: c.brokers[1].replicas.leaders == 2)
        _, answers = await client.fetch()
        assert answers["t", 0].high_watermark == 0

    with_topics(tmp_path, ["t"], test, version=12)


def test_a_broker_without_slots_gives_no_sessions(tmp_path):
    async def test(c, client, producer):
        response, answers = await client.fetch({("t", 0): 0})
        assert (response.session_id, list(answers)) == (0, [("t", 0)])

    with_topics(tmp_path, ["t"], test, max_incremental_fetch_session_cache_slots=0)
