"""The way to the active controller, where controllers hang, change and come back."""

import asyncio
import gc
import time

import pytest

from net.controller_channel import ControllerChannel, ControllerUnreachable, Endpoint
from net.handlers import Api, HandlerTable
from net.server import ListenerConfig, serve
from wire.apis import ApiKey, ErrorCode
from wire.messages import fill, millis, response_class
from world.real import real_env

HOST = "127.0.0.1"


def build(version, module):
    return module.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def answer(request):
    cls = response_class(ApiKey.HEARTBEAT, request.api_version)
    return fill(cls, throttle_time=millis(0), error_code=ErrorCode.none)


async def controller(env):
    table = HandlerTable([Api(ApiKey.HEARTBEAT, 0, 4, answer)])
    return await serve(env, ListenerConfig(name="CONTROLLER", host=HOST, port=0), table)


async def pump(reader, writer):
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


async def hanging():
    """Takes connections and never says a word, as a machine that stopped does."""
    taken = asyncio.Event()

    async def hold(reader, _writer):
        taken.set()
        await reader.read()

    server = await asyncio.start_server(hold, HOST, 0)
    return server, server.sockets[0].getsockname()[1], taken


def test_what_a_controller_that_lost_its_power_was_asked_it_is_asked_again_once_elected():
    """It is back at its old address before anybody learned that it was gone."""

    async def main():
        env = real_env(1)
        server = await controller(env)
        first = asyncio.Event()

        async def answer_from_the_second_on(reader, writer):
            if not first.is_set():
                first.set()
                await reader.read()
                return
            there, forth = await asyncio.open_connection(HOST, server.port)
            await asyncio.gather(pump(reader, forth), pump(there, writer))

        front = await asyncio.start_server(answer_from_the_second_on, HOST, 0)
        port = front.sockets[0].getsockname()[1]
        now = [Endpoint(101, HOST, port, 4)]
        channel = ControllerChannel(env, lambda: now[0], "tester")
        waiting = asyncio.ensure_future(channel.request(ApiKey.HEARTBEAT, build, 20_000))
        await first.wait()
        now[0] = Endpoint(101, HOST, port, 6)
        channel.endpoint_changed()
        async with asyncio.timeout(10):
            assert (await waiting).error_code is ErrorCode.none
        channel.close()
        front.close()
        await server.close()

    asyncio.run(main())


def test_who_waits_for_a_controller_that_hangs_goes_on_with_the_next():
    async def main():
        env = real_env(1)
        stuck, stuck_port, taken = await hanging()
        server = await controller(env)
        now = [Endpoint(101, HOST, stuck_port, 1)]
        channel = ControllerChannel(env, lambda: now[0], "tester")
        waiting = [
            asyncio.ensure_future(channel.request(ApiKey.HEARTBEAT, build, 20_000))
            for _ in range(3)
        ]
        await taken.wait()
        began = time.monotonic()
        now[0] = Endpoint(102, HOST, server.port, 1)
        channel.endpoint_changed()
        answers = await asyncio.gather(*waiting)
        assert time.monotonic() - began < 2, "nobody waits for the old attempt to end"
        assert [one.error_code for one in answers] == [ErrorCode.none] * 3
        assert server.counters.connections == 1
        channel.close()
        await server.close()
        stuck.close()

    asyncio.run(main())


def test_leadership_that_returns_at_once_leaves_one_connection():
    async def main():
        env = real_env(1)
        server = await controller(env)
        there = Endpoint(101, HOST, server.port, 1)
        now = [there]
        channel = ControllerChannel(env, lambda: now[0], "tester")
        waiting = asyncio.ensure_future(channel.request(ApiKey.HEARTBEAT, build, 20_000))
        await asyncio.sleep(0)
        for endpoint in (None, there, None, there):
            now[0] = endpoint
            channel.endpoint_changed()
            await asyncio.sleep(0)
        assert (await waiting).error_code is ErrorCode.none
        assert (await channel.request(ApiKey.HEARTBEAT, build, 5000)).error_code is ErrorCode.none
        assert server.counters.connections == 1
        channel.close()
        await server.close()

    asyncio.run(main())


def test_a_controller_is_told_to_answer_before_its_caller_gives_up():
    async def main():
        env = real_env(1)
        told = []

        def create(request):
            told.append(round(request.entity().timeout.total_seconds() * 1000))
            cls = response_class(ApiKey.CREATE_TOPICS, request.api_version)
            return fill(cls, throttle_time=millis(0), topics=())

        table = HandlerTable([Api(ApiKey.CREATE_TOPICS, 2, 7, create)])
        config = ListenerConfig(name="CONTROLLER", host=HOST, port=0)
        server = await serve(env, config, table)
        channel = ControllerChannel(env, lambda: Endpoint(101, HOST, server.port, 1), "tester")
        for asked_ms, timeout_ms in ((4000, 4000), (1000, 4000), (400, 400)):

            def build(version, module, asked_ms=asked_ms):
                return fill(module.CreateTopicsRequest, topics=(), timeout=millis(asked_ms))

            await channel.request(ApiKey.CREATE_TOPICS, build, timeout_ms)
        assert 2000 < told[0] <= 3750
        assert told[1] == 1000
        assert told[2] <= 360
        channel.close()
        await server.close()

    asyncio.run(main())


def test_a_controller_that_hangs_costs_its_caller_no_more_than_its_time():
    async def main():
        env = real_env(1)
        stuck, stuck_port, _ = await hanging()
        channel = ControllerChannel(env, lambda: Endpoint(101, HOST, stuck_port, 1), "tester")
        began = time.monotonic()
        told = r"no active controller answered within .* \(is a majority of the controllers running"
        with pytest.raises(ControllerUnreachable, match=told) as failed:
            await channel.request(ApiKey.HEARTBEAT, build, 200)
        assert failed.value.code is ErrorCode.not_controller
        assert time.monotonic() - began < 2
        channel.close()
        stuck.close()

    asyncio.run(main())


@pytest.mark.parametrize("known", [True, False])
def test_who_may_turn_to_another_is_told_soon_that_no_controller_can_be_reached(known):
    async def main():
        env = real_env(1)
        stuck, stuck_port, _ = await hanging()
        endpoint = Endpoint(101, HOST, stuck_port, 1) if known else None
        channel = ControllerChannel(env, lambda: endpoint, "tester")
        began = time.monotonic()
        with pytest.raises(ControllerUnreachable):
            await channel.request(ApiKey.HEARTBEAT, build, 20_000, reach_ms=200)
        assert time.monotonic() - began < 5
        channel.close()
        stuck.close()

    asyncio.run(main())


def test_who_was_asked_has_all_the_time_that_there_is():
    async def main():
        env = real_env(1)
        asked, may_answer = asyncio.Event(), asyncio.Event()

        async def slow(request):
            asked.set()
            await may_answer.wait()
            return answer(request)

        table = HandlerTable([Api(ApiKey.HEARTBEAT, 0, 4, slow)])
        server = await serve(env, ListenerConfig(name="CONTROLLER", host=HOST, port=0), table)
        channel = ControllerChannel(env, lambda: Endpoint(101, HOST, server.port, 1), "tester")
        waiting = asyncio.ensure_future(
            channel.request(ApiKey.HEARTBEAT, build, 20_000, reach_ms=200)
        )
        await asked.wait()
        _, late = await asyncio.wait([waiting], timeout=0.4)
        assert late
        may_answer.set()
        assert (await waiting).error_code is ErrorCode.none
        channel.close()
        await server.close()

    asyncio.run(main())


def test_who_asked_one_that_does_not_answer_in_time_is_told_that_it_may_answer_yet():
    """RemoveRaftVoter says no time of its own: the caller's is over before the controller's."""

    async def main():
        env = real_env(1)
        never = asyncio.Event()

        async def silent(request):
            await never.wait()

        table = HandlerTable([Api(ApiKey.HEARTBEAT, 0, 4, silent)])
        server = await serve(env, ListenerConfig(name="CONTROLLER", host=HOST, port=0), table)
        channel = ControllerChannel(env, lambda: Endpoint(101, HOST, server.port, 1), "tester")
        with pytest.raises(ControllerUnreachable, match="no answer within") as failed:
            await channel.request(ApiKey.HEARTBEAT, build, 200)
        assert failed.value.code is ErrorCode.request_timed_out
        never.set()
        channel.close()
        await server.close()

    asyncio.run(main())


def test_who_gives_up_takes_the_connection_from_nobody():
    async def main():
        env = real_env(1)
        may_answer = asyncio.Event()

        async def slow(request):
            await may_answer.wait()
            return answer(request)

        table = HandlerTable([Api(ApiKey.HEARTBEAT, 0, 4, slow)])
        server = await serve(env, ListenerConfig(name="CONTROLLER", host=HOST, port=0), table)
        channel = ControllerChannel(env, lambda: Endpoint(101, HOST, server.port, 1), "tester")
        patient = asyncio.ensure_future(channel.request(ApiKey.HEARTBEAT, build, 20_000))
        with pytest.raises(ControllerUnreachable):
            await channel.request(ApiKey.HEARTBEAT, build, 100)
        may_answer.set()
        assert (await patient).error_code is ErrorCode.none
        assert (channel.retries, server.counters.connections) == (1, 1)
        channel.close()
        await server.close()

    asyncio.run(main())


def test_an_attempt_that_fails_after_its_callers_gave_up_is_not_reported():
    async def main():
        reported = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: reported.append(context)
        )
        release = asyncio.Event()
        ended = asyncio.Event()

        async def hold(_reader, writer):
            await release.wait()
            writer.transport.abort()
            ended.set()

        server = await asyncio.start_server(hold, HOST, 0)
        port = server.sockets[0].getsockname()[1]
        channel = ControllerChannel(real_env(1), lambda: Endpoint(101, HOST, port, 1), "tester")
        with pytest.raises(ControllerUnreachable):
            await channel.request(ApiKey.HEARTBEAT, build, 100)
        (attempt,) = [t for t in asyncio.all_tasks() if t.get_name() == "connect-tester"]
        release.set()
        await ended.wait()
        await asyncio.wait([attempt])
        del attempt
        gc.collect()
        await asyncio.sleep(0)
        assert reported == []
        channel.close()
        server.close()

    asyncio.run(main())
