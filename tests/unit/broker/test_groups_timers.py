"""Timers that are put off, and state that runs ahead of the log."""

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from broker.groups.speculation import Outcome, Speculation, Versioned
from broker.groups.timers import Timer, Timers

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["set", "set", "cancel", "run"]), st.integers(0, 5), st.integers(0, 20)
    ),
    max_size=80,
)


@given(STEPS)
def test_each_timer_ends_once_when_its_last_deadline_has_come(steps):
    timers, ended, deadlines, now = Timers(), [], {}, 0
    of = [Timer(lambda n=number: ended.append(n)) for number in range(6)]
    for what, number, ms in steps:
        if what == "set":
            deadlines[number] = now + ms
            timers.set(of[number], now + ms)
        elif what == "cancel":
            deadlines.pop(number, None)
            of[number].cancel()
        else:
            now += ms
            due = {n for n, deadline in deadlines.items() if deadline <= now}
            ended.clear()
            timers.run(now)
            assert sorted(ended) == sorted(due)
            for one in due:
                del deadlines[one]
        next_ms = timers.next_ms()
        assert not deadlines or (next_ms is not None and next_ms <= min(deadlines.values()))


def test_putting_off_a_deadline_leaves_the_heap_alone():
    timers, timer = Timers(), Timer(lambda: None)
    for ms in range(10, 10_000):
        timers.set(timer, ms)
    assert timers.next_ms() == 10
    timers.run(10)
    assert timers.next_ms() == 9_999


def test_an_action_may_set_timers():
    timers, ended = Timers(), []
    later = Timer(lambda: ended.append("later"))
    first = Timer(lambda: (ended.append("first"), timers.set(later, 5), timers.set(first, 9)))
    timers.set(first, 5)
    timers.run(5)
    assert (ended, timers.next_ms()) == (["first", "later"], 9)


class Twin:
    """What Versioned is to be: copies of the whole state."""

    def __init__(self):
        self.committed = {}
        self.appends = []

    @property
    def newest(self):
        return self.appends[-1][1] if self.appends else self.committed

    def change(self, token, changes):
        state = dict(self.newest)
        for key, value in changes:
            if value is None:
                state.pop(key, None)
            else:
                state[key] = value
        self.appends.append((token, state))

    def commit(self, token):
        while self.appends and self.appends[0][0] <= token:
            self.committed = self.appends.pop(0)[1]

    def fail(self, token):
        self.appends = [one for one in self.appends if one[0] < token]


CHANGES = st.lists(
    st.tuples(st.integers(0, 3), st.none() | st.integers(0, 9)), min_size=1, max_size=4
)
SPECULATION = st.lists(
    st.tuples(st.just("change"), CHANGES)
    | st.tuples(st.sampled_from(["commit", "fail"]), st.integers(0, 3)),
    max_size=60,
)


@given(SPECULATION)
def test_newest_and_committed_state_are_those_of_whole_copies(steps):
    speculation, twin, outcomes = Speculation(), Twin(), {}
    versioned = Versioned(speculation)
    open_tokens, told_to = [], 0
    for what, argument in steps:
        if what == "change":
            for key, value in argument:
                versioned.set(key, value)
            token = speculation.append()
            twin.change(token, argument)
            open_tokens.append(token)
            told = outcomes.setdefault(token, [])
            speculation.wait(Outcome(partial(told.append, "done"), told.append))
        elif open_tokens and what == "commit":
            token = open_tokens[min(argument, len(open_tokens) - 1)]
            for one in open_tokens:
                if told_to < one <= token:
                    speculation.appended(one, one)
            told_to = max(told_to, token)
            speculation.committed(token)
            twin.commit(token)
            assert all(outcomes[one] == ["done"] for one in open_tokens if one <= token)
            open_tokens = [one for one in open_tokens if one > token]
        elif open_tokens:
            untold = [one for one in open_tokens if one > told_to]
            if untold:
                token = untold[min(argument, len(untold) - 1)]
                speculation.failed(token, "error")
                twin.fail(token)
                assert all(outcomes[one] == ["error"] for one in open_tokens if one >= token)
                open_tokens = [one for one in open_tokens if one < token]
        assert dict(versioned.items()) == twin.newest
        assert dict(versioned.committed_items()) == twin.committed
        assert {k: versioned.committed(k) for k in range(4)} == {
            k: twin.committed.get(k) for k in range(4)
        }
        assert speculation.is_empty == (not twin.appends)
