"""A follower's half of a session beside its leader's: both always mean the same partitions."""

import random
from types import SimpleNamespace
from uuid import UUID

from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from broker.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, FetchSessions
from broker.leader_session import Followed, LeaderSession
from wire.apis import ErrorCode
from wire.errors import KafkaError

MAX_BYTES = 100


def followed(topic, index):
    topic_id = UUID(int=(topic + 1) << 64)
    log = SimpleNamespace(end_offset=0, last_epoch=-1, log_start_offset=0)
    core = SimpleNamespace(leader_epoch=0)
    replica = SimpleNamespace(topic=f"t{topic}", topic_id=topic_id, index=index, log=log, core=core)
    return Followed(replica)


class Leader:
    """Serves requests as a broker does; `asked` is what the last one was about."""

    def __init__(self):
        self.sessions = FetchSessions(2, random.Random(1).randint)
        self.asked = {}
        self.named = 0

    def serve(self, session, topics, forgotten):
        """The answer's error and session id."""
        self.named = sum(len(t.partitions) for t in topics)
        if session.epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self.sessions.remove(session.id)
            made = self.sessions.create(topics, privileged=True, uses_ids=True, now_ms=0)
            self.asked = {(t.topic_id, p.partition): p for t in topics for p in t.partitions}
            return None, 0 if made is None else made.id
        try:
            kept = self.sessions.resume(
                session.id, session.epoch, topics, forgotten, by_id=True, now_ms=0
            )
        except KafkaError as refused:
            return refused.code, 0
        self.asked = {} if kept is None else {k: p.asked for k, p in kept.partitions.items()}
        return None, 0 if kept is None else kept.id


actions = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 5), st.integers(1, 3)),
        st.tuples(st.just("epoch"), st.integers(0, 5), st.integers(1, 3)),
        st.tuples(st.just("again"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("hold"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("release"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("fetch"), st.just(0), st.just(0)),
        st.tuples(st.just("lost request"), st.just(0), st.just(0)),
        st.tuples(st.just("lost answer"), st.just(0), st.just(0)),
        st.tuples(st.just("eviction"), st.just(0), st.just(0)),
    ),
    max_size=40,
)


@examples(200)
@given(actions)
def test_both_halves_mean_the_same(steps):
    leader, session = Leader(), LeaderSession()
    parts = {number: followed(number // 2, number % 2) for number in range(6)}
    held = set()
    for action, number, value in [*steps, ("fetch", 0, 0), ("fetch", 0, 0)]:
        part = parts[number]
        if action == "append":
            part.replica.log.end_offset += value
        elif action == "epoch":
            part.replica.core.leader_epoch += value
        elif action == "again":
            parts[number] = Followed(part.replica)
        elif action == "hold":
            held.add(number)
        elif action == "release":
            held.discard(number)
        elif action == "eviction":
            leader.sessions.remove(session.id)
        else:
            due = [parts[n] for n in parts if n not in held]
            if not due:
                continue
            topics, forgotten = session.request(due, MAX_BYTES)
            if action == "lost request":
                session.failed()
                continue
            error, session_id = leader.serve(session, topics, forgotten)
            if error is not None:
                assert error is ErrorCode.fetch_session_id_not_found
                session.failed(error)
                continue
            assert len(leader.asked) == len(due)
            for one in due:
                key = (one.replica.topic_id, one.replica.index)
                assert session.asked(one) is one.asked
                assert leader.asked[key] == one.asked
                assert one.asked.fetch_offset == one.replica.log.end_offset
                assert one.asked.current_leader_epoch == one.replica.core.leader_epoch
            if action == "lost answer":
                session.failed()
            else:
                session.answered(session_id)
    if not held:
        topics, forgotten = session.request(list(parts.values()), MAX_BYTES)
        leader.serve(session, topics, forgotten)
        assert leader.named == (0 if session.epoch else 6)


def test_who_gets_no_session_asks_for_one_each_time():
    session = LeaderSession()
    part = followed(0, 0)
    for _ in range(3):
        topics, forgotten = session.request([part], MAX_BYTES)
        assert (session.id, session.epoch, len(topics), forgotten) == (0, 0, 1, [])
        session.answered(0)


def test_a_session_of_an_unknown_end_is_ended():
    session = LeaderSession()
    session.request([followed(0, 0)], MAX_BYTES)
    session.answered(7)
    assert (session.id, session.epoch) == (7, 1)
    session.failed(ErrorCode.invalid_fetch_session_epoch)
    assert (session.id, session.epoch) == (7, INITIAL_EPOCH)
    session.failed(ErrorCode.fetch_session_id_not_found)
    assert (session.id, session.epoch) == (0, INITIAL_EPOCH)
