"""The model of a compacted topic: what may be missing, and what may not."""

import pytest

from simulation.checks import Violation
from simulation.history import Outcome
from simulation.models.compacted import Found, Keyed, Reading, judge
from simulation.models.records import Place

PLACE = Place("t", 0)
TOMBSTONE_MS = 1_000


def sent(offset, key, *, value=True, at_ms=0, outcome=Outcome.OK):
    name = b"p/%d" % offset
    where = offset if outcome is Outcome.OK else None
    return Keyed(name, PLACE, key, not value, at_ms, outcome, where)


def found(record, offset=None):
    at = record.offset if offset is None else offset
    return Found(at, record.id, record.key, None if record.tombstone else record.id)


def reading(*records, start=0, end=10, at_ms=5_000, clean_below=0):
    return Reading("reader", PLACE, start, end, at_ms, records, clean_below)


def check(all_sent, *readings, tombstone_ms=TOMBSTONE_MS):
    return judge(all_sent, readings, tombstone_ms)


def test_a_replaced_record_may_be_missing():
    old, new = sent(0, b"a"), sent(3, b"a", at_ms=5_000)
    assert check([old, new], reading(found(new))) == 1
    assert check([old, new], reading(found(old), found(new))) == 0
    # The newer one may be missing from this reading, which ended before it, and yet be there.
    assert check([old, new], reading(end=2), reading(found(new), start=2)) == 1


@pytest.mark.parametrize("newest", [True, False])
def test_the_newest_record_of_a_key_stays(newest):
    old, other = sent(0, b"a", value=newest), sent(3, b"b")
    rule = "newest value" if newest else "tombstones are kept"
    with pytest.raises(Violation, match=rule):
        check([old, other], reading(found(other), at_ms=TOMBSTONE_MS - 1))
    if newest:
        with pytest.raises(Violation, match=rule):
            check([old, other], reading(found(other), at_ms=TOMBSTONE_MS))
    else:
        assert check([old, other], reading(found(other), at_ms=TOMBSTONE_MS)) == 1


def test_what_came_later_explains_nothing():
    old, new = sent(0, b"a"), sent(3, b"a", at_ms=6_000)
    with pytest.raises(Violation, match="newest value"):
        check([old, new], reading(end=2, at_ms=5_999), reading(found(new), at_ms=7_000))


def test_a_record_that_nobody_acknowledged_may_be_the_newest():
    old, new = sent(0, b"a"), sent(3, b"a", outcome=Outcome.UNKNOWN)
    with pytest.raises(Violation, match="newest value"):
        check([old, new], reading())
    assert check([old, new], reading(found(new, 7))) == 1


@pytest.mark.parametrize(
    "change,rule",
    [
        ({"offset": 2}, "where it was said to be"),
        ({"key": b"b"}, "changes no record"),
        ({"value": None}, "changes no record"),
        ({"value": b"else"}, "changes no record"),
        ({"id": b"p/9"}, "come from producers"),
        ({"offset": 10}, "offsets rise"),
    ],
)
def test_a_record_stays_as_it_was(change, rule):
    record = sent(1, b"a")
    with pytest.raises(Violation, match=rule):
        check([record], reading(found(record)._replace(**change)))


def test_order_is_kept():
    one, two = sent(1, b"a"), sent(2, b"b")
    with pytest.raises(Violation, match="offsets rise"):
        check([one, two], reading(found(two), found(one)))


def test_a_clean_log_has_every_key_once():
    old, new = sent(1, b"a"), sent(2, b"a")
    both = found(old), found(new)
    check([old, new], reading(*both, clean_below=2))
    with pytest.raises(Violation, match="every key once"):
        check([old, new], reading(*both, clean_below=3))
