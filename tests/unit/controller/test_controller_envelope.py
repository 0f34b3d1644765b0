"""Requests that brokers forward in an Envelope (KIP-590)."""

import asyncio
from datetime import timedelta

from controller_shell_rig import ANSWER_MS, NEVER_MS, E, run

from controller.envelope import encode_principal
from controller.events import Principal
from wire.apis import ApiKey
from wire.messages import (
    RequestHeader,
    decode_response,
    encode_request,
    fill,
    request_class,
    request_module,
    response_class,
)


async def forward(s, frame, principal=None, address=b"\x7f\0\0\1"):
    return await s.ask(
        ApiKey.ENVELOPE,
        0,
        request_data=frame,
        request_principal=encode_principal(Principal("User", "alice"))
        if principal is None
        else principal,
        client_host_address=address,
    )


def test_a_forwarded_request_is_answered_in_its_own_form():
    async def story(s):
        s.lead()
        await s.heartbeat((await s.register()).broker_epoch)
        header = RequestHeader(ApiKey.CREATE_TOPICS, 7, 4711, "client")
        frame = encode_request(header, s.new_topic_request("t"))[4:]
        reply = await forward(s, frame)
        assert reply.error_code is E.none
        correlation_id, inner = decode_response(ApiKey.CREATE_TOPICS, 7, reply.response_data)
        assert correlation_id == 4711
        assert inner.topics[0].error_code is E.none
        assert isinstance(inner, response_class(ApiKey.CREATE_TOPICS, 7))

    run(story)


def test_as_many_partitions_as_are_created_at_once_can_be_assigned_by_hand():
    """At the controller's own door, and in an envelope."""
    count = 9_999  # and a record for the topic

    def asked(validate_only):
        module = request_module(ApiKey.CREATE_TOPICS, 7)
        topic = module.CreatableTopic(
            name="t",
            num_partitions=-1,
            replication_factor=-1,
            assignments=tuple(
                module.CreatableReplicaAssignment(partition_index=i, broker_ids=(1, 2, 3))
                for i in range(count)
            ),
            configs=(),
        )
        return module.CreateTopicsRequest(
            topics=(topic,), timeout=timedelta(seconds=5), validate_only=validate_only
        )

    async def story(s):
        s.lead()
        for broker in (1, 2, 3):
            await s.heartbeat((await s.register(broker)).broker_epoch, broker)
        header = RequestHeader(ApiKey.CREATE_TOPICS, 7, 1, "client")
        reply = await forward(s, encode_request(header, asked(True))[4:])
        assert reply.error_code is E.none
        _, inner = decode_response(ApiKey.CREATE_TOPICS, 7, reply.response_data)
        assert inner.topics[0].error_code is E.none, inner.topics[0].error_message
        reply = await s.client.send(asked(False), ANSWER_MS)
        assert reply.topics[0].num_partitions == count
        assert len(s.shell.image.topic("t").partitions) == count

    run(story, session_timeout_ms=NEVER_MS)


def test_the_quorums_own_requests_are_forwarded_too():
    async def story(s):
        s.lead()
        remove = fill(
            request_class(ApiKey.REMOVE_RAFT_VOTER, 0),
            cluster_id=None,
            voter_id=9,
            voter_directory_id=None,
        )
        header = RequestHeader(ApiKey.REMOVE_RAFT_VOTER, 0, 4711, "client")
        frame = encode_request(header, remove)[4:]
        reply = await forward(s, frame)
        correlation_id, inner = decode_response(ApiKey.REMOVE_RAFT_VOTER, 0, reply.response_data)
        assert (correlation_id, inner.error_message) == (4711, "no voter 9")
        assert (await forward(s, frame[:-3])).error_code is E.invalid_request
        add = fill(
            request_class(ApiKey.ADD_RAFT_VOTER, 0),
            cluster_id=None,
            timeout=timedelta(seconds=1),
            voter_id=9,
            voter_directory_id=None,
            listeners=(),
        )
        header = RequestHeader(ApiKey.ADD_RAFT_VOTER, 0, 4712, "client")
        waiting = asyncio.ensure_future(forward(s, encode_request(header, add)[4:]))
        await asyncio.sleep(0.02)
        s.later.set(
            fill(
                response_class(ApiKey.ADD_RAFT_VOTER, 0),
                throttle_time=timedelta(0),
                error_code=E.none,
                error_message=None,
            )
        )
        reply = await waiting
        _, inner = decode_response(ApiKey.ADD_RAFT_VOTER, 0, reply.response_data)
        assert inner.error_code is E.none

    run(story)


def test_errors_of_the_envelope_itself():
    async def story(s):
        header = RequestHeader(ApiKey.CREATE_TOPICS, 7, 1, "client")
        frame = encode_request(header, s.new_topic_request("t"))[4:]
        assert (await forward(s, frame)).error_code is E.not_controller
        s.lead()
        assert (await forward(s, b"\0")).error_code is E.invalid_request
        assert (await forward(s, frame[:-3])).error_code is E.invalid_request
        assert (await forward(s, frame, b"\0\7x")).error_code is E.principal_deserialization_failure
        assert (await forward(s, frame, address=b"xx")).error_code is E.invalid_request
        old = frame[:2] + b"\0\1" + frame[4:]
        assert (await forward(s, old)).error_code is E.unsupported_version
        heartbeat = fill(
            request_class(ApiKey.BROKER_HEARTBEAT, 0),
            broker_id=1,
            current_metadata_offset=0,
            want_fence=False,
            want_shut_down=False,
        )
        header = RequestHeader(ApiKey.BROKER_HEARTBEAT, 0, 1, "client")
        inner = encode_request(header, heartbeat)[4:]
        assert (await forward(s, inner)).error_code is E.invalid_request

    run(story)


def test_losing_office_tells_the_broker_not_its_client():
    async def story(s):
        s.lead()
        await s.heartbeat((await s.register()).broker_epoch)
        header = RequestHeader(ApiKey.CREATE_TOPICS, 7, 1, "client")
        frame = encode_request(header, s.new_topic_request("t"))[4:]
        waiting = await s.quorum.hold_next(forward(s, frame))
        s.shell.on_leader_change(3001, 2)
        reply = await waiting
        assert (reply.error_code, reply.response_data) == (E.not_controller, None)

    run(story)
