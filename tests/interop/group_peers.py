"""Two coordinators asked the same things: a broker over its Kafka listener, and the core itself.

Both take the core's requests (`broker.groups.events`) and give its answers. Member ids are chance;
in what is compared they have names in the order in which they were given out.
"""

import select
import socket
import struct

from group_scene import GroupScene
from waiting import wait_until

from broker.groups import events as e
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages import (
    RequestHeader,
    decode_response,
    encode_request,
    fill,
    millis,
    request_class,
    request_module,
)

ANSWER_TIMEOUT_S = 60
CLIENT = "c"


class CorePeer:
    """The core, with a log that commits at once."""

    def __init__(self, **settings):
        self.scene = GroupScene(**settings)

    def ask(self, make, *args, **fields):
        caller = self.scene.ask(make, *args, **fields)
        self.scene.advance(1)
        return caller

    def answers(self):
        """What callers were told so far."""
        return self.scene.answers


class BrokerPeer:
    """A broker that is the only one of its cluster. Each request has a connection to itself, so
    that one that waits holds up no other."""

    def __init__(self, bootstrap):
        host, port = bootstrap.rsplit(":", 1)
        self._address = (host, int(port))
        self._idle = []
        self._waiting = {}
        self._answers = {}
        self._callers = 0

    def ask(self, make, *args, **fields):
        caller, self._callers = self._callers, self._callers + 1
        request = make(caller, *args, **fields)
        key, version, entity, translate = _REQUESTS[make](request)
        connection = self._idle.pop() if self._idle else self._connect()
        connection.sendall(encode_request(RequestHeader(key, version, caller, CLIENT), entity))
        self._waiting[caller] = (connection, key, version, translate)
        return caller

    def _connect(self):
        connection = socket.create_connection(self._address, ANSWER_TIMEOUT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def answers(self, expected=()):
        """What callers were told so far; it waits for those expected."""
        for caller in expected:
            if caller in self._waiting:
                self._receive(caller)
        callers = {connection: caller for caller, (connection, *_) in self._waiting.items()}
        readable, _, _ = select.select(list(callers), [], [], 0)
        for connection in readable:
            self._receive(callers[connection])
        return self._answers

    def _receive(self, caller):
        connection, key, version, translate = self._waiting[caller]
        try:
            (size,) = struct.unpack(">i", _exactly(connection, 4))
        except TimeoutError:
            raise AssertionError(f"the broker does not answer caller {caller}") from None
        _, entity = decode_response(key, version, _exactly(connection, size))
        del self._waiting[caller]
        self._idle.append(connection)
        self._answers[caller] = translate(entity)

    def told(self, make, *args, **fields):
        """The answer to a request that needn't wait for others."""
        caller = self.ask(make, *args, **fields)
        self._receive(caller)
        return self._answers[caller]

    def find_coordinator(self, group_id):
        """Returns when the broker serves the group, for which it makes its topic."""

        def served():
            entity = _entity(ApiKey.FIND_COORDINATOR, 3, key=group_id, key_type=0)
            told = self._exchange(ApiKey.FIND_COORDINATOR, 3, entity)
            if told.error_code is not ErrorCode.none:
                return False
            listed = self.told(e.DescribeGroups, (group_id,)).groups[0]
            return listed.error in (ErrorCode.none, ErrorCode.group_id_not_found)

        wait_until(served, "a group coordinator", 30, 0.1)

    def _exchange(self, key, version, entity):
        with self._connect() as connection:
            connection.sendall(encode_request(RequestHeader(key, version, 0, CLIENT), entity))
            (size,) = struct.unpack(">i", _exactly(connection, 4))
            return decode_response(key, version, _exactly(connection, size))[1]

    def close(self):
        for connection in [*self._idle, *(waiting[0] for waiting in self._waiting.values())]:
            connection.close()


def _exactly(connection, size):
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        assert more, "the broker closed the connection"
        data += more
    return data


def _entity(api, version, **fields):
    return fill(request_class(api, version), **fields)


def _join(request):
    # The newest version that needs no known member id has no static members.
    known = request.require_known_member_id or request.instance_id is not None
    version = 9 if known else 3
    m = request_module(ApiKey.JOIN_GROUP, version)
    entity = _entity(
        ApiKey.JOIN_GROUP,
        version,
        group_id=request.group_id,
        session_timeout=millis(request.session_timeout_ms),
        rebalance_timeout=millis(request.rebalance_timeout_ms),
        member_id=request.member_id,
        group_instance_id=request.instance_id,
        protocol_type=request.protocol_type,
        protocols=tuple(
            m.JoinGroupRequestProtocol(name=one.name, metadata=one.metadata)
            for one in request.protocols
        ),
    )

    def translate(told):
        return e.Joined(
            told.error_code,
            told.member_id,
            told.generation_id,
            getattr(told, "protocol_type", None),
            told.protocol_name,
            told.leader,
            getattr(told, "skip_assignment", False),
            tuple(
                e.JoinedMember(one.member_id, getattr(one, "group_instance_id", None), one.metadata)
                for one in told.members
            ),
        )

    return ApiKey.JOIN_GROUP, version, entity, translate


def _sync(request):
    # From version 5 on a broker insists on both names.
    version = 4 if request.protocol_type is None else 5
    m = request_module(ApiKey.SYNC_GROUP, version)
    entity = _entity(
        ApiKey.SYNC_GROUP,
        version,
        group_id=request.group_id,
        generation_id=request.generation,
        member_id=request.member_id,
        group_instance_id=request.instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=tuple(
            m.SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
            for member_id, assignment in request.assignments
        ),
    )

    def translate(told):
        return e.Synced(
            told.error_code,
            getattr(told, "protocol_type", None),
            getattr(told, "protocol_name", None),
            told.assignment,
        )

    return ApiKey.SYNC_GROUP, version, entity, translate


def _beat(request):
    entity = _entity(
        ApiKey.HEARTBEAT,
        4,
        group_id=request.group_id,
        generation_id=request.generation,
        member_id=request.member_id,
        group_instance_id=request.instance_id,
    )
    return ApiKey.HEARTBEAT, 4, entity, lambda told: e.Beaten(told.error_code)


def _leave(request):
    m = request_module(ApiKey.LEAVE_GROUP, 5)
    entity = _entity(
        ApiKey.LEAVE_GROUP,
        5,
        group_id=request.group_id,
        members=tuple(
            m.MemberIdentity(member_id=one.member_id, group_instance_id=one.instance_id)
            for one in request.members
        ),
    )

    def translate(told):
        return e.Left(
            told.error_code,
            tuple(
                (e.Leaving(one.member_id, one.group_instance_id), one.error_code)
                for one in told.members
            ),
        )

    return ApiKey.LEAVE_GROUP, 5, entity, translate


def _by_topic(offsets):
    topics = {}
    for one in offsets:
        topics.setdefault(one.topic, []).append(one)
    return topics


def _commit(request):
    m = request_module(ApiKey.OFFSET_COMMIT, 9)
    entity = _entity(
        ApiKey.OFFSET_COMMIT,
        9,
        group_id=request.group_id,
        generation_id_or_member_epoch=request.generation,
        member_id=request.member_id,
        group_instance_id=request.instance_id,
        topics=tuple(
            m.OffsetCommitRequestTopic(
                name=topic,
                partitions=tuple(
                    m.OffsetCommitRequestPartition(
                        partition_index=one.partition,
                        committed_offset=one.offset,
                        committed_leader_epoch=one.leader_epoch,
                        committed_metadata=one.metadata,
                    )
                    for one in partitions
                ),
            )
            for topic, partitions in _by_topic(request.offsets).items()
        ),
    )

    def translate(told):
        errors = {
            (topic.name, one.partition_index): one.error_code
            for topic in told.topics
            for one in topic.partitions
        }
        return e.OffsetsCommitted(
            tuple(errors[one.topic, one.partition] for one in request.offsets)
        )

    return ApiKey.OFFSET_COMMIT, 9, entity, translate


def _fetch(request):
    m = request_module(ApiKey.OFFSET_FETCH, 9)
    topics = request.topics
    if topics is not None:
        topics = tuple(
            m.OffsetFetchRequestTopics(name=name, partition_indexes=partitions)
            for name, partitions in topics
        )
    group = m.OffsetFetchRequestGroup(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        topics=topics,
    )
    entity = _entity(ApiKey.OFFSET_FETCH, 9, groups=(group,), require_stable=request.require_stable)

    def translate(told):
        [found] = told.groups
        return e.OffsetsFetched(
            found.error_code,
            tuple(
                (
                    topic.name,
                    tuple(
                        e.FetchedOffset(
                            one.partition_index,
                            one.committed_offset,
                            one.committed_leader_epoch,
                            one.metadata,
                            one.error_code,
                        )
                        for one in topic.partitions
                    ),
                )
                for topic in found.topics
            ),
        )

    return ApiKey.OFFSET_FETCH, 9, entity, translate


def _delete_offsets(request):
    m = request_module(ApiKey.OFFSET_DELETE, 0)
    entity = _entity(
        ApiKey.OFFSET_DELETE,
        0,
        group_id=request.group_id,
        topics=tuple(
            m.OffsetDeleteRequestTopic(
                name=name,
                partitions=tuple(
                    m.OffsetDeleteRequestPartition(partition_index=p) for p in partitions
                ),
            )
            for name, partitions in request.topics
        ),
    )

    def translate(told):
        return e.OffsetsDeleted(
            told.error_code,
            tuple(
                (
                    topic.name,
                    tuple((one.partition_index, one.error_code) for one in topic.partitions),
                )
                for topic in told.topics
            ),
        )

    return ApiKey.OFFSET_DELETE, 0, entity, translate


def _delete(request):
    entity = _entity(ApiKey.DELETE_GROUPS, 2, groups_names=request.group_ids)

    def translate(told):
        errors = {one.group_id: one.error_code for one in told.results}
        return e.GroupsDeleted(tuple((one, errors[one]) for one in request.group_ids))

    return ApiKey.DELETE_GROUPS, 2, entity, translate


def _describe(request):
    entity = _entity(
        ApiKey.DESCRIBE_GROUPS,
        6,
        groups=request.group_ids,
        include_authorized_operations=False,
    )

    def translate(told):
        groups = []
        for group in told.groups:
            members = tuple(
                e.DescribedMember(
                    one.member_id,
                    one.group_instance_id,
                    one.client_id,
                    one.client_host,
                    one.member_metadata,
                    one.member_assignment,
                )
                for one in group.members
            )
            groups.append(
                e.DescribedGroup(
                    group.error_code,
                    group.group_id,
                    group.group_state,
                    group.protocol_type,
                    group.protocol_data,
                    members,
                    group.error_message,
                )
            )
        return e.GroupsDescribed(tuple(groups))

    return ApiKey.DESCRIBE_GROUPS, 6, entity, translate


def _list(request):
    entity = _entity(
        ApiKey.LIST_GROUPS, 5, states_filter=request.states, types_filter=request.types
    )

    def translate(told):
        return e.GroupsListed(
            told.error_code,
            tuple(
                e.ListedGroup(one.group_id, one.protocol_type, one.group_state, one.group_type)
                for one in told.groups
            ),
        )

    return ApiKey.LIST_GROUPS, 5, entity, translate


_REQUESTS = {
    e.JoinGroup: _join,
    e.SyncGroup: _sync,
    e.Heartbeat: _beat,
    e.LeaveGroup: _leave,
    e.OffsetCommit: _commit,
    e.OffsetFetch: _fetch,
    e.OffsetDelete: _delete_offsets,
    e.DeleteGroups: _delete,
    e.DescribeGroups: _describe,
    e.ListGroups: _list,
}
