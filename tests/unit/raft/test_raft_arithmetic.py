"""Majorities and the log's outline, each against a naive twin."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from raft.log_view import Diverging, LogView, NeedsSnapshot, Valid
from raft.quorum import Outcome, backoff_ms, outcome, replicated_offset
from raft.voters import OffsetAndEpoch, ReplicaKey, Voter, VoterSet


def naive_outcome(voters, votes):
    """Won if some majority has granted, lost if in every majority somebody has refused."""
    majorities = list(combinations(voters, len(voters) // 2 + 1))
    if any(all(votes.get(v) is True for v in m) for m in majorities):
        return Outcome.WON
    if all(any(votes.get(v) is False for v in m) for m in majorities):
        return Outcome.LOST
    return Outcome.PENDING


@given(st.integers(1, 7), st.dictionaries(st.integers(1, 9), st.booleans()))
def test_outcome(size, votes):
    voters = list(range(1, size + 1))
    assert outcome(voters, votes) == naive_outcome(voters, votes)


@given(st.lists(st.integers(-1, 20), min_size=1, max_size=7))
def test_replicated_offset(ends):
    majority = len(ends) // 2 + 1
    naive = max(o for o in range(-1, 21) if sum(end >= o for end in ends) >= majority)
    assert replicated_offset(ends) == naive


@given(st.integers(-1, 6), st.integers(1, 2000), st.integers(1, 7))
def test_successors_wait_longer_the_further_down_they_are(position, most, voters):
    wait = backoff_ms(position, most, voters)
    assert 0 <= wait <= most
    assert (wait == 0) == (position == 0)
    if position >= 0:
        assert wait <= backoff_ms(position + 1, most, voters)


def test_voters_are_known_by_directory_where_one_is_set():
    a, b = ReplicaKey(1, None), ReplicaKey(2, 7)
    voters = VoterSet([Voter(b), Voter(a)])
    assert voters.ids == (1, 2)
    assert voters.contains(ReplicaKey(1, 99))
    assert voters.contains(b)
    assert not voters.contains(ReplicaKey(2, 8))
    assert not voters.contains(ReplicaKey(2, None))
    assert not voters.contains(ReplicaKey(3))
    assert voters.others(1) == [b]
    assert VoterSet([Voter(ReplicaKey(i)) for i in range(4)]).majority == 3


class NaiveLog:
    """A list of epochs, from offset `start` on."""

    def __init__(self):
        self.start, self.epochs, self.snapshot = 0, [], None

    @property
    def end(self):
        return self.start + len(self.epochs)

    @property
    def last_epoch(self):
        if self.epochs:
            return self.epochs[-1]
        return self.snapshot.epoch if self.snapshot else 0

    def end_of_epoch(self, epoch):
        """The largest epoch not above `epoch`, and the end of its records."""
        best = None
        for index, held in enumerate(self.epochs):
            if held <= epoch:
                best = OffsetAndEpoch(self.start + index + 1, held)
        return best


@st.composite
def operations(draw):
    return draw(
        st.lists(
            st.one_of(
                st.tuples(st.just("append"), st.integers(0, 2), st.integers(1, 4)),
                st.tuples(st.just("truncate"), st.floats(0, 1), st.just(0)),
                st.tuples(st.just("trim"), st.floats(0, 1), st.just(0)),
                st.tuples(st.just("restart"), st.integers(1, 5), st.integers(0, 1)),
            ),
            max_size=12,
        )
    )


@given(operations())
def test_the_outline_agrees_with_a_list_of_epochs(steps):
    view, naive = LogView(), NaiveLog()
    for kind, first, second in steps:
        if kind == "append":
            epoch = max(naive.last_epoch + first, 1)
            view.append(epoch, naive.end, naive.end + second)
            naive.epochs += [epoch] * second
        elif kind == "truncate":
            at = naive.start + round(first * len(naive.epochs))
            view.truncate(at)
            del naive.epochs[at - naive.start :]
        elif kind == "trim":
            at = naive.start + round(first * len(naive.epochs))
            if at > naive.start:
                snapshot = OffsetAndEpoch(at, naive.epochs[at - naive.start - 1])
                view.add_snapshot(snapshot)
                view.advance_start(snapshot)
                del naive.epochs[: at - naive.start]
                naive.start, naive.snapshot = at, snapshot
        else:
            naive.snapshot = OffsetAndEpoch(naive.end + first, naive.last_epoch + second)
            naive.start, naive.epochs = naive.snapshot.offset, []
            view.restart_at(naive.snapshot)
        view.check_invariants()
        assert (view.start, view.end) == (naive.start, naive.end)
        assert view.last_epoch == naive.last_epoch
        for epoch in range(naive.last_epoch + 2):
            expected = naive.end_of_epoch(epoch)
            if expected is not None:
                assert view.end_of_epoch(epoch) == expected
        for offset in range(max(naive.start, 1), naive.end + 1):
            index = offset - naive.start
            if index:
                assert view.epoch_at(offset) == naive.epochs[index - 1]
            assert isinstance(view.check_position(offset, view.epoch_at(offset)), Valid)


@st.composite
def two_logs(draw):
    """Two logs that one history of leaders can have left: each leader begins with a part of an
    earlier leader's log, and a log is a part of some leader's."""
    logs = [[]]
    for epoch in range(1, draw(st.integers(1, 5)) + 1):
        past = draw(st.sampled_from(logs))
        logs.append(past[: draw(st.integers(0, len(past)))] + [epoch] * draw(st.integers(1, 3)))
    parts = []
    for _ in range(2):
        whole = draw(st.sampled_from(logs))
        parts.append(whole[: draw(st.integers(0, len(whole)))])
    return parts


@given(two_logs())
def test_a_follower_finds_the_common_prefix(logs):
    """By fetching and truncating, the follower's log becomes a part of the leader's, and nothing
    that both had is cut (Raft paper §5.3)."""
    leader_epochs, follower_epochs = logs
    shared = 0
    for mine, theirs in zip(leader_epochs, follower_epochs, strict=False):
        if mine != theirs:
            break
        shared += 1

    def outline(epochs):
        view = LogView()
        for offset, epoch in enumerate(epochs):
            view.append(epoch, offset, offset + 1)
        return view

    leader, follower = outline(leader_epochs), outline(follower_epochs)
    for _ in range(20):
        position = leader.check_position(follower.end, follower.last_epoch)
        if isinstance(position, Valid):
            break
        assert isinstance(position, Diverging)
        cut = follower.truncation_point(position.end)
        assert shared <= cut < follower.end
        follower.truncate(cut)
    assert follower.end <= len(leader_epochs)
    assert follower_epochs[: follower.end] == leader_epochs[: follower.end]


def test_an_empty_log_behind_a_snapshot():
    snapshot = OffsetAndEpoch(7, 3)
    view = LogView(start=7, end=7, earliest_snapshot=snapshot, latest_snapshot=snapshot)
    assert view.last == snapshot
    assert isinstance(view.check_position(7, 3), Valid)
    assert view.check_position(3, 3) == NeedsSnapshot(snapshot)
    assert view.check_position(9, 3) == Diverging(snapshot)
    view.append(5, 7, 8)
    assert view.end_of_epoch(4) == snapshot


def test_a_fetcher_whose_last_record_is_of_no_such_epoch_is_sent_back():
    """The epoch is ours, and not over yet, but begins later."""
    view = LogView(end=12, epochs=[(1, 0), (3, 4), (5, 9)])
    assert view.check_position(3, 3) == Diverging(OffsetAndEpoch(4, 1))
    assert view.check_position(4, 3) == Diverging(OffsetAndEpoch(4, 1))
    assert view.check_position(9, 5) == Diverging(OffsetAndEpoch(9, 3))
    assert isinstance(view.check_position(5, 3), Valid)


def test_but_not_where_it_is_not_known_what_its_epoch_should_be():
    """A leader-epoch file that was lost is written anew from what came later."""
    snapshot = OffsetAndEpoch(4, 3)
    rest = {"earliest_snapshot": snapshot, "latest_snapshot": snapshot}
    view = LogView(start=4, end=12, epochs=[(5, 9)], **rest)
    assert isinstance(view.check_position(9, 5), Valid)
