"""Leader choice and partition changes, case by case."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from controller.elections import Chosen, Election, Wanted, change_partition, choose_leader
from metadata.image import PartitionRegistration
from metadata.records import NO_LEADER, NO_LEADER_CHANGE, RECOVERY_RECOVERING
from metadata.topics import merge

TOPIC = UUID(int=77)


def partition(replicas=(1, 2, 3), isr=(1, 2, 3), leader=1, **more):
    return PartitionRegistration(replicas, isr, leader, 5, 10, **more)


def change(before, wanted=None, *, alive=(1, 2, 3), election=Election.ONLINE, level=25):
    record = change_partition(
        TOPIC, 0, before, wanted or Wanted(), lambda b: b in alive, election, level
    )
    return record, before if record is None else merge(before, record)


def test_a_leader_that_may_go_on_stays():
    assert choose_leader((1, 2), (2, 1), 2, lambda b: True, Election.ONLINE) == Chosen(2)


def test_the_first_in_sync_replica_takes_over():
    assert choose_leader((1, 2, 3), (3, 2), 1, {2, 3}.__contains__, Election.ONLINE) == Chosen(2)


def test_preferred_goes_back_to_the_first_replica_only_if_in_sync():
    assert choose_leader((1, 2), (1, 2), 2, lambda b: True, Election.PREFERRED) == Chosen(1)
    assert choose_leader((1, 2), (2,), 2, lambda b: True, Election.PREFERRED) == Chosen(2)


def test_unclean_only_if_asked_for():
    alive = {3}.__contains__
    assert choose_leader((1, 2, 3), (1,), 1, alive, Election.ONLINE) == Chosen(NO_LEADER)
    assert choose_leader((1, 2, 3), (1,), 1, alive, Election.UNCLEAN) == Chosen(3, unclean=True)


def test_nothing_to_change_is_no_record():
    assert change(partition())[0] is None


def test_a_shrinking_isr_keeps_the_leader_epoch_from_level_12_on():
    record, after = change(partition(), Wanted(isr=(1, 2)))
    assert record.leader == NO_LEADER_CHANGE
    assert (after.leader_epoch, after.partition_epoch, after.isr) == (5, 11, (1, 2))
    record, after = change(partition(), Wanted(isr=(1, 2)), level=11)
    assert (after.leader, after.leader_epoch) == (1, 6)


def test_the_last_in_sync_replica_stays_in_the_isr():
    record, after = change(partition(isr=(1,)), Wanted(isr=()), alive=(2, 3))
    assert record.isr is None
    assert (after.leader, after.isr, after.leader_epoch) == (NO_LEADER, (1,), 6)


def test_an_unclean_leader_is_alone_and_recovers():
    before = partition(isr=(1,))
    _, after = change(before, Wanted(isr=()), alive=(2, 3), election=Election.UNCLEAN)
    assert (after.leader, after.isr) == (2, (2,))
    assert after.leader_recovery_state == RECOVERY_RECOVERING


def test_an_isr_that_has_all_new_replicas_ends_the_reassignment():
    before = partition((4, 1, 2), (1, 2), adding=(4,), removing=(2,))
    record, after = change(before, Wanted(isr=(1, 2, 4)), alive=(1, 2, 4))
    assert after.replicas == (4, 1)
    assert after.isr == (1, 4)
    assert (after.adding, after.removing) == ((), ())
    assert after.leader_epoch == 6
    assert record.replicas == (4, 1)


def test_directories_follow_their_replicas():
    dirs = tuple(UUID(int=1000 + i) for i in range(3))
    before = partition((4, 1, 2), (1, 2), adding=(4,), removing=(2,), directories=dirs)
    _, after = change(before, Wanted(isr=(1, 2, 4)), alive=(1, 2, 4))
    assert after.directories == dirs[:2]


@given(
    st.permutations([1, 2, 3, 4]),
    st.sets(st.integers(1, 4), min_size=1),
    st.sets(st.integers(1, 4)),
    st.sampled_from([NO_LEADER, 1, 2, 3, 4]),
    st.sets(st.integers(1, 4)),
    st.sampled_from(list(Election)),
    st.sampled_from([7, 11, 12, 25]),
)
def test_whatever_happens_the_partition_stays_sound(
    replicas, isr, alive, leader, gone, election, level
):
    isr = tuple(b for b in replicas if b in isr)
    if leader not in isr:
        leader = NO_LEADER
    before = partition(tuple(replicas), isr, leader)
    alive = alive - gone
    wanted = Wanted(isr=tuple(b for b in isr if b not in gone))
    record, after = change(before, wanted, alive=tuple(alive), election=election, level=level)
    assert after.isr
    assert set(after.isr) <= set(after.replicas)
    if after.leader != NO_LEADER:
        assert after.leader in after.isr
        assert after.leader in alive
        if after.leader not in before.isr:
            assert election is Election.UNCLEAN
            assert after.isr == (after.leader,)
            assert after.leader_recovery_state == RECOVERY_RECOVERING
    elif election is Election.UNCLEAN:
        assert not alive
    assert (after.leader_epoch > before.leader_epoch) or after.leader == before.leader
    if record is not None:
        assert after.partition_epoch == before.partition_epoch + 1
        # A second look at the outcome finds nothing more to do.
        assert change(after, alive=tuple(alive), election=election, level=level)[0] is None
