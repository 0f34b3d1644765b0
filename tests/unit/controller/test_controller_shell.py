"""The asyncio side: what callers are told, and when."""

import asyncio
from datetime import timedelta

import pytest
from controller_shell_rig import NEVER_MS, E, run

from net.errors import NetworkError
from wire.apis import ApiKey
from wire.messages import fill, request_module


def test_from_registration_to_a_topic():
    async def story(s):
        s.lead()
        registered = await s.register()
        assert registered.error_code is E.none
        assert not (await s.heartbeat(registered.broker_epoch)).is_fenced
        assert (await s.create("t")).error_code is E.none
        assert s.shell.image.topic("t") is not None
        assert s.shell.metrics.active
        assert (s.shell.metrics.active_brokers, s.shell.metrics.topics) == (1, 1)

    run(story)


def test_the_answer_about_two_thousand_topics_is_understood():
    """It tells all configs of each, so it has far more elements than the request."""

    async def story(s):
        s.lead()
        await s.heartbeat((await s.register()).broker_epoch)
        module = request_module(ApiKey.CREATE_TOPICS, 7)
        reply = await s.ask(
            ApiKey.CREATE_TOPICS,
            7,
            topics=tuple(
                fill(
                    module.CreatableTopic,
                    name=f"t-{i}",
                    num_partitions=1,
                    replication_factor=1,
                    assignments=(),
                    configs=(),
                )
                for i in range(2000)
            ),
            timeout=timedelta(seconds=5),
            validate_only=False,
        )
        assert [topic.error_code for topic in reply.topics] == [E.none] * 2000
        assert min(len(topic.configs) for topic in reply.topics) > 20

    run(story, session_timeout_ms=NEVER_MS)


def test_a_standby_says_not_controller():
    async def story(s):
        assert (await s.register()).error_code is E.not_controller
        assert (await s.create("t")).error_code is E.not_controller

    run(story)


def test_answers_wait_for_the_commit_and_fall_with_the_leadership():
    async def story(s):
        s.lead()
        epoch = (await s.register()).broker_epoch
        await s.heartbeat(epoch)
        first = await s.quorum.hold_next(s.create("a"))
        assert not first.done()
        s.quorum.commit()
        assert (await first).error_code is E.none
        second = await s.quorum.hold_next(s.create("b"))
        s.shell.on_leader_change(3001, 2)
        assert (await second).error_code is E.not_controller
        assert not s.shell.active

    run(story)


def test_sessions_end_by_the_timer():
    async def story(s):
        s.lead()
        epoch = (await s.register()).broker_epoch
        await s.heartbeat(epoch)
        async with asyncio.timeout(5):
            while not s.shell.image.broker(1).fenced:
                s.quorum.committed.clear()
                await s.quorum.committed.wait()
        assert s.shell.metrics.fenced_brokers == 1

    run(story, session_timeout_ms=50)


def test_a_request_times_out_while_nothing_is_committed():
    async def story(s):
        s.lead()
        await s.heartbeat((await s.register()).broker_epoch)
        s.quorum.hold = True
        assert (await s.create("a", timeout_ms=30)).error_code is E.request_timed_out

    run(story)


def test_a_refused_append_costs_the_office_and_answers_not_controller():
    async def story(s):
        s.lead()
        await s.heartbeat((await s.register()).broker_epoch)
        s.quorum.refuse = True
        assert (await s.create("a")).error_code is E.not_controller
        assert s.quorum.resigned == 1
        assert not s.shell.active

    run(story)


def test_records_that_land_elsewhere_cost_the_office():
    async def story(s):
        s.lead()
        original = s.quorum.append
        s.quorum.append = lambda values, epoch: (original(values, epoch)[0] + 1, 0)
        assert (await s.register()).error_code is E.not_controller
        assert s.quorum.resigned == 1

    run(story)


def test_a_log_cut_by_another_leader_makes_a_standby():
    async def story(s):
        s.lead()
        s.quorum.end_offset -= 1
        assert (await s.register()).error_code is E.not_controller
        assert not s.shell.active

    run(story)


def test_control_records_of_the_quorum_move_the_next_offset():
    async def story(s):
        s.lead()
        s.quorum.end_offset += 1
        registered = await s.register()
        assert registered.broker_epoch == s.quorum.end_offset - 1

    run(story)


def test_a_fault_in_the_core_closes_that_connection_only():
    async def story(s):
        s.lead()
        epoch = (await s.register()).broker_epoch
        s.shell.core._apis = {}
        with pytest.raises(NetworkError):
            await s.heartbeat(epoch)
        assert s.shell.active
        assert s.shell.metrics.core_failures == 1

    run(story)


def test_describe_cluster_is_answered_by_any_controller():
    async def story(s):
        reply = await s.ask(
            ApiKey.DESCRIBE_CLUSTER,
            2,
            include_cluster_authorized_operations=False,
            endpoint_type=2,
            include_fenced_brokers=False,
        )
        assert (reply.error_code, reply.cluster_id, reply.controller_id) == (E.none, "c", -1)

    run(story)
