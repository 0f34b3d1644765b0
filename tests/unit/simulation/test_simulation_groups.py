"""The judge of groups: owners, committed offsets, what was consumed."""

import random

import pytest

from simulation.checks import Violation
from simulation.history import History, Outcome
from simulation.models.groups import COMMIT, COMMITTED, NOTHING, SYNC, Consumed, judge
from simulation.models.groups import judge_consumed as judge_all
from simulation.models.records import Place

P, Q = Place("t", 0), Place("t", 1)
LOST = "neither lost nor goes back"


class Story:
    """A history made by hand; times are of no matter."""

    def __init__(self):
        self.history = History()

    def begin(self, kind, group="g", **args):
        return self.history.invoke("client", kind, 0, group=group, **args)

    def end(self, call, outcome=Outcome.OK, result=None):
        self.history.finish(call, outcome, 0, result)

    def commit(self, offset, outcome=Outcome.OK):
        self.end(self.begin(COMMIT, offsets={P: offset}), outcome)

    def read(self, offset, **args):
        self.end(self.begin(COMMITTED, **{"led": True, **args}), result={P: offset})

    def sync(self, member, generation, *places, group="g"):
        call = self.begin(SYNC, group, member=member, generation=generation)
        self.end(call, result=places)

    def judge(self):
        judge(self.history, "g")


def test_a_generation_has_one_owner_of_a_place():
    story = Story()
    story.sync("a", 1, P)
    story.sync("b", 1, Q)
    story.sync("a", 1, P)
    story.sync("b", 2, P, Q)
    story.sync("b", 1, P, group="another")
    story.judge()
    story.sync("a", 2, Q)
    with pytest.raises(Violation, match="one owner"):
        story.judge()


def test_what_was_acknowledged_is_read():
    story = Story()
    story.read(NOTHING)
    story.commit(5)
    story.read(5)
    story.commit(9)
    story.read(9)
    story.judge()


@pytest.mark.parametrize("value", [NOTHING, 5, 7])
def test_a_lost_commit_is_found(value):
    story = Story()
    story.commit(5)
    story.commit(9)
    story.read(value)
    with pytest.raises(Violation, match=LOST):
        story.judge()


def test_a_replaced_coordinator_may_not_know_it():
    story = Story()
    story.commit(5)
    call = story.begin(COMMITTED)
    story.end(call, result={P: NOTHING})
    story.judge()


def test_a_commit_under_way_may_be_read_or_not():
    for value in (5, 9):
        story = Story()
        story.commit(5)
        call = story.begin(COMMIT, offsets={P: 9})
        story.read(value)
        story.end(call)
        story.judge()
        story.read(5)
        with pytest.raises(Violation, match=LOST):
            story.judge()


def test_nobody_knows_when_an_unanswered_commit_is_done():
    story = Story()
    story.commit(5)
    story.commit(9, Outcome.UNKNOWN)
    story.read(5)
    story.commit(7)
    story.read(9)
    story.judge()
    story.read(5)
    with pytest.raises(Violation, match=LOST):
        story.judge()


def test_a_refused_commit_is_not_there():
    story = Story()
    story.commit(5)
    story.commit(9, Outcome.FAILED)
    story.read(9)
    with pytest.raises(Violation, match=LOST):
        story.judge()


def test_a_read_sees_nothing_that_comes_later():
    story = Story()
    story.read(5)
    story.commit(5)
    with pytest.raises(Violation, match=LOST):
        story.judge()


@pytest.mark.parametrize("seed", range(50))
def test_any_register_passes(seed):
    """A real register, its clients' calls taking effect at any moment between."""
    chance, story = random.Random(seed), Story()
    value, under_way = NOTHING, []
    for number in range(60):
        if under_way and chance.random() < 0.5:
            call, took, asked = under_way.pop(chance.randrange(len(under_way)))
            if not took and chance.random() < 0.7:
                value = value if asked is None else asked
            elif not took and asked is not None:
                story.end(call, Outcome.UNKNOWN)
                continue
            story.end(call, result={P: value} if asked is None and not took else took)
        elif chance.random() < 0.5:
            under_way.append((story.begin(COMMIT, offsets={P: number}), None, number))
        else:
            under_way.append((story.begin(COMMITTED, led=True), {P: value}, None))
    story.judge()


def test_consumed_is_what_all_together_have():
    consumed = Consumed("g")
    consumed.begins("a", P, 0)
    consumed.add(P, [(0, b"x"), (1, b"y")])
    consumed.add(P, [(3, b"w")])
    consumed.begins("b", P, 2)
    with pytest.raises(Violation, match="covers only what was consumed"):
        consumed.begins("b", P, 3)
    consumed.add(P, [(1, b"y"), (2, b"z")])
    consumed.begins("b", P, 4)
    with pytest.raises(Violation, match="what a consumer saw stays"):
        consumed.add(P, [(2, b"other")])


def test_everything_is_consumed_in_the_end():
    consumed = Consumed("g")
    consumed.add(P, [(0, b"x")])
    judge_all(consumed, {P: [(0, b"x")]}, [P])
    with pytest.raises(Violation, match="a group consumes everything"):
        judge_all(consumed, {P: [(0, b"x"), (1, b"y")]}, [P])
