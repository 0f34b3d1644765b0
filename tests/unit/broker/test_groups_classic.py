"""The classic group protocol: joining, rebalancing, staying, going."""

import pytest
from group_scene import RANGE, GroupScene, subscription

from broker.groups import events as e
from wire.errors import ErrorCode

STICKY = e.Protocol("sticky", subscription("t"))


def errors(scene, callers):
    return [scene.answers[caller].error.name for caller in callers if caller in scene.answers]


# -- joining -------------------------------------------------------------------------------------


def test_a_group_becomes_stable_with_what_its_leader_assigns():
    scene = GroupScene()
    leader, follower = scene.stable(2)
    assert scene.state() == "Stable"
    assert [one.member_id for one in leader.members] == [leader.member_id, follower.member_id]
    assert follower.members == ()
    for member in scene.described().members:
        assert member.assignment == member.member_id.encode()
    assert scene.beat(follower) is ErrorCode.none


def test_a_new_member_is_given_an_id_first_and_is_none_until_it_comes_with_it():
    scene = GroupScene()
    given = scene.answers[scene.join(client_id="app")]
    assert given.error is ErrorCode.member_id_required
    assert given.member_id.startswith("app-")
    assert scene.state() == "Empty"
    assert scene.beat(given._replace(generation=0)) is ErrorCode.unknown_member_id
    scene.join(given.member_id)
    assert scene.state() == "PreparingRebalance"


def test_clients_before_kip_394_join_without_an_id():
    scene = GroupScene()
    caller = scene.join(require_known_member_id=False)
    scene.advance(3_000)
    assert scene.answers[caller].generation == 1


def test_an_id_that_was_given_out_is_forgotten_after_a_session():
    scene = GroupScene()
    given = scene.answers[scene.join()]
    scene.advance(10_000)
    assert scene.answers[scene.join(given.member_id)].error is ErrorCode.unknown_member_id


def test_a_group_that_nobody_joined_knows_no_member():
    scene = GroupScene()
    assert scene.answers[scene.join("stranger")].error is ErrorCode.unknown_member_id
    assert scene.state() == "Dead"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": ""}, "invalid_group_id"),
        ({"session_timeout_ms": 5_999}, "invalid_session_timeout"),
        ({"session_timeout_ms": 1_800_001}, "invalid_session_timeout"),
        ({"protocol_type": ""}, "inconsistent_group_protocol"),
        ({"protocols": ()}, "inconsistent_group_protocol"),
    ],
)
def test_a_join_that_makes_no_sense_is_refused_and_makes_no_group(fields, error):
    scene = GroupScene()
    assert errors(scene, [scene.join(**fields)]) == [error]
    assert scene.log == []


def test_members_of_one_group_have_a_protocol_in_common():
    scene = GroupScene()
    scene.stable()
    refused = "inconsistent_group_protocol"
    assert errors(scene, [scene.join(protocols=(STICKY,))]) == [refused]
    assert errors(scene, [scene.join(protocol_type="connect")]) == [refused]


def test_the_protocol_is_the_one_with_most_votes_of_those_that_all_know():
    scene = GroupScene()
    both, reverse = (*RANGE, STICKY), (STICKY, *RANGE)
    joined = [scene.join_new(protocols=p)[1] for p in (both, reverse, reverse)]
    scene.advance(6_000)
    assert {scene.answers[caller].protocol_name for caller in joined} == {"sticky"}
    assert {scene.answers[caller].protocol_type for caller in joined} == {"consumer"}


def test_the_leader_is_told_each_members_metadata_for_the_chosen_protocol():
    scene = GroupScene()
    mine = e.Protocol("range", b"mine")
    joined = [scene.join_new(protocols=(STICKY, mine))[1], scene.join_new()[1]]
    scene.advance(6_000)
    told = {one.metadata for caller in joined for one in scene.answers[caller].members}
    assert told == {b"mine", RANGE[0].metadata}


def test_group_max_size_keeps_further_members_out():
    scene = GroupScene(group_max_size=2)
    scene.stable(2)
    assert scene.answers[scene.join()] == e.Joined(ErrorCode.group_max_size_reached)


def test_group_max_size_counts_those_that_have_come_during_a_rebalance():
    scene = GroupScene(group_max_size=2)
    given = [scene.answers[scene.join()].member_id for _ in range(3)]
    callers = [scene.join(member_id) for member_id in given]
    assert errors(scene, callers) == ["group_max_size_reached"]


def test_a_loaded_group_above_the_maximal_size_rebalances_and_the_last_to_come_stay_out():
    scene = GroupScene()
    joined = scene.stable(3)
    scene.settings = GroupScene(group_max_size=2).settings
    scene.fail_over()
    assert scene.state() == "PreparingRebalance"
    callers = [scene.join(one.member_id) for one in joined]
    assert errors(scene, callers) == ["group_max_size_reached"]
    scene.advance(60_000)
    assert errors(scene, callers) == ["none", "none", "group_max_size_reached"]


# -- the first rebalance -------------------------------------------------------------------------


def test_a_new_groups_first_members_wait_for_others_for_the_initial_delay():
    scene = GroupScene()
    _, caller = scene.join_new()
    scene.advance(2_999)
    assert caller not in scene.answers
    scene.advance(1)
    assert scene.answers[caller].generation == 1


def test_the_initial_delay_begins_anew_as_long_as_members_come():
    scene = GroupScene()
    callers = []
    for _ in range(3):
        callers.append(scene.join_new()[1])
        scene.advance(2_000)
    # They came after 0, 2 and 4 seconds; the delay ends for the third time after 9.
    scene.advance(2_999)
    assert errors(scene, callers) == []
    scene.advance(1)
    assert {scene.answers[caller].generation for caller in callers} == {1}


def test_the_initial_delay_is_never_longer_than_the_rebalance_timeout():
    scene = GroupScene()
    callers = []
    for _ in range(10):
        callers.append(scene.join_new(rebalance_timeout_ms=10_000)[1])
        scene.advance(1_000)
    assert {scene.answers[caller].generation for caller in callers} == {1}


def test_without_initial_delay_the_first_member_is_alone_at_first():
    scene = GroupScene(group_initial_rebalance_delay_ms=0)
    _, caller = scene.join_new()
    scene.advance(0)
    assert scene.answers[caller].generation == 1


# -- rebalances ----------------------------------------------------------------------------------


def test_a_further_member_has_all_join_again():
    scene = GroupScene()
    [old] = scene.stable()
    _, caller = scene.join_new()
    assert scene.beat(old) is ErrorCode.rebalance_in_progress
    again = scene.join(old.member_id)
    assert {scene.answers[c].generation for c in (again, caller)} == {2}
    assert scene.answers[caller].leader == old.member_id


def test_members_that_do_not_join_again_are_out_after_the_rebalance_timeout():
    scene = GroupScene()
    slow, quick = scene.stable(2)
    caller = scene.join(quick.member_id, protocols=(STICKY, *RANGE))
    for _ in range(6):
        assert scene.beat(slow) is ErrorCode.rebalance_in_progress
        scene.advance(9_999)
    assert caller not in scene.answers
    scene.advance(6)
    told = scene.answers[caller]
    assert (told.generation, told.leader) == (2, quick.member_id)
    assert scene.beat(slow) is ErrorCode.unknown_member_id


def test_the_longest_rebalance_timeout_of_all_members_counts():
    scene = GroupScene()
    callers = [scene.join_new(rebalance_timeout_ms=ms)[1] for ms in (7_000, 20_000)]
    scene.advance(6_000)
    old, _ = scene.synced([scene.answers[caller] for caller in callers])
    _, caller = scene.join_new(rebalance_timeout_ms=7_000)
    for _ in range(4):
        scene.beat(old)
        scene.advance(4_999)
    assert caller not in scene.answers
    scene.advance(4)
    assert scene.answers[caller].generation == 2


def test_a_leader_that_joins_again_begins_a_rebalance_though_nothing_changed():
    scene = GroupScene()
    leader, follower = scene.stable(2)
    told = scene.answers[scene.join(follower.member_id)]
    assert (told.generation, told.members) == (1, ())
    assert scene.state() == "Stable"
    scene.join(leader.member_id)
    assert scene.state() == "PreparingRebalance"


def test_a_follower_with_another_subscription_begins_a_rebalance():
    scene = GroupScene()
    _, follower = scene.stable(2)
    scene.join(follower.member_id, protocols=(e.Protocol("range", subscription("u")),))
    assert scene.state() == "PreparingRebalance"


def test_a_join_whose_answer_was_lost_is_answered_again():
    scene = GroupScene()
    callers = [scene.join_new()[1] for _ in range(2)]
    scene.advance(6_000)
    for caller in callers:
        told = scene.answers[caller]
        assert scene.answers[scene.join(told.member_id)] == told


def test_a_join_that_its_client_repeats_meanwhile_ends_the_first_one():
    scene = GroupScene()
    member_id, first = scene.join_new()
    second = scene.join(member_id)
    assert scene.answers[first].error is ErrorCode.rebalance_in_progress
    scene.advance(3_000)
    assert scene.answers[second].generation == 1


def test_the_oldest_member_leads_when_the_leader_has_gone():
    scene = GroupScene()
    leader, second, third = scene.stable(3)
    scene.leave((leader.member_id, None))
    callers = [scene.join(one.member_id) for one in (third, second)]
    assert {scene.answers[caller].leader for caller in callers} == {second.member_id}


def test_a_leader_that_has_not_come_is_no_leader():
    scene = GroupScene()
    leader, static = scene.stable(1)[0], scene.join(instance_id="i")
    scene.join(leader.member_id)
    told = scene.answers[static]
    assert told.leader == leader.member_id
    scene.synced([told, scene.answers[static + 1]])
    # The static leader-to-be stays a member without coming, but cannot lead.
    scene.leave((leader.member_id, None))
    _, caller = scene.join_new()
    for _ in range(7):
        scene.beat(told)
        scene.advance(9_000)
    assert scene.answers[caller].leader == scene.answers[caller].member_id


# -- sync ----------------------------------------------------------------------------------------


def test_followers_wait_for_the_leaders_assignment_and_get_their_part():
    scene = GroupScene()
    leader, follower = scene.joined(2)
    caller = scene.sync(follower)
    assert caller not in scene.answers
    scene.sync(leader, [(leader.member_id, b"1"), (follower.member_id, b"2")])
    assert scene.answers[caller] == e.Synced(ErrorCode.none, "consumer", "range", b"2")


def test_a_member_that_the_leader_forgot_is_assigned_nothing():
    scene = GroupScene()
    leader, follower = scene.joined(2)
    scene.sync(leader, [(leader.member_id, b"1")])
    assert scene.answers[scene.sync(follower)].assignment == b""


def test_a_late_sync_is_answered_from_the_stable_group():
    scene = GroupScene()
    leader, follower = scene.joined(2)
    scene.sync(leader, [(follower.member_id, b"2")])
    scene.advance(5_000)
    for _ in range(2):
        assert scene.answers[scene.sync(follower)].assignment == b"2"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"generation": 0}, "illegal_generation"),
        ({"generation": 2}, "illegal_generation"),
        ({"member_id": "stranger"}, "unknown_member_id"),
        ({"instance_id": "i"}, "unknown_member_id"),
        ({"protocol_type": "connect"}, "inconsistent_group_protocol"),
        ({"protocol_name": "sticky"}, "inconsistent_group_protocol"),
        ({"group_id": "other"}, "unknown_member_id"),
        ({"group_id": ""}, "invalid_group_id"),
    ],
)
def test_a_sync_of_somebody_else_is_refused(fields, error):
    scene = GroupScene()
    leader, _ = scene.joined(2)
    assert errors(scene, [scene.sync(leader, **fields)]) == [error]


def test_a_sync_during_a_rebalance_is_told_to_join_again():
    scene = GroupScene()
    leader, _ = scene.stable(2)
    scene.join(leader.member_id)
    assert errors(scene, [scene.sync(leader)]) == ["rebalance_in_progress"]


def test_a_new_member_ends_the_wait_for_the_assignment():
    scene = GroupScene()
    _, follower = scene.joined(2)
    caller = scene.sync(follower)
    scene.join_new()
    assert errors(scene, [caller]) == ["rebalance_in_progress"]
    assert scene.state() == "PreparingRebalance"


def test_members_that_do_not_sync_within_the_rebalance_timeout_are_out():
    scene = GroupScene()
    leader, follower = scene.joined(2)
    scene.sync(leader)
    for _ in range(7):
        scene.beat(leader)
        scene.beat(follower)
        scene.advance(9_000)
    assert scene.beat(follower) is ErrorCode.unknown_member_id
    assert scene.beat(leader) is ErrorCode.rebalance_in_progress


def test_the_assignment_is_told_when_it_is_committed():
    scene = GroupScene()
    leader, follower = scene.joined(2)
    scene.replicated = False
    callers = [scene.sync(follower), scene.sync(leader)]
    assert (errors(scene, callers), scene.state()) == ([], "CompletingRebalance")
    scene.commit()
    assert (errors(scene, callers), scene.state()) == (["none", "none"], "Stable")


def test_an_assignment_that_cannot_be_stored_is_another_rebalance():
    scene = GroupScene()
    leader, follower = scene.joined(2)
    caller = scene.sync(follower)
    scene.append_error = ErrorCode.not_enough_replicas
    refused = ["coordinator_not_available"] * 2
    assert errors(scene, [caller, scene.sync(leader)]) == refused
    assert scene.state() == "PreparingRebalance"
    scene.append_error = None
    callers = [scene.join(one.member_id) for one in (leader, follower)]
    assert {scene.answers[caller].generation for caller in callers} == {2}


def test_an_assignment_that_is_committed_too_late_is_told_to_nobody():
    scene = GroupScene()
    leader, follower = scene.joined(2)
    scene.replicated = False
    callers = [scene.sync(follower), scene.sync(leader)]
    scene.ask(e.LeaveGroup, "g", (e.Leaving(leader.member_id),))
    scene.commit()
    assert errors(scene, callers) == ["rebalance_in_progress", "unknown_member_id"]
    assert scene.state() == "PreparingRebalance"


# -- sessions ------------------------------------------------------------------------------------


def test_a_member_without_heartbeats_is_out_after_its_session():
    scene = GroupScene()
    lively, dead = scene.stable(2)
    scene.advance(9_999)
    assert scene.beat(lively) is ErrorCode.none
    scene.advance(1)
    assert scene.beat(lively) is ErrorCode.rebalance_in_progress
    assert scene.beat(dead) is ErrorCode.unknown_member_id


def test_a_commit_is_as_good_as_a_heartbeat():
    scene = GroupScene()
    [only] = scene.stable()
    for offset in range(5):
        scene.advance(9_000)
        fields = {"member_id": only.member_id, "generation": only.generation}
        assert scene.commit_offset(offset, **fields) is ErrorCode.none
    assert scene.beat(only) is ErrorCode.none


def test_a_member_that_waits_for_our_answer_needs_no_heartbeat():
    scene = GroupScene()
    slow, waiting = scene.stable(2)
    caller = scene.join(waiting.member_id, protocols=(*RANGE, STICKY))
    for _ in range(5):
        scene.advance(9_000)
        scene.beat(slow)
    assert caller not in scene.answers
    scene.join(slow.member_id)
    assert scene.answers[caller].generation == 2


def test_a_new_member_waits_for_five_minutes_at_most():
    """Its client cannot be heard meanwhile; if it is still there, it comes again."""
    scene = GroupScene()
    old = scene.stable(rebalance_timeout_ms=600_000)[0]
    _, caller = scene.join_new()
    for _ in range(60):
        assert caller not in scene.answers
        scene.beat(old)
        scene.advance(5_000)
    assert scene.answers[caller] == e.Joined(ErrorCode.unknown_member_id)


def test_the_last_members_end_leaves_an_empty_group_of_a_generation_more():
    scene = GroupScene()
    scene.stable()
    scene.advance(10_000)
    assert scene.state() == "Empty"
    copy = GroupScene()
    copy.log, copy.high_watermark = scene.log, len(scene.log)
    copy.fail_over()
    assert copy.state() == "Empty"
    _, caller = copy.join_new()
    copy.advance(3_000)
    assert copy.answers[caller].generation == 3


def test_heartbeats_tell_who_is_not_of_this_generation():
    scene = GroupScene()
    [only] = scene.stable()
    assert scene.beat(only._replace(generation=0)) is ErrorCode.illegal_generation
    assert scene.beat(only._replace(member_id="stranger")) is ErrorCode.unknown_member_id
    assert scene.beat(only, instance_id="i") is ErrorCode.unknown_member_id
    assert scene.beat(only, group_id="other") is ErrorCode.unknown_member_id
    assert scene.beat(only, group_id="") is ErrorCode.invalid_group_id


# -- leaving -------------------------------------------------------------------------------------


def test_whoever_leaves_is_out_at_once():
    scene = GroupScene()
    leader, follower = scene.stable(2)
    told = scene.leave((follower.member_id, None))
    assert told == e.Left(ErrorCode.none, ((e.Leaving(follower.member_id), ErrorCode.none),))
    assert scene.beat(leader) is ErrorCode.rebalance_in_progress


def test_members_that_leave_in_one_request_are_told_each_its_own():
    scene = GroupScene()
    [only] = scene.stable()
    caller = scene.join(instance_id="i")
    scene.join(only.member_id)
    static = scene.answers[caller]
    told = scene.leave(
        ("", "i"), (static.member_id, None), ("stranger", None), (only.member_id, "i"), ("", None)
    )
    assert [error.name for _, error in told.members] == [
        "none",
        "unknown_member_id",
        "unknown_member_id",
        "unknown_member_id",
        "unknown_member_id",
    ]


def test_leaving_an_unknown_group_is_told_for_each_member():
    scene = GroupScene()
    told = scene.leave(("m", None), ("", "i"), group_id="other")
    assert told.error is ErrorCode.none
    assert [error for _, error in told.members] == [ErrorCode.unknown_member_id] * 2
    assert scene.leave(("m", None), group_id="").error is ErrorCode.invalid_group_id


def test_the_last_one_to_be_waited_for_may_leave():
    scene = GroupScene()
    leader, follower = scene.stable(2)
    caller = scene.join(leader.member_id)
    scene.leave((follower.member_id, None))
    assert scene.answers[caller].generation == 2


def test_an_id_that_was_given_out_can_leave_and_is_waited_for_no_more():
    scene = GroupScene()
    [only] = scene.stable()
    given = scene.answers[scene.join()]
    caller = scene.join(only.member_id)
    assert caller not in scene.answers
    scene.leave((given.member_id, None))
    assert scene.answers[caller].generation == 2


def test_whoever_waits_in_the_name_of_a_member_that_leaves_is_told():
    scene = GroupScene()
    _, follower = scene.joined(2)
    caller = scene.sync(follower)
    scene.leave((follower.member_id, None))
    assert errors(scene, [caller]) == ["unknown_member_id"]


# -- who coordinates -----------------------------------------------------------------------------


def test_while_it_loads_requests_are_told_so_and_heartbeats_are_let_pass():
    scene = GroupScene()
    [only] = scene.stable()
    scene.core = scene.loaded_copy()
    assert scene.beat(only) is ErrorCode.none
    assert errors(scene, [scene.join(), scene.sync(only)]) == ["coordinator_load_in_progress"] * 2
    told = scene.told(e.OffsetFetch, "g", (("t", (0,)),))
    assert told == e.OffsetsFetched(ErrorCode.coordinator_load_in_progress)
    assert scene.commit_offset(1) is ErrorCode.coordinator_load_in_progress


def test_a_loaded_group_goes_on_with_its_members_and_new_sessions():
    scene = GroupScene()
    leader, follower = scene.stable(2)
    before = scene.described()
    scene.advance(9_000)
    scene.fail_over()
    scene.advance(9_000)
    assert scene.described() == before
    assert scene.beat(leader) is ErrorCode.none
    scene.advance(1_000)
    assert scene.beat(leader) is ErrorCode.rebalance_in_progress
    assert scene.beat(follower) is ErrorCode.unknown_member_id


def test_whoever_resigns_turns_away_all_who_wait():
    scene = GroupScene()
    leader, follower = scene.joined(2)
    scene.replicated = False
    waiting = [
        scene.sync(follower),
        scene.sync(leader),
        scene.join(group_id="new", instance_id="i"),
    ]
    waiting.append(scene.ask(e.Heartbeat, "g", leader.generation, leader.member_id, None))
    scene.tell(e.Resigned())
    assert errors(scene, waiting) == ["not_coordinator"] * 4
    assert errors(scene, [scene.join()]) == ["not_coordinator"]


def test_a_new_group_that_cannot_be_stored_never_was():
    scene = GroupScene()
    scene.append_error = ErrorCode.not_enough_replicas
    told = scene.answers[scene.join()]
    assert told.error is ErrorCode.coordinator_not_available
    static = scene.join(instance_id="i")
    assert errors(scene, [static]) == ["coordinator_not_available"]
    assert scene.state() == "Dead"
    scene.append_error = None
    scene.advance(20_000)
    assert scene.stable()[0].generation == 1


# -- what an operator is told --------------------------------------------------------------------


def test_the_operator_is_told_when_a_group_is_stable_and_why_it_rebalances():
    scene = GroupScene()
    leader, follower = scene.stable(2)
    stable = {"group": "g", "generation": 1, "members": 2}
    assert scene.told_operator[-1] == ("group_stable", stable)
    scene.told_operator.clear()
    scene.join(leader.member_id, reason="new partitions")
    scene.join(follower.member_id)
    reason = f"{leader.member_id} joins again: new partitions"
    assert scene.told_operator == [("group_rebalances", {**stable, "reason": reason})]


def test_the_operator_is_told_who_has_gone():
    scene = GroupScene()
    leader, second, third = scene.stable(3)
    gone = (e.Leaving(second.member_id, None, "shutdown"), e.Leaving("stranger"))
    scene.told(e.LeaveGroup, "g", gone)
    for one in (leader, third):
        scene.join(one.member_id)
    scene.advance(60_000)
    reasons = [fields["reason"] for event, fields in scene.told_operator if "reason" in fields]
    assert f"{second.member_id} left: shutdown" in reasons
    assert f"the session of {leader.member_id} has ended" in reasons
