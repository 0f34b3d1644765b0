"""Clients of a cluster of real processes, judged as the simulation judges its own.

They are the simulation's clients, on the product's `net.client`, in a thread with an event loop;
only the clock, the network and the gRPC door are real. One thread makes and ends all their calls,
so the order in the history is true.
"""

import asyncio
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

from waiting import wait_until

from admin.client import AdminClient as Door
from simulation.checks import Violation
from simulation.clients.admin import CONFIG, AdminClient
from simulation.clients.links import NoAnswer
from simulation.clients.records import Consumer, Producer
from simulation.history import History, Outcome
from simulation.models import records, topics
from wire.errors import ErrorCode, KafkaError
from world.real import real_env

PARTITIONS = 3
ADMINS = 3
READ_MS = 2_500
TOPIC = 2


class Clients:
    """Admin clients; producers with acks=all (idempotent and not), 1 and 0; a consumer a topic.

    `careful` is the topic with acks=all alone, `loose` that of the others. `name` must be new to
    the cluster.
    """

    def __init__(self, cluster, name, seed):
        self.cluster, self.name, self.seed = cluster, name, seed
        self.careful, self.loose = f"{name}-careful", f"{name}-loose"
        self.history = History()
        self.failure = None
        self.producers, self.consumers, self._admins = {}, [], []
        self._doors, self._tasks = [], []
        self._brokers = cluster.addresses("broker")
        self._pool = ThreadPoolExecutor(ADMINS, thread_name_prefix="door")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"clients-{name}")
        self._thread.start()

    def begin(self):
        """Makes the topics and sets everybody to work."""
        with self.cluster.admin() as admin:
            for topic in (self.careful, self.loose):
                admin.create_topic(topic, PARTITIONS, 3)
        self._do(self._begin())

    async def _begin(self):
        controllers = self.cluster.addresses("controller")
        for number in range(ADMINS):
            name = f"admin{number}"
            client = AdminClient(
                self._env(name),
                name,
                controllers,
                self._brokers,
                self.history,
                self._reader(),
                every_ms=300,
                prefix=self.name,
            )
            self._admins.append(client)
            self._spawn(client.run())
        self._produce("idem", self.careful, acks=records.ALL, idempotent=True)
        self._produce("all", self.careful, acks=records.ALL, idempotent=False)
        self._produce("one", self.loose, acks=1, idempotent=False)
        self._produce("zero", self.loose, acks=0, idempotent=False)
        self._producer("direct", self.careful, acks=records.ALL, idempotent=False)
        for topic in (self.careful, self.loose):
            consumer = self._consumer(f"reader-{topic}", topic)
            self.consumers.append(consumer)
            self._spawn(consumer.run())

    def acknowledged(self, producer="idem"):
        """How many of a producer's records were acknowledged so far."""
        return sum(one.outcome is Outcome.OK for one in list(self.producers[producer].sent))

    def wait_for_more(self, count, timeout_s=30.0, producer="idem"):
        """Until `count` more of a producer's records than now are acknowledged."""
        goal = self.acknowledged(producer) + count

        def enough():
            self.check()
            return self.acknowledged(producer) >= goal

        wait_until(enough, f"{count} more records of {producer} acknowledged", timeout_s, 0.05)

    def produce_at(self, node, partition=0):
        """Sends a record of `careful` with acks=all to `node`, whoever leads; the finished call."""
        self._do(self.producers["direct"].send_to(node, partition))
        return next(call for call in reversed(self.history.calls) if call.client == "direct")

    def finished(self, kind, since, outcome=Outcome.OK):
        """The calls of a kind, begun after call number `since`, that have this outcome."""
        return [
            call
            for call in list(self.history.calls[since:])
            if (call.kind, call.outcome) == (kind, outcome) and call.returned is not None
        ]

    def check(self):
        """Raises what a client found wrong so far."""
        if self.failure is not None:
            raise self.failure

    def judge(self):
        """The cluster is whole again: it serves, and nothing that anybody saw is contradicted."""
        self.wait_for_more(2 * PARTITIONS)
        self._do(self._stop())
        self.check()
        final = self._do(self._read_back(), 60)
        sent = [record for producer in self.producers.values() for record in producer.sent]
        seen = [record for consumer in self.consumers for record in consumer.seen]
        records.judge(sent, seen, final)
        calls = [call for call in self.history.calls if call.kind == "init producer"]
        ids = [call.result[0] for call in calls if call.outcome is Outcome.OK]
        if len(ids) != len(dict.fromkeys(ids)):
            raise Violation("producer ids are given once", f"{ids}")
        topics.judge(self.history)

    def close(self):
        """Ends the thread and all connections."""
        self._do(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
        self._pool.shutdown()
        for door in self._doors:
            door.close()

    def counts(self):
        """Calls by kind and outcome."""
        return self.history.counts()

    # In the clients' thread.

    def _do(self, work, timeout_s=30.0):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)

    def _env(self, name):
        return replace(real_env(), chance=random.Random(f"{self.seed}/{name}"))

    def _spawn(self, work):
        task = self._loop.create_task(work)
        task.add_done_callback(self._over)
        self._tasks.append(task)

    def _over(self, task):
        if not task.cancelled() and self.failure is None:
            self.failure = task.exception()

    def _produce(self, name, topic, *, acks, idempotent):
        self._spawn(self._producer(name, topic, acks=acks, idempotent=idempotent).run())

    def _producer(self, name, topic, *, acks, idempotent):
        producer = self.producers[name] = Producer(
            self._env(name),
            name,
            self._brokers,
            self.history,
            topic,
            PARTITIONS,
            acks=acks,
            idempotent=idempotent,
            every_ms=60,
            # Who leads in truth can't be known from out here. A leader that lost a sequence
            # refuses its producer for good, which is noticed by what it never acknowledges.
            is_leader=lambda node_id, place: False,
        )
        return producer

    def _consumer(self, name, topic):
        return Consumer(self._env(name), name, self._brokers, self.history, topic, PARTITIONS)

    async def _stop(self):
        clients = [*self._admins, *self.producers.values(), *self.consumers]
        for client in clients:
            client.close()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=5)
            for task in late:
                task.cancel()
            await asyncio.wait(self._tasks)

    async def _read_back(self):
        final = {}
        for topic in (self.careful, self.loose):
            reader = self._consumer(f"last-{topic}", topic)
            try:
                async with asyncio.timeout(25):
                    final |= await reader.read_to_end()
            finally:
                reader.close()
        return final

    # The door, in threads of its own.

    def _reader(self):
        door = Door(self.cluster.local.admin_addresses(), timeout_ms=READ_MS)
        self._doors.append(door)
        one_at_a_time = asyncio.Lock()

        async def read(name):
            async with one_at_a_time:
                return await self._loop.run_in_executor(self._pool, _read, door, name)

        return read


def _read(door, name):
    """The topic's id and config at one moment: it was the same topic before and after."""
    try:
        before = _topic_id(door, name)
        if before is None:
            return None
        configs = door.describe_config(TOPIC, name, linearizable=True)
        if _topic_id(door, name) != before:
            raise NoAnswer(f"{name} was replaced meanwhile")
    except KafkaError as error:
        raise NoAnswer(str(error)) from error
    own = [one["value"] for one in configs if (one["name"], one["source"]) == (CONFIG, "TOPIC")]
    return before, own[0] if own else None


def _topic_id(door, name):
    try:
        return door.describe_topics([name], linearizable=True)[name]["id"]
    except KafkaError as error:
        if error.code is ErrorCode.unknown_topic_or_partition:
            return None
        raise


@contextmanager
def clients_at_work(cluster, name, seed=0):
    """Clients under way. On leaving, the cluster is healed, has to be whole again and to serve;
    then all that the clients saw is judged."""
    clients = Clients(cluster, name, seed)
    try:
        clients.begin()
        clients.wait_for_more(2 * PARTITIONS)
        yield clients
        cluster.heal()
        cluster.wait_until_whole([clients.careful, clients.loose])
        clients.judge()
    finally:
        clients.close()
