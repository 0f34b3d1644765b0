"""The APIs of groups in every version.

What a core is asked, and what its answer becomes on the wire; all fields are away from their
defaults. What a real core says is other tests' matter.
"""

from broker_fakes import until
from group_api_scene import expected, run

from broker.group_partition import OFFSETS_TOPIC
from broker.groups import events as e
from wire.apis import ApiKey
from wire.apis import ErrorCode as E
from wire.messages import fill, millis


def test_join_group(tmp_path):
    async def test(s):
        for version in range(10):

            def build(m):
                return fill(
                    m.JoinGroupRequest,
                    group_id="g",
                    session_timeout=millis(7000),
                    rebalance_timeout=millis(8000),
                    member_id="m",
                    group_instance_id="i",
                    protocol_type="consumer",
                    protocols=(m.JoinGroupRequestProtocol(name="range", metadata=b"x"),),
                    reason="why",
                )

            members = (e.JoinedMember("m", "i", b"x"), e.JoinedMember("n", None, b"y"))
            joined = e.Joined(E.none, "m", 5, "consumer", "range", "n", True, members)
            asked, answer = await s.ask(ApiKey.JOIN_GROUP, version, build, {e.JoinGroup: joined})
            assert asked == [
                e.JoinGroup(
                    0,
                    "g",
                    "m",
                    "i" if version >= 5 else None,
                    "test",
                    "/127.0.0.1",
                    7000,
                    8000 if version else 7000,
                    "consumer",
                    (e.Protocol("range", b"x"),),
                    version >= 4,
                    version >= 9,
                    "why" if version >= 8 else None,
                )
            ]
            assert answer == expected(
                ApiKey.JOIN_GROUP,
                version,
                error_code=E.none,
                generation_id=5,
                protocol_type="consumer",
                protocol_name="range",
                leader="n",
                skip_assignment=True,
                member_id="m",
                members=tuple(
                    expected(
                        ApiKey.JOIN_GROUP,
                        version,
                        "JoinGroupResponseMember",
                        member_id=m.member_id,
                        group_instance_id=m.instance_id,
                        metadata=m.metadata,
                    )
                    for m in members
                ),
            )
            refused = e.Joined(E.group_max_size_reached, "n")
            _, answer = await s.ask(ApiKey.JOIN_GROUP, version, build, {e.JoinGroup: refused})
            assert answer.error_code is E.group_max_size_reached
            assert answer.protocol_name == (None if version >= 7 else "")
            assert (answer.member_id, answer.generation_id, answer.members) == ("n", -1, ())

    run(tmp_path, test)


def test_sync_group(tmp_path):
    async def test(s):
        for version in range(6):

            def build(m, protocol_type="consumer", protocol_name="range"):
                return fill(
                    m.SyncGroupRequest,
                    group_id="g",
                    generation_id=5,
                    member_id="m",
                    group_instance_id="i",
                    protocol_type=protocol_type,
                    protocol_name=protocol_name,
                    assignments=(m.SyncGroupRequestAssignment(member_id="n", assignment=b"z"),),
                )

            synced = e.Synced(E.none, "consumer", "range", b"mine")
            asked, answer = await s.ask(ApiKey.SYNC_GROUP, version, build, {e.SyncGroup: synced})
            names = ("consumer", "range") if version >= 5 else (None, None)
            instance = "i" if version >= 3 else None
            assert asked == [e.SyncGroup(0, "g", 5, "m", instance, *names, (("n", b"z"),))]
            assert answer == expected(
                ApiKey.SYNC_GROUP,
                version,
                error_code=E.none,
                protocol_type="consumer",
                protocol_name="range",
                assignment=b"mine",
            )
        for names in ((None, "range"), ("consumer", None)):
            asked, answer = await s.ask(ApiKey.SYNC_GROUP, 5, lambda m, n=names: build(m, *n))
            assert (asked, answer.error_code) == ([], E.inconsistent_group_protocol)

    run(tmp_path, test)


def test_heartbeat(tmp_path):
    async def test(s):
        for version in range(5):
            beaten = e.Beaten(E.rebalance_in_progress)
            asked, answer = await s.ask(
                ApiKey.HEARTBEAT,
                version,
                lambda m: fill(
                    m.HeartbeatRequest,
                    group_id="g",
                    generation_id=5,
                    member_id="m",
                    group_instance_id="i",
                ),
                {e.Heartbeat: beaten},
            )
            assert asked == [e.Heartbeat(0, "g", 5, "m", "i" if version >= 3 else None)]
            assert answer == expected(ApiKey.HEARTBEAT, version, error_code=E.rebalance_in_progress)

    run(tmp_path, test)


def test_leave_group(tmp_path):
    async def test(s):
        for version in range(6):
            several = version >= 3

            def build(m, several=several):
                if not several:
                    return m.LeaveGroupRequest(group_id="g", member_id="m")
                return m.LeaveGroupRequest(
                    group_id="g",
                    members=(
                        fill(m.MemberIdentity, member_id="m", group_instance_id="i", reason="r"),
                        fill(m.MemberIdentity, member_id="", group_instance_id="j", reason=None),
                    ),
                )

            leaving = (e.Leaving("m"),)
            if several:
                reason = "r" if version >= 5 else None
                leaving = (e.Leaving("m", "i", reason), e.Leaving("", "j", None))
            errors = (E.unknown_member_id, E.none)
            left = e.Left(E.none, tuple(zip(leaving, errors, strict=False)))
            asked, answer = await s.ask(ApiKey.LEAVE_GROUP, version, build, {e.LeaveGroup: left})
            assert asked == [e.LeaveGroup(0, "g", leaving)]
            assert answer == expected(
                ApiKey.LEAVE_GROUP,
                version,
                error_code=E.none if several else E.unknown_member_id,
                members=tuple(
                    expected(
                        ApiKey.LEAVE_GROUP,
                        version,
                        "MemberResponse",
                        member_id=m.member_id,
                        group_instance_id=m.instance_id,
                        error_code=error,
                    )
                    for m, error in (left.members if several else ())
                ),
            )
            refused = {e.LeaveGroup: e.Left(E.invalid_group_id)}
            _, answer = await s.ask(ApiKey.LEAVE_GROUP, version, build, refused)
            assert answer.error_code is E.invalid_group_id

    run(tmp_path, test)


def test_list_groups(tmp_path):
    async def test(s):
        listed = e.GroupsListed(E.none, (e.ListedGroup("g", "consumer", "Stable", "classic"),))
        for version in range(6):

            def build(m):
                return fill(m.ListGroupsRequest, states_filter=("Dead",), types_filter=("x",))

            asked, answer = await s.ask(ApiKey.LIST_GROUPS, version, build, {e.ListGroups: listed})
            states, types = ("Dead",) * (version >= 4), ("x",) * (version >= 5)
            assert asked == [e.ListGroups(0, states, types)]
            group = expected(
                ApiKey.LIST_GROUPS,
                version,
                "ListedGroup",
                group_id="g",
                protocol_type="consumer",
                group_state="Stable",
                group_type="classic",
            )
            assert answer == expected(
                ApiKey.LIST_GROUPS, version, error_code=E.none, groups=(group,)
            )
            loading = e.GroupsListed(E.coordinator_load_in_progress)
            _, answer = await s.ask(ApiKey.LIST_GROUPS, version, build, {e.ListGroups: loading})
            assert (answer.error_code, answer.groups) == (E.coordinator_load_in_progress, ())

    run(tmp_path, test)


def test_describe_groups(tmp_path):
    async def test(s):
        member = e.DescribedMember("m", "i", "c", "/h", b"meta", b"mine")
        groups = (
            e.DescribedGroup(E.none, "g", "Stable", "consumer", "range", (member,)),
            e.DescribedGroup(E.group_id_not_found, "h", "Dead", message="Group h not found."),
        )
        for version in range(7):
            asked, answer = await s.ask(
                ApiKey.DESCRIBE_GROUPS,
                version,
                lambda m: fill(
                    m.DescribeGroupsRequest, groups=("g", "h"), include_authorized_operations=True
                ),
                {e.DescribeGroups: e.GroupsDescribed(groups)},
            )
            assert asked == [e.DescribeGroups(0, ("g", "h"))]
            missing = E.group_id_not_found if version >= 6 else E.none
            assert answer.groups == (
                expected(
                    ApiKey.DESCRIBE_GROUPS,
                    version,
                    "DescribedGroup",
                    error_code=E.none,
                    group_id="g",
                    group_state="Stable",
                    protocol_type="consumer",
                    protocol_data="range",
                    members=(
                        expected(
                            ApiKey.DESCRIBE_GROUPS,
                            version,
                            "DescribedGroupMember",
                            member_id="m",
                            group_instance_id="i",
                            client_id="c",
                            client_host="/h",
                            member_metadata=b"meta",
                            member_assignment=b"mine",
                        ),
                    ),
                    authorized_operations=3400,
                ),
                expected(
                    ApiKey.DESCRIBE_GROUPS,
                    version,
                    "DescribedGroup",
                    error_code=missing,
                    error_message="Group h not found.",
                    group_id="h",
                    group_state="Dead",
                    protocol_type="",
                    protocol_data="",
                    members=(),
                    authorized_operations=-(1 << 31) if version >= 6 else 3400,
                ),
            )

    run(tmp_path, test)


def test_delete_groups(tmp_path):
    async def test(s):
        deleted = e.GroupsDeleted((("g", E.none), ("h", E.non_empty_group)))
        for version in range(3):
            asked, answer = await s.ask(
                ApiKey.DELETE_GROUPS,
                version,
                lambda m: m.DeleteGroupsRequest(groups_names=("g", "h", "g")),
                {e.DeleteGroups: deleted},
            )
            assert asked == [e.DeleteGroups(0, ("g", "h"))]
            assert [(r.group_id, r.error_code) for r in answer.results] == list(deleted.groups)

    run(tmp_path, test)


def test_where_nobody_coordinates_the_group(tmp_path):
    async def test(s):
        s.c.controller.set_leader(OFFSETS_TOPIC, 0, -1)
        await until(lambda: not s.c.brokers[1].groups.partitions)
        nobody = E.not_coordinator
        _, joined = await s.ask(
            ApiKey.JOIN_GROUP,
            4,
            lambda m: fill(
                m.JoinGroupRequest,
                group_id="g",
                session_timeout=millis(7000),
                rebalance_timeout=millis(8000),
                member_id="m",
                protocol_type="consumer",
                protocols=(),
            ),
        )
        assert (joined.error_code, joined.member_id) == (nobody, "")
        _, described = await s.ask(
            ApiKey.DESCRIBE_GROUPS,
            3,
            lambda m: m.DescribeGroupsRequest(
                groups=("a", "b"), include_authorized_operations=True
            ),
        )
        assert [(g.group_id, g.error_code, g.group_state) for g in described.groups] == [
            ("a", nobody, ""),
            ("b", nobody, ""),
        ]
        _, deleted = await s.ask(
            ApiKey.DELETE_GROUPS, 1, lambda m: m.DeleteGroupsRequest(groups_names=("a", "b"))
        )
        assert [(r.group_id, r.error_code) for r in deleted.results] == [
            ("a", nobody),
            ("b", nobody),
        ]
        _, listed = await s.ask(ApiKey.LIST_GROUPS, 0, lambda m: m.ListGroupsRequest())
        assert (listed.error_code, listed.groups) == (E.none, ())

    run(tmp_path, test)
