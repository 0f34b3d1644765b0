"""The judge of produced and consumed records, against a naive twin and planted faults."""

import random

import pytest

from simulation.checks import Violation
from simulation.history import Outcome
from simulation.models.records import ALL, Place, Position, Seen, Sent, judge

P = Place("t", 0)


def sent(number, offset=None, *, producer="p", acks=ALL, idempotent=True, connection=0):
    outcome = Outcome.UNKNOWN if offset is None else Outcome.OK
    value = f"{producer}/{number}".encode()
    return Sent(producer, number, value, P, acks, idempotent, connection, outcome, offset)


def log(*values):
    return {P: list(enumerate(values))}


def test_sound_records():
    records = [sent(0, 0), sent(1, 1), sent(2)]
    judge(records, [Seen(P, 0, b"p/0")], log(b"p/0", b"p/1"))
    judge(records, [Seen(P, 0, b"p/0")], log(b"p/0", b"p/1", b"p/2"))


@pytest.mark.parametrize(
    ("records", "seen", "final", "rule"),
    [
        ([sent(0, 0)], [], log(), "acknowledged records are kept"),
        ([sent(0, 0), sent(1, 1)], [], log(b"p/0"), "acknowledged records are kept"),
        ([sent(0, 5)], [], log(b"p/0"), "is where it was said to be"),
        ([sent(0, 0)], [], log(b"p/0", b"p/0"), "a record is there once"),
        ([sent(0, 0), sent(1)], [], log(b"p/1", b"p/0"), "is where it was said"),
        ([sent(0), sent(1)], [], log(b"p/1", b"p/0"), "a producer's order is kept"),
        ([], [], log(b"x"), "records come from producers"),
        ([sent(0)], [Seen(P, 0, b"p/0")], log(), "what a consumer saw stays"),
        ([sent(0), sent(1)], [Seen(P, 0, b"p/0")], log(b"p/1"), "what a consumer saw stays"),
        ([sent(0)], [], {P: [(1, b"p/0")]}, "offsets have no holes"),
    ],
)
def test_planted_faults_are_found(records, seen, final, rule):
    with pytest.raises(Violation, match=rule):
        judge(records, seen, final)


def test_a_refused_record_is_not_there():
    refused = sent(0, idempotent=False)
    refused.outcome = Outcome.FAILED
    judge([refused], [], log())
    with pytest.raises(Violation, match="a refused record is not there"):
        judge([refused], [], log(b"p/0"))


def test_acks_1_may_be_lost_but_not_reordered_on_a_connection():
    one = [sent(n, n, acks=1, idempotent=False) for n in range(3)]
    judge(one[:2], [], log(b"p/0"))
    again = [sent(n, acks=1, idempotent=False) for n in range(2)]
    with pytest.raises(Violation, match="order is kept"):
        judge(again, [], log(b"p/1", b"p/0"))
    other = [sent(n, acks=1, idempotent=False, connection=n) for n in range(2)]
    judge(other, [], log(b"p/1", b"p/0"))


def test_a_position_takes_what_follows_below_the_mark():
    position = Position("c", P)
    assert position.take([(0, b"a"), (1, b"b")], 2) == [Seen(P, 0, b"a"), Seen(P, 1, b"b")]
    # A batch may begin before the position.
    assert position.take([(1, b"b"), (2, b"c")], 3) == [Seen(P, 2, b"c")]
    with pytest.raises(Violation, match="misses no offset"):
        position.take([(4, b"e")], 5)
    with pytest.raises(Violation, match="below the high watermark"):
        position.take([(3, b"d")], 3)


def test_runs_of_a_naive_partition_pass_and_their_losses_do_not():
    for seed in range(100):
        chance = random.Random(seed)
        records, values, seen = [], [], []
        for number in range(30):
            kept = chance.random() < 0.8
            told = kept and chance.random() < 0.8
            records.append(sent(number, len(values) if told else None))
            if kept:
                values.append(records[-1].value)
            if values and chance.random() < 0.5:
                offset = chance.randrange(len(values))
                seen.append(Seen(P, offset, values[offset]))
        judge(records, seen, log(*values))
        acknowledged = [r for r in records if r.outcome is Outcome.OK]
        lost = chance.choice(acknowledged)
        less = [value for value in values if value != lost.value]
        with pytest.raises(Violation):
            judge(records, seen, log(*less))
