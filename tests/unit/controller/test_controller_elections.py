"""Leader choice and partition changes, case by case."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from controller.elections import Chosen, Election, Terms, Wanted, change_partition, choose_leader
from metadata.image import PartitionRegistration
from metadata.records import NO_LEADER, NO_LEADER_CHANGE, RECOVERY_RECOVERING
from metadata.topics import merge

TOPIC = UUID(int=77)


def partition(replicas=(1, 2, 3), isr=(1, 2, 3), leader=1, **more):
    return PartitionRegistration(replicas, isr, leader, 5, 10, **more)


def change(
    before,
    wanted=None,
    *,
    alive=(1, 2, 3),
    election=Election.ONLINE,
    level=25,
    elr=False,
    min_isr=2,
):
    terms = Terms(election=election, metadata_version=level, min_isr=min_isr, keep_elr=elr)
    record = change_partition(TOPIC, 0, before, wanted or Wanted(), alive.__contains__, terms)
    return record, before if record is None else merge(before, record)


def test_a_leader_that_may_go_on_stays():
    assert choose_leader((1, 2), (2, 1), (), 2, lambda b: True, Election.ONLINE) == Chosen(2)


def test_the_first_in_sync_replica_takes_over():
    assert choose_leader((1, 2, 3), (3, 2), (), 1, {2, 3}.__contains__, Election.ONLINE) == Chosen(
        2
    )


def test_preferred_goes_back_to_the_first_replica_only_if_in_sync():
    assert choose_leader((1, 2), (1, 2), (), 2, lambda b: True, Election.PREFERRED) == Chosen(1)
    assert choose_leader((1, 2), (2,), (), 2, lambda b: True, Election.PREFERRED) == Chosen(2)


def test_unclean_only_if_asked_for():
    alive = {3}.__contains__
    assert choose_leader((1, 2, 3), (1,), (), 1, alive, Election.ONLINE) == Chosen(NO_LEADER)
    assert choose_leader((1, 2, 3), (1,), (), 1, alive, Election.UNCLEAN) == Chosen(3, unclean=True)


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


# Eligible leader replicas.


def test_who_leaves_an_isr_below_the_minimum_stays_eligible():
    _, after = change(partition(), Wanted(isr=(1, 2)), elr=True)
    assert (after.isr, after.elr) == ((1, 2), ())
    _, after = change(after, Wanted(isr=(1,)), elr=True)
    assert (after.isr, after.elr, after.leader) == ((1,), (2,), 1)
    _, after = change(after, Wanted(isr=()), alive=(2, 3), elr=True)
    assert (after.isr, after.elr, after.leader, after.leader_epoch) == ((2,), (1,), 2, 6)
    _, after = change(after, Wanted(isr=()), alive=(3,), elr=True)
    assert (after.isr, after.elr, after.leader) == ((), (1, 2), NO_LEADER)
    assert after.last_known_elr == (2,)
    _, after = change(after, alive=(1, 3), elr=True)
    assert (after.isr, after.elr, after.leader, after.last_known_elr) == ((1,), (2,), 1, ())
    assert after.leader_recovery_state == 0, "nothing is lost"
    _, after = change(after, Wanted(isr=(1, 3)), alive=(1, 3), elr=True)
    assert (after.isr, after.elr) == ((1, 3), ()), "2 misses what is committed from now on"


def test_the_minimum_is_at_most_the_replica_count():
    before = partition(replicas=(1, 2), isr=(1, 2))
    _, after = change(before, Wanted(isr=(1,)), elr=True, min_isr=3)
    assert after.elr == (2,)
    alone = partition(replicas=(1,), isr=(1,))
    assert change(alone, Wanted(isr=(1,)), elr=True, min_isr=3)[0] is None


def test_who_may_have_lost_records_is_not_eligible():
    before = partition(isr=(1,), elr=(2, 3))
    _, after = change(before, Wanted(not_eligible=(2,)), elr=True)
    assert (after.isr, after.elr, after.leader) == ((1,), (3,), 1)
    _, after = change(before, Wanted(isr=(), not_eligible=(1,)), alive=(), elr=True)
    assert (after.isr, after.elr, after.last_known_elr) == ((), (2, 3), (1,))


def test_who_was_in_sync_last_counts_as_the_last_leader_where_all_leave_at_once():
    _, after = change(partition(replicas=(1, 2), isr=(1, 2)), Wanted(isr=(2,)), alive=(), elr=True)
    assert (after.isr, after.elr, after.leader) == ((2,), (1,), NO_LEADER)
    _, after = change(after, Wanted(isr=()), alive=(), elr=True)
    assert (after.isr, after.elr, after.last_known_elr) == ((), (1, 2), (2,))
    for gone in (1, 2):
        _, after = change(after, Wanted(not_eligible=(gone,)), alive=(), elr=True)
    assert (after.elr, after.leader, after.last_known_elr) == ((), NO_LEADER, (2,))
    _, after = change(after, alive=(1, 2), elr=True)
    assert (after.leader, after.isr, after.leader_recovery_state) == (2, (2,), 1)


def test_the_last_leader_is_taken_once_nobody_is_eligible():
    before = partition(isr=(), elr=(2,), leader=NO_LEADER, last_known_elr=(1,))
    record, _ = change(before, alive=(1, 3), elr=True)
    assert record is None, "2 has everything, 1 may not"
    _, after = change(before, Wanted(not_eligible=(2,)), alive=(1, 3), elr=True)
    assert (after.leader, after.isr, after.elr, after.last_known_elr) == (1, (1,), (), ())
    assert after.leader_recovery_state == RECOVERY_RECOVERING
    gone = before._replace(elr=())
    assert change(gone, alive=(2, 3), elr=True)[0] is None
    _, after = change(gone, alive=(2, 3), election=Election.UNCLEAN, elr=True)
    assert (after.leader, after.isr, after.leader_recovery_state) == (2, (2,), 1)
    several = gone._replace(last_known_elr=(1, 3))
    assert change(several, elr=True)[0] is None, "written by another: not ours to choose from"


def test_an_unclean_leader_ends_all_eligibility():
    before = partition(isr=(), elr=(2,), leader=NO_LEADER, last_known_elr=(2,))
    _, after = change(before, alive=(3,), election=Election.UNCLEAN, elr=True)
    assert (after.leader, after.isr, after.elr, after.last_known_elr) == (3, (3,), (), ())


def test_a_replica_that_is_taken_away_is_not_eligible_any_more():
    before = partition((4, 1, 2), (1,), elr=(2,), adding=(4,), removing=(2,))
    _, after = change(before, Wanted(isr=(1, 4)), alive=(1, 4), elr=True, min_isr=3)
    assert (after.replicas, after.isr, after.elr) == ((4, 1), (1, 4), ())
    before = partition((1, 2, 3), (1,), elr=(2, 3))
    _, after = change(before, Wanted(replicas=(1, 2)), elr=True)
    assert after.elr == (2,)


def test_turned_off_they_count_as_long_as_nobody_leads():
    waiting = partition(isr=(), elr=(2, 3), leader=NO_LEADER, last_known_elr=(1,))
    assert change(waiting, alive=(1,))[0] is None
    _, after = change(waiting, alive=(1, 3))
    assert (after.leader, after.isr, after.elr) == (3, (3,), (2,))
    # From here on the high watermark may move without 2.
    _, after = change(after, Wanted(isr=()), alive=(2,))
    assert (after.leader, after.isr, after.elr) == (NO_LEADER, (3,), ())


@given(
    st.permutations([1, 2, 3, 4]),
    st.sets(st.integers(1, 4)),
    st.sets(st.integers(1, 4)),
    st.sets(st.integers(1, 4)),
    st.integers(0, 4),
    st.sets(st.integers(1, 4)),
    st.booleans(),
    st.sampled_from(list(Election)),
    st.tuples(st.integers(1, 4), st.booleans()),
)
def test_whatever_happens_the_partition_stays_sound(
    replicas, isr, elr, alive, leader, gone, lossy, election, terms
):
    min_isr, kept = terms
    isr = tuple(b for b in replicas if b in isr)
    elr = tuple(b for b in replicas if b in elr and b not in isr)
    if not isr and not elr and not kept:
        isr = (replicas[0],)
    before = partition(tuple(replicas), isr, leader if leader in isr else NO_LEADER, elr=elr)
    alive = tuple(alive - gone)
    wanted = Wanted(
        isr=tuple(b for b in isr if b not in gone), not_eligible=tuple(gone) if lossy else ()
    )
    how = {"alive": alive, "election": election, "min_isr": min_isr, "elr": kept}
    record, after = change(before, wanted, **how)
    assert after.isr or after.elr or kept, "the last that may lead cleanly is forgotten"
    assert set(after.isr) | set(after.elr) <= set(after.replicas)
    assert not set(after.isr) & set(after.elr)
    assert not (lossy and kept and gone & (set(after.isr) | set(after.elr)))
    # Who wasn't eligible isn't now, but as an unclean leader.
    clean = set(before.isr) | (set(before.elr) if kept or not before.isr else set())
    assert set(after.elr) <= clean
    if after.leader == NO_LEADER:
        assert election is not Election.UNCLEAN or not alive
        assert not set(alive) & set(after.isr or after.elr)
    else:
        assert after.leader in after.isr
        assert after.leader in alive
        if after.leader not in (wanted.isr or clean):
            assert election is Election.UNCLEAN
            assert after.isr == (after.leader,)
            assert after.leader_recovery_state == RECOVERY_RECOVERING
    if kept and after.elr:
        assert len(wanted.isr) < min_isr
    assert (after.leader_epoch > before.leader_epoch) or after.leader == before.leader
    if record is not None:
        assert after.partition_epoch == before.partition_epoch + 1
        # A second look at the outcome finds nothing more to do.
        again, _ = change(after, **how)
        assert again is None or (again.leader, again.isr) == (NO_LEADER_CHANGE, None)
