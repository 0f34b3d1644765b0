"""Registration, heartbeats and the end, against a controller that is not always there."""

import asyncio

from broker_fakes import LISTENER, Cluster, cluster, until

from metadata.records import types as t
from net.handlers import Later
from wire.apis import ApiKey, ErrorCode
from wire.exits import EXIT_NOT_REGISTERED
from wire.messages import millis


def test_it_registers_what_it_is(tmp_path):
    async def main():
        async with cluster(tmp_path, broker_rack="r1") as c:
            broker = c.controller.image.broker(1)
            assert (broker.rack, broker.fenced) == ("r1", False)
            endpoint = broker.endpoint(LISTENER)
            assert (endpoint.host, endpoint.port) == ("127.0.0.1", c.servers[1].port)
            assert broker.log_dirs == c.brokers[1].store.directory_ids
            assert c.brokers[1].running
            assert c.brokers[1].state == "running"

    asyncio.run(main())


def test_it_waits_for_a_controller_and_goes_on_when_that_changes(tmp_path):
    async def main():
        async with cluster(tmp_path, ()) as c:
            c.controller.active = False
            broker = await c.start_broker(1, wait=False)
            await asyncio.sleep(0.1)
            assert broker.lifecycle.epoch == -1
            c.controller.active = True
            broker.controller_changed()
            await broker.wait_running()
            before = broker.lifecycle.heartbeats
            # The controller is gone for a while: heartbeats fail and come back by themselves.
            await c.controller.server.close()
            await asyncio.sleep(0.1)
            await c.controller.start()
            broker.controller_changed()
            await until(lambda: broker.lifecycle.heartbeats > before + 2)
            assert broker.running

    asyncio.run(main())


def test_a_fenced_broker_comes_back(tmp_path):
    async def main():
        async with cluster(tmp_path) as c:
            c.controller.create_topic("t")
            await until(lambda: len(c.brokers[1].replicas) == 1)
            c.controller.fence(1)
            assert c.controller.image.partition("t", 0).leader == -1
            await until(lambda: c.controller.image.partition("t", 0).leader == 1)
            await until(lambda: c.brokers[1].replicas.leaders == 1)

    asyncio.run(main())


def test_it_tells_its_directories_once_the_level_has_them(tmp_path):
    def level(number):
        return t.FeatureLevelRecord(name="metadata.version", feature_level=number)

    async def main():
        async with cluster(tmp_path) as c:
            known = c.controller.image.broker(1)
            asked = []
            # A registration made at a level that has no directories; the same incarnation.
            c.controller.commit(
                level(16),
                t.RegisterBrokerRecord(
                    broker_id=1,
                    incarnation_id=known.incarnation_id,
                    broker_epoch=known.epoch,
                    fenced=False,
                ),
            )
            await until(lambda: c.brokers[1].context.image.broker(1).log_dirs == ())
            c.controller.seen.clear()

            def registration(request, m):
                asked.append((request.incarnation_id, request.log_dirs))
                return m.BrokerRegistrationResponse(
                    throttle_time=millis(0), error_code=ErrorCode.none, broker_epoch=known.epoch
                )

            # The table holds bound methods: put ours in by starting anew.
            c.controller.registration = registration
            await c.controller.server.close()
            await c.controller.start()
            c.brokers[1].controller_changed()
            beats = c.brokers[1].lifecycle.heartbeats
            await until(lambda: c.brokers[1].lifecycle.heartbeats > beats + 2)
            assert asked == []
            c.controller.commit(level(17))
            await until(lambda: asked)
            assert asked[0] == (known.incarnation_id, c.brokers[1].store.directory_ids)
            assert c.brokers[1].lifecycle.epoch == known.epoch

    asyncio.run(main())


def test_a_registration_that_nobody_answers_is_asked_for_again(tmp_path):
    """A controller without power takes the answer with it, and nobody resets the connection."""

    async def main():
        c = Cluster(tmp_path)
        answer, asked = c.controller.registration, []

        def registration(request, module):
            asked.append(request.incarnation_id)
            return Later() if len(asked) == 1 else answer(request, module)

        c.controller.registration = registration
        await c.controller.start()
        broker = await c.start_broker(1, wait=False, broker_session_timeout_ms=1_000)
        await until(lambda: broker.lifecycle.epoch > 0)
        # On a slow machine the second answer may be late, too.
        assert len(asked) >= 2
        assert len(dict.fromkeys(asked)) == 1
        await c.stop_broker(1)
        await c.controller.server.close()

    asyncio.run(main())


def test_no_registration_in_time_is_fatal(tmp_path):
    async def main():
        c = Cluster(tmp_path)
        await c.controller.start()
        c.controller.registration = lambda asked, m: m.BrokerRegistrationResponse(
            throttle_time=millis(0),
            error_code=ErrorCode.duplicate_broker_registration,
            broker_epoch=-1,
        )
        # The table holds bound methods: put the refusal in by starting anew.
        await c.controller.server.close()
        await c.controller.start()
        await c.start_broker(1, wait=False, initial_broker_registration_timeout_ms=300)
        await until(lambda: c.fatal)
        [error] = c.fatal
        assert error.exit_code == EXIT_NOT_REGISTERED
        assert "duplicate_broker_registration" in error.reason
        await c.stop_broker(1)
        await c.controller.server.close()

    asyncio.run(main())


def test_it_is_unfenced_only_when_its_logs_are_open(tmp_path):
    async def main():
        async with cluster(tmp_path) as c:
            c.controller.create_topic("t", 30)
            await until(lambda: len(c.brokers[1].replicas) == 30)
            await c.kill_broker(1)
            c.controller.fence(1)
            seen = []
            original = c.controller.unfence

            def unfence(broker_id):
                seen.append(len(c.brokers[broker_id].replicas))
                original(broker_id)

            c.controller.unfence = unfence
            await c.start_broker(1)
            assert seen == [30]

    asyncio.run(main())


def test_strays_are_set_aside(tmp_path):
    async def main():
        async with cluster(tmp_path) as c:
            c.controller.create_topic("kept")
            c.controller.create_topic("gone")
            c.controller.create_topic("again")
            await until(lambda: len(c.brokers[1].replicas) == 3)
            await c.stop_broker(1)
            c.controller.delete_topic("gone")
            c.controller.delete_topic("again")
            epoch = c.controller.image.broker(1).epoch
            c.controller.commit(
                t.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, fenced=-1)
            )
            c.controller.create_topic("again")
            await c.start_broker(1)
            names = c.env.disk.list_dir(f"{tmp_path}/broker-1")
            assert [n for n in names if n in ("kept-0", "gone-0", "again-0")] == [
                "again-0",
                "kept-0",
            ]
            strays = [n.split(".")[0] for n in names if n.endswith("-stray")]
            assert strays == ["again-0", "gone-0"]

    asyncio.run(main())


def test_heartbeats_have_a_connection_of_their_own(tmp_path):
    async def main():
        async with cluster(tmp_path) as c:
            c.controller.create_topic("t")
            connection = await c.connect(1)
            await connection.call(
                ApiKey.INIT_PRODUCER_ID,
                lambda v, m: m.InitProducerIdRequest(
                    transactional_id=None, transaction_timeout=millis(1000)
                ),
                5000,
            )
            assert len(c.controller.server._connections) == 2

    asyncio.run(main())


def test_a_broker_that_starts_tells_nothing_of_the_past(tmp_path):
    async def main():
        async with cluster(tmp_path) as c:
            c.controller.create_topic("gone")
            c.controller.delete_topic("gone")
            c.controller.create_topic("here")
            await until(lambda: len(c.brokers[1].replicas) == 1)
            await c.stop_broker(1)
            c.controller.active = False
            broker = await c.start_broker(1, wait=False)
            connection = await c.connect(1)
            asked = asyncio.ensure_future(
                connection.call(
                    ApiKey.METADATA,
                    lambda v, m: m.MetadataRequest(
                        topics=None,
                        allow_auto_topic_creation=False,
                        include_topic_authorized_operations=False,
                    ),
                    9000,
                )
            )
            await asyncio.sleep(0.1)
            assert not asked.done()
            c.controller.active = True
            broker.controller_changed()
            answer = await asked
            assert [topic.name for topic in answer.topics] == ["here"]
            await broker.wait_running()

    asyncio.run(main())
