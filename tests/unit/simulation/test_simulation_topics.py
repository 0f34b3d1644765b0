"""The model of admin calls: honest histories pass, planted faults don't."""

import random

import pytest

from simulation.checks import Violation
from simulation.history import History, Outcome
from simulation.models.linear import Undecided
from simulation.models.topics import ABSENT, EXISTS, RULE, judge


class Told:
    """A history told in short: call(kind, ..., result) begins and ends at once."""

    def __init__(self):
        self.history = History()
        self.now_ms = 0

    def begin(self, kind, **args):
        self.now_ms += 1
        args.setdefault("name", "t")
        return self.history.invoke("c", kind, self.now_ms, **args)

    def end(self, call, outcome, result=None):
        self.now_ms += 1
        self.history.finish(call, outcome, self.now_ms, result)

    def call(self, kind, outcome=Outcome.OK, result=None, **args):
        call = self.begin(kind, **args)
        self.end(call, outcome, result)
        return call

    def judge(self):
        judge(self.history)


@pytest.fixture
def told():
    return Told()


def test_a_life_of_a_topic(told):
    told.call("read", result=None)
    told.call("create", result="id1")
    told.call("create", Outcome.FAILED, EXISTS)
    told.call("read", result=("id1", None))
    told.call("alter", value="5")
    told.call("read", result=("id1", "5"))
    told.call("delete")
    told.call("alter", Outcome.FAILED, ABSENT, value="6")
    told.call("read", result=None)
    told.call("create", result="id2")
    told.call("read", result=("id2", None))
    told.judge()


def test_names_are_judged_apart(told):
    told.call("create", result="id1", name="a")
    told.call("read", result=None, name="b")
    told.judge()


@pytest.mark.parametrize(
    "broken",
    [
        [("create", "id1", {}), ("read", None, {})],
        [("create", "id1", {}), ("read", ("id2", None), {})],
        [("create", "id1", {}), ("create", "id2", {})],
        [("delete", None, {})],
        [("create", "id1", {}), ("alter", None, {"value": "5"}), ("read", ("id1", None), {})],
        [
            ("create", "id1", {}),
            ("alter", None, {"value": "5"}),
            ("alter", None, {"value": "6"}),
            ("read", ("id1", "6"), {}),
            ("read", ("id1", "5"), {}),
        ],
    ],
)
def test_planted_faults_are_found(told, broken):
    for kind, result, args in broken:
        told.call(kind, result=result, **args)
    with pytest.raises(Violation, match=RULE):
        told.judge()


def test_an_answer_that_never_came_leaves_both_open(told):
    told.call("create", Outcome.UNKNOWN)
    told.call("read", result=None)
    told.call("read", result=("id7", None))
    told.call("read", result=("id7", None))
    told.judge()


def test_an_unknown_creation_happens_once(told):
    told.call("create", Outcome.UNKNOWN)
    told.call("read", result=("id7", None))
    told.call("delete")
    told.call("read", result=("id8", None))
    with pytest.raises(Violation):
        told.judge()


def test_a_refusal_that_tells_of_a_topic_that_never_was(told):
    told.call("create", Outcome.FAILED, EXISTS)
    with pytest.raises(Violation):
        told.judge()


def test_a_refusal_may_tell_of_the_past(told):
    told.call("create", result="id1")
    told.call("delete")
    told.call("create", Outcome.FAILED, EXISTS)
    told.judge()


@pytest.mark.parametrize(("deleted", "word"), [(True, EXISTS), (False, ABSENT)])
def test_who_was_not_replaced_refuses_by_what_is(told, deleted, word):
    told.call("create", result="id1")
    if deleted:
        told.call("delete")
    told.call("create", Outcome.FAILED, word, newest=True)
    with pytest.raises(Violation):
        told.judge()


def test_a_broker_may_have_repeated_what_it_was_asked(told):
    told.call("create", Outcome.FAILED, EXISTS, forwarded=True)
    told.call("read", result=("id1", None))
    told.call("alter", forwarded=True, value="5")
    told.call("alter", value="6")
    told.call("read", result=("id1", "5"))
    told.judge()


def test_a_broker_may_have_repeated_what_it_could_not_answer(told):
    told.call("create", result="id1")
    told.call("alter", Outcome.UNKNOWN, forwarded=True, value="5")
    told.call("read", result=("id1", "5"))
    told.call("alter", value="6")
    told.call("read", result=("id1", "6"))
    told.call("read", result=("id1", "5"))
    told.judge()


def test_a_controller_repeats_nothing(told):
    told.call("create", result="id1")
    told.call("alter", Outcome.UNKNOWN, value="5")
    told.call("read", result=("id1", "5"))
    told.call("alter", value="6")
    told.call("read", result=("id1", "5"))
    with pytest.raises(Violation):
        told.judge()


def test_a_copy_of_a_create_that_comes_late_makes_another_topic(told):
    """The broker asked twice, and the first question lay on a cut link."""
    told.call("create", result="id1", forwarded=True)
    told.call("delete")
    told.call("read", result=("id2", None))
    told.judge()


def test_a_create_that_no_broker_repeats_makes_one_topic(told):
    told.call("create", result="id1")
    told.call("delete")
    told.call("read", result=("id2", None))
    with pytest.raises(Violation):
        told.judge()


def test_concurrent_calls_may_come_in_any_order(told):
    one = told.begin("create")
    two = told.begin("delete")
    told.end(two, Outcome.OK)
    told.end(one, Outcome.OK, "id1")
    told.call("read", result=None)
    told.judge()


class Cluster:
    """The naive twin: one topic, changed at a moment between invocation and return."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.told = Told()
        self.topic = None
        self.ids = 0

    def effect(self, kind, args):
        """(outcome, result) of a call that has its effect now."""
        if kind == "read":
            return Outcome.OK, self.topic
        if kind == "create":
            if self.topic is not None:
                return Outcome.FAILED, EXISTS
            self.ids += 1
            self.topic = (f"id{self.ids}", None)
            return Outcome.OK, self.topic[0]
        if self.topic is None:
            return Outcome.FAILED, ABSENT
        self.topic = None if kind == "delete" else (self.topic[0], args["value"])
        return Outcome.OK, None

    def run(self, steps):
        open_calls = []
        for step in range(steps):
            dice = self.chance.random()
            if dice < 0.5 or not open_calls:
                kind = self.chance.choice(("create", "delete", "alter", "read"))
                args = {"value": str(step)} if kind == "alter" else {}
                open_calls.append([self.told.begin(kind, **args), kind, args, None])
                continue
            entry = self.chance.choice(open_calls)
            call, kind, args, done = entry
            if done is None:
                if dice < 0.9:
                    entry[3] = self.effect(kind, args)
                else:  # lost before anything was done
                    self.told.end(call, Outcome.UNKNOWN)
                    open_calls.remove(entry)
            else:
                lost = self.chance.random() < 0.15
                self.told.end(call, *((Outcome.UNKNOWN, None) if lost else done))
                open_calls.remove(entry)


def test_whatever_a_sound_cluster_tells_is_accepted():
    for seed in range(150):
        cluster = Cluster(seed)
        cluster.run(60)
        cluster.told.judge()


def test_a_lie_in_a_sound_history_is_found():
    found = 0
    for seed in range(100):
        cluster = Cluster(seed)
        cluster.run(40)
        reads = [c for c in cluster.told.history.calls if c.kind == "read" and c.result]
        if not reads:
            continue
        lie = cluster.chance.choice(reads)
        lie.result = (lie.result[0], "never written")
        # What is too tangled to be refuted in time isn't passed either.
        with pytest.raises((Violation, Undecided)) as raised:
            cluster.told.judge()
        found += raised.type is Violation
    assert found > 20
