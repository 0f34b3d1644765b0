"""The partition core alone: each rule once."""

import pytest

from broker.partition import PartitionCore, Role
from broker.partition_events import (
    UNKNOWN_OFFSET,
    AlterPartitionAnswered,
    Appended,
    Assigned,
    EligibleBrokers,
    FollowerFetched,
    HighWatermarkMoved,
    IsrChanged,
    LeaderHighWatermark,
    LogStartMoved,
    MinIsr,
    ProposeIsr,
    StartFollowing,
    StartLeading,
    StopFollowing,
    Tick,
    Truncated,
)
from wire.apis import ErrorCode

LAG_MS = 1000
EPOCHS = {1: 11, 2: 12, 3: 13}


def assigned(leader=1, isr=(1, 2, 3), replicas=(1, 2, 3), leader_epoch=0, partition_epoch=0):
    return Assigned(replicas, isr, leader, leader_epoch, partition_epoch, False)


def leading(*, isr=(1, 2, 3), log_end=0, min_isr=1, leader_epoch=0, high_watermark=0):
    core = PartitionCore(
        1, lag_max_ms=LAG_MS, min_isr=min_isr, log_end=log_end, high_watermark=high_watermark
    )
    core.handle(EligibleBrokers(EPOCHS), 0)
    effects = core.handle(assigned(isr=isr, leader_epoch=leader_epoch), 0)
    assert effects[0] == StartLeading(leader_epoch, log_end)
    core.check_invariants()
    return core


def fetch(core, replica, offset, now_ms=0, epoch=None, log_start=0):
    effects = core.handle(
        FollowerFetched(replica, EPOCHS[replica] if epoch is None else epoch, offset, log_start),
        now_ms,
    )
    core.check_invariants()
    return effects


def test_alone_in_its_isr_a_leader_commits_as_it_appends():
    core = leading(isr=(1,))
    assert core.handle(Appended(5), 0) == [HighWatermarkMoved(5)]


def test_the_high_watermark_is_the_least_end_in_the_isr():
    core = leading()
    assert core.handle(Appended(10), 0) == []
    assert fetch(core, 2, 7) == []
    assert fetch(core, 3, 4) == [HighWatermarkMoved(4)]
    assert fetch(core, 3, 10) == [HighWatermarkMoved(7)]
    assert fetch(core, 2, 10) == [HighWatermarkMoved(10)]
    assert fetch(core, 2, 3) == []
    assert core.high_watermark == 10


def test_a_replica_that_the_controller_took_out_holds_nothing_up():
    """Its log directory failed while it was in sync, say: it fetches no more."""
    core = leading(isr=(1, 2))
    core.handle(Appended(5), 0)
    fetch(core, 2, 5)
    core.handle(assigned(isr=(1,), partition_epoch=1), 10)
    assert core.handle(Appended(9), 20) == [HighWatermarkMoved(9)]
    proposed = fetch(core, 2, 9, 30)
    assert [type(effect) for effect in proposed] == [ProposeIsr], "back, it may join"


def test_a_replica_outside_the_isr_but_nearly_caught_up_holds_the_mark():
    core = leading(isr=(1, 2))
    core.handle(Appended(10), 0)
    fetch(core, 2, 10)
    # 3 has fetched at 0 while the log ended at 10: it never caught up, so it holds nothing.
    assert core.high_watermark == 10
    effects = fetch(core, 3, 10, now_ms=5)
    assert effects == [ProposeIsr(1, ((1, 11), (2, 12), (3, 13)), 0, 0)]
    core.handle(Appended(12), 6)
    assert fetch(core, 2, 12, now_ms=7) == []
    core.handle(AlterPartitionAnswered(1, ErrorCode.ineligible_replica), 8)
    assert core.pending is None
    assert core.high_watermark == 10, "caught up a moment ago and eligible"
    core.handle(EligibleBrokers({1: 11, 2: 12}), 9)
    assert core.high_watermark == 12


def test_nothing_is_committed_under_min_isr():
    core = leading(isr=(1,), min_isr=2)
    assert core.handle(Appended(3), 0) == []
    assert core.under_min_isr
    assert core.handle(MinIsr(1), 0) == [HighWatermarkMoved(3)]


def test_min_isr_is_capped_by_the_number_of_replicas():
    core = PartitionCore(1, lag_max_ms=LAG_MS, min_isr=3)
    core.handle(assigned(isr=(1,), replicas=(1,)), 0)
    assert core.handle(Appended(3), 0) == [HighWatermarkMoved(3)]


def test_a_lagging_replica_is_proposed_away_and_counts_until_that_is_committed():
    core = leading()
    core.handle(Appended(10), 0)
    fetch(core, 2, 10, now_ms=500)
    assert core.handle(Tick(), LAG_MS) == []
    effects = core.handle(Tick(), LAG_MS + 1)
    assert effects == [ProposeIsr(1, ((1, 11), (2, 12)), 0, 0)]
    assert core.handle(Tick(), LAG_MS + 2) == [], "one in flight"
    assert core.high_watermark == 0
    answer = AlterPartitionAnswered(1, ErrorCode.none, (1, 2), 0, 1)
    assert core.handle(answer, LAG_MS + 3) == [], "it may have been decided on another minimum"
    effects = core.handle(assigned(isr=(1, 2), partition_epoch=1), LAG_MS + 4)
    assert effects == [IsrChanged((1, 2), True), HighWatermarkMoved(10)]
    assert (core.partition_epoch, core.isr, core.pending) == (1, (1, 2), None)
    assert core.under_replicated


def test_a_higher_minimum_that_comes_with_a_smaller_isr_holds_for_it():
    core = leading(isr=(1, 2))
    core.handle(Appended(10), 0)
    core.handle(Tick(), LAG_MS + 1)
    core.handle(AlterPartitionAnswered(1, ErrorCode.none, (1,), 0, 1), LAG_MS + 2)
    core.handle(MinIsr(2), LAG_MS + 3)
    core.handle(assigned(isr=(1,), partition_epoch=1), LAG_MS + 3)
    assert core.high_watermark == 0, "2 is eligible to lead"


def test_an_idle_replica_at_the_end_of_the_log_never_lags():
    core = leading()
    core.handle(Appended(10), 0)
    fetch(core, 2, 10)
    fetch(core, 3, 10)
    assert core.handle(Tick(), 100 * LAG_MS) == []


def test_a_replica_that_keeps_up_with_a_moving_end_stays():
    core = leading()
    end = 0
    for step in range(1, 50):
        end += 10
        core.handle(Appended(end), step * 100)
        fetch(core, 2, end, now_ms=step * 100)
        fetch(core, 3, end - 10, now_ms=step * 100)  # always one fetch behind
        assert core.handle(Tick(), step * 100) == []


def test_a_replica_joins_only_at_the_mark_and_from_this_epoch_on():
    core = leading(isr=(1,), log_end=5, high_watermark=5)
    core.handle(Appended(8), 0)
    assert fetch(core, 2, 7) == []
    assert fetch(core, 2, 8) == [ProposeIsr(1, ((1, 11), (2, 12)), 0, 0)]
    assert core.maximal_isr == (1, 2)
    core.handle(Appended(9), 0)
    assert core.high_watermark == 8, "a joining replica counts before the answer"


@pytest.mark.parametrize("epochs", [{1: 11, 3: 13}, {1: 11, 2: 99, 3: 13}])
def test_a_fenced_or_restarted_broker_does_not_join(epochs):
    core = leading(isr=(1,))
    core.handle(EligibleBrokers(epochs), 0)
    assert fetch(core, 2, 0) == []


def test_an_older_life_of_a_broker_is_not_heard():
    core = leading()
    core.handle(Appended(4), 0)
    fetch(core, 2, 4, epoch=12)
    assert core.check_follower(2, 11, 0) == ErrorCode.not_leader_or_follower
    fetch(core, 2, 0, epoch=11)
    assert core.remotes[2].log_end == 4
    assert core.check_follower(9, 1, 0) == ErrorCode.unknown_leader_epoch
    assert core.check_follower(9, 1, -1) == ErrorCode.not_leader_or_follower


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.invalid_update_version,
        ErrorCode.invalid_request,
        ErrorCode.new_leader_elected,
    ],
)
def test_after_a_conflict_the_partition_waits_for_metadata(error):
    core = leading(isr=(1,))
    fetch(core, 2, 0)
    assert core.handle(AlterPartitionAnswered(1, error), 0) == []
    assert core.pending is not None
    effects = core.handle(assigned(isr=(1, 3), partition_epoch=1), 1)
    assert effects == [IsrChanged((1, 3), False)]
    assert core.pending is None


def test_other_errors_are_tried_again():
    core = leading(isr=(1,))
    [proposal] = fetch(core, 2, 0)
    assert core.handle(AlterPartitionAnswered(1, ErrorCode.not_controller), 0) == [proposal]


def test_an_answer_overtaken_by_the_image_changes_nothing():
    core = leading(isr=(1,))
    fetch(core, 2, 0)
    core.handle(assigned(isr=(1, 2), partition_epoch=1), 1)
    assert core.handle(AlterPartitionAnswered(1, ErrorCode.none, (1, 2), 0, 1), 2) == []
    assert core.handle(AlterPartitionAnswered(7, ErrorCode.none, (1,), 0, 9), 2) == []
    assert core.isr == (1, 2)


def test_a_stale_image_is_ignored():
    core = leading(leader_epoch=3)
    assert core.handle(assigned(leader=2, leader_epoch=2, partition_epoch=5), 0) == []
    assert core.is_leader


def test_a_follower_takes_the_leaders_mark_up_to_its_own_end():
    core = PartitionCore(2, lag_max_ms=LAG_MS)
    assert core.handle(assigned(), 0) == [StartFollowing(1, 0)]
    core.handle(Appended(5), 0)
    assert core.handle(LeaderHighWatermark(9), 0) == [HighWatermarkMoved(5)]
    assert core.handle(LeaderHighWatermark(4), 0) == []
    core.handle(Truncated(3), 0)
    assert core.high_watermark == 3
    core.handle(LogStartMoved(8), 0)
    assert (core.log_end, core.high_watermark) == (8, 8)
    core.check_invariants()


def test_a_new_leader_starts_from_its_end_and_knows_nothing_of_the_others():
    core = PartitionCore(2, lag_max_ms=LAG_MS, log_end=6, high_watermark=4)
    core.handle(assigned(), 0)
    effects = core.handle(assigned(leader=2, isr=(2, 3), leader_epoch=1, partition_epoch=1), 0)
    assert effects == [StartLeading(1, 6), IsrChanged((2, 3), False)]
    assert not core.has_new_epoch_hw
    core.handle(EligibleBrokers(EPOCHS), 0)
    fetch(core, 3, 5)
    assert core.high_watermark == 5
    fetch(core, 3, 6)
    assert core.has_new_epoch_hw
    # led again in a greater epoch: it all starts anew
    core.handle(assigned(leader=2, isr=(2, 3), leader_epoch=2, partition_epoch=2), 0)
    core.handle(Appended(7), 0)
    assert core.high_watermark == 6


def test_losing_leadership_drops_what_a_leader_knows():
    core = leading()
    fetch(core, 2, 0)
    effects = core.handle(assigned(leader=2, leader_epoch=1, partition_epoch=1), 0)
    assert effects == [StartFollowing(2, 1)]
    assert (core.role, core.isr, core.pending) == (Role.FOLLOWER, (), None)
    core.check_invariants()
    effects = core.handle(assigned(leader=-1, leader_epoch=2, partition_epoch=2), 0)
    assert effects == [StopFollowing(2)]


def test_epoch_checks():
    core = leading(leader_epoch=5)
    assert core.check_epoch(5, leader_only=True) == ErrorCode.none
    assert core.check_epoch(-1, leader_only=True) == ErrorCode.none
    assert core.check_epoch(4, leader_only=True) == ErrorCode.fenced_leader_epoch
    assert core.check_epoch(6, leader_only=True) == ErrorCode.unknown_leader_epoch
    follower = PartitionCore(3, lag_max_ms=LAG_MS)
    follower.handle(assigned(leader_epoch=5), 0)
    assert follower.check_epoch(5, leader_only=True) == ErrorCode.not_leader_or_follower
    assert follower.check_epoch(5, leader_only=False) == ErrorCode.none


def test_low_watermark_asks_only_the_living():
    core = leading()
    core.handle(Appended(20), 0)
    core.handle(LogStartMoved(10), 0)
    fetch(core, 2, 10, log_start=7)
    fetch(core, 3, 10, log_start=2)
    assert core.low_watermark() == 2
    core.handle(EligibleBrokers({1: 11, 2: 12}), 0)
    assert core.low_watermark() == 7


def test_a_process_that_has_a_successor_is_not_heard_any_more():
    core = leading(isr=(1,), log_end=10)
    assert core.check_follower(2, 12, 0) is ErrorCode.none
    core.handle(EligibleBrokers({1: 11, 2: 22, 3: 13}), 0)
    # Its successor has registered and not fetched yet.
    assert core.check_follower(2, 12, 0) is ErrorCode.not_leader_or_follower
    assert fetch(core, 2, 10, epoch=12) == []
    assert core.remotes[2].log_end == UNKNOWN_OFFSET
    assert core.check_follower(2, 22, 0) is ErrorCode.none
    (proposal,) = [e for e in fetch(core, 2, 10, epoch=22) if isinstance(e, ProposeIsr)]
    assert dict(proposal.isr) == {1: 11, 2: 22}
    # One that has fetched is known even where the metadata lags behind.
    assert core.check_follower(3, 33, 0) is ErrorCode.none
    fetch(core, 3, 5, epoch=33)
    assert core.check_follower(3, 13, 0) is ErrorCode.not_leader_or_follower
    assert core.check_follower(3, -1, 0) is ErrorCode.none, "it gave none, as before version 15"
