"""Subscriptions by regular expression."""

import pytest
from consumer_scene import ConsumerScene, settle, topic_id

from broker.groups import events as e
from broker.groups.consumer import expressions
from broker.groups.regexes import compile_regex
from wire.errors import ErrorCode

T, U, OTHER = topic_id("t-1"), topic_id("t-2"), topic_id("other")


def scene(**settings):
    it = ConsumerScene(**settings)
    it.know(**{"t-1": 2, "t-2": 1, "other": 1})
    return it


def resolved(it):
    return {regex: one.topics for regex, one in it.group().resolved.items()}


def test_an_expression_is_resolved_after_the_member_is_in():
    it = scene()
    a = it.consumer("a", (), regex="t-.*")
    told = a.join()
    assert (told.member_epoch, told.assignment) == (1, ())
    it.advance(10)
    assert resolved(it) == {"t-.*": ("t-1", "t-2")}
    told = a.beat()
    assert (told.member_epoch, told.assignment) == (2, ((T, (0, 1)), (U, (0,))))


def test_names_and_expressions_add_up():
    it = scene()
    a = it.consumer("a", ("other",), regex="t-1|nothing")
    assert a.join().assignment == ((OTHER, (0,)),)
    it.advance(10)
    assert a.beat().assignment == ((OTHER, (0,)), (T, (0, 1)))


def test_all_of_the_name_has_to_match():
    it = scene()
    a = it.consumer("a", (), regex="-")
    a.join()
    it.advance(10)
    assert resolved(it) == {"-": ()}
    assert a.beat().assignment is None


def test_what_is_no_expression_is_refused():
    it = scene()
    a = it.consumer("a", (), regex="[")
    assert a.join().error is ErrorCode.invalid_regular_expression
    assert it.group() is None
    b = it.consumer("b")
    b.join()
    assert b.request(subscribed_regex="(?=x)").error is ErrorCode.invalid_regular_expression
    assert b.request().error is ErrorCode.none


def test_new_topics_are_found_when_ten_seconds_have_passed():
    it = scene()
    a = it.consumer("a", (), regex="t-.*")
    a.join()
    it.advance(10)
    a.beat()
    it.know(**{"t-3": 1})
    a.beat()
    it.advance(5_000)
    assert len(resolved(it)["t-.*"]) == 2
    it.advance(5_000)
    a.beat()
    it.advance(1)
    assert resolved(it) == {"t-.*": ("t-1", "t-2", "t-3")}
    assert a.beat().assignment == ((T, (0, 1)), (U, (0,)), (topic_id("t-3"), (0,)))


def test_deleted_topics_are_given_up_whether_resolved_again_or_not():
    it = scene()
    a = it.consumer("a", (), regex="t-.*")
    a.join()
    it.advance(10)
    a.beat()
    it.know(**{"t-2": None})
    assert a.beat().assignment == ((T, (0, 1)),)


def test_expressions_are_looked_at_now_and_then_without_writing_more_than_that():
    it = scene()
    a = it.consumer("a", (), regex="t-.*")
    a.join()
    it.advance(10)
    a.beat()
    epoch, before = it.group().epoch, len(it.log)
    for _ in range(21):
        it.advance(30_000)
        a.beat()
    it.advance(1)
    assert len(it.log) == before + 1
    assert it.group().epoch == epoch
    it.now_ms -= 700_000
    a.beat()
    it.advance(1)
    assert len(it.log) == before + 2


def test_members_share_an_expression_and_the_last_one_takes_it_away():
    it = scene()
    a, b = it.consumer("a", (), regex="t-.*"), it.consumer("b", (), regex="t-.*")
    a.join()
    it.advance(10)
    a.beat()
    told = b.join()
    assert told.member_epoch == 3  # resolved already: the group is assigned anew at once
    settle(a, b)
    assert sorted(a.partitions + b.partitions) == [("t-1", 0), ("t-1", 1), ("t-2", 0)]
    a.leave()
    assert resolved(it) == {"t-.*": ("t-1", "t-2")}
    b.take(b.request(subscribed_regex="", subscribed_topics=("other",)))
    assert resolved(it) == {}
    b.beat()
    assert b.partitions == [("other", 0)]


def test_another_expression_takes_the_place_of_the_first():
    it = scene()
    a = it.consumer("a", (), regex="t-1")
    a.join()
    it.advance(10)
    a.beat()
    it.advance(20_000)
    a.take(a.request(subscribed_regex="t-2"))
    assert resolved(it) == {}
    it.advance(1)
    assert resolved(it) == {"t-2": ("t-2",)}
    a.beat()
    a.beat()
    assert a.partitions == [("t-2", 0)]


def test_a_member_that_left_before_it_was_resolved_leaves_nothing():
    it = scene()
    a = it.consumer("a", (), regex="t-.*")
    a.join()
    a.leave()
    before = len(it.log)
    it.advance(10)
    assert len(it.log) == before
    assert it.group().is_empty


def test_what_another_broker_took_for_an_expression_stands_for_nothing():
    it = scene()
    a = it.consumer("a", (), regex="t-.*")
    a.join()
    it.fail_over()
    it.core._consumer_groups._coordination._expressions._compile = _refuses
    a.request()
    it.advance(10)
    assert resolved(it) == {"t-.*": ()}


def _refuses(text):
    raise ValueError(f"not {text}")


def test_many_topics_are_looked_at_in_slices(monkeypatch):
    monkeypatch.setattr(expressions, "_TOPICS_AT_ONCE", 10)
    it = scene()
    it.know(**{f"t-{n:02}": 1 for n in range(100)})
    a = it.consumer("a", (), regex="t-.*5")
    a.join()
    it.advance(0)
    assert resolved(it) == {}
    assert it.core.next_deadline_ms() == it.now_ms + 1
    it.advance(20)
    assert resolved(it) == {"t-.*5": tuple(f"t-{n:02}" for n in range(5, 100, 10))}


def test_resolved_expressions_are_there_after_a_failover():
    it = scene()
    a = it.consumer("a", (), regex="t-.*")
    a.join()
    it.advance(10)
    group = it.group()
    it.fail_over()
    assert it.group() == group
    assert a.beat().assignment == ((T, (0, 1)), (U, (0,)))


def test_re2_is_linear_and_tells_what_is_wrong():
    matches = compile_regex("(a*)*b")
    assert not matches("a" * 10_000)
    assert matches("aab")
    for wrong in ("[", "(", "a{2000}", "(?<=a)b", "\\1"):
        with pytest.raises(ValueError, match=r"\w"):
            compile_regex(wrong)


def test_described_with_its_expression():
    it = scene()
    it.consumer("a", (), regex="t-.*").join()
    member = it.told(e.ConsumerGroupDescribe, ("g",)).groups[0].members[0]
    assert (member.subscribed_topics, member.subscribed_regex) == ((), "t-.*")
