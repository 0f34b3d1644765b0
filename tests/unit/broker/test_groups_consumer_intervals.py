"""When the members of a consumer group are to be back."""

import heapq

from consumer_scene import ConsumerScene, settle


def scene(**settings):
    it = ConsumerScene(**settings)
    it.know(t=3)
    return it


def test_who_waits_for_partitions_or_may_have_to_give_some_up_is_to_be_back_soon():
    it = scene(group_consumer_assignment_interval_ms=1_000)
    a, b = it.consumer("a"), it.consumer("b")
    assert a.join().heartbeat_interval_ms == 1_000
    it.advance(1_000)
    assert a.beat().heartbeat_interval_ms == 5_000
    b.join()
    assert b.beat().heartbeat_interval_ms == 1_000  # a must give one up first, and doesn't know yet
    it.advance(900)
    assert b.beat().heartbeat_interval_ms == 1_000
    settle(a, b)
    it.advance(1_000)
    assert (a.beat().heartbeat_interval_ms, b.beat().heartbeat_interval_ms) == (5_000, 5_000)
    assert len(a.partitions) + len(b.partitions) == 3


def test_a_shorter_interval_than_that_stays():
    it = scene(group_consumer_heartbeat_interval_ms=700)
    a = it.consumer("a")
    assert a.join().heartbeat_interval_ms == 700


def test_many_members_that_come_at_once_settle_within_three_seconds():
    it = scene(group_consumer_assignment_interval_ms=1_000)
    it.know(t=200)
    members = [it.consumer(f"m{number:02}") for number in range(50)]
    due = [(it.now_ms, number) for number in range(50)]
    begun_ms = it.now_ms
    while sum(len(one.partitions) for one in members) < 200 or not all(
        len(one.partitions) == 4 for one in members
    ):
        at_ms, number = heapq.heappop(due)
        it.advance(at_ms - it.now_ms)
        one = members[number]
        told = one.beat() if one.epoch else one.join()
        # What it gave up it says at once, a moment later.
        wait_ms = 5 if told.assignment is not None else told.heartbeat_interval_ms
        heapq.heappush(due, (it.now_ms + wait_ms, number))
    assert it.now_ms - begun_ms < 3_000
