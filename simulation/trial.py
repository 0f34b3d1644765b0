"""One seed: a cluster under its fault plan with clients at work, then healed, then judged.

    boot, topics made | chaos: the plan's faults | healed: must converge | calm  | read and judged
    0 s               5 s                        112 s                   < 137 s | 120 s or later

A run is a function of its seed and plan. It ends with a `Verdict`; a broken rule is in it, and is
not raised.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from broker.replica import Replica
from metadata.records.types import NO_LEADER
from simulation import settings
from simulation.checks import Violation, require
from simulation.checks.watcher import Watcher
from simulation.clients.admin import AdminClient, create_topic
from simulation.clients.links import Client, Links, NoAnswer, NotSent
from simulation.clients.operator import Addition, Operator
from simulation.clients.records import Consumer, Producer
from simulation.cluster import BROKER_PORT, CONTROLLER_PORT, Quorum
from simulation.compacted_work import CompactedWork
from simulation.door import active_controllers, door, not_voting
from simulation.group_work import GroupWork
from simulation.history import History, Outcome
from simulation.models import records, topics
from simulation.models.linear import Undecided
from simulation.network import host_name
from simulation.plan import Cast, Plan, draw
from simulation.run import Simulation, UnexpectedError
from simulation.saboteur import Saboteur
from wire.apis import ApiKey, ErrorCode

CHAOS_BEGINS_MS = 5_000
CHAOS_ENDS_MS = 112_000
CONVERGE_MAX_MS = 25_000
ANSWER_MAX_MS = 10_000
CALM_UNTIL_MS = 120_000
READ_BACK_MAX_MS = 5_000
CATCH_UP_MAX_MS = 10_000
PARTITIONS = 2
CAREFUL, LOOSE, LATE, COMPACTED = "careful", "loose", "late", "compacted"
"""The topics of the data clients: acks=all only; acks 0 and 1; one made after the chaos; one that
is compacted."""

_LOOK_EVERY_MS = 200


@dataclass(slots=True)
class Verdict:
    """How a run went. `rule` is the broken one, None where all held; `at_ms` when it broke;
    `step` the number of callbacks until then. `coverage` counts events, faults and calls."""

    seed: int
    plan: Plan
    rule: str | None = None
    detail: str = ""
    at_ms: int = 0
    step: int = 0
    trace: str = ""
    coverage: dict[str, int] = field(default_factory=dict)
    story: list[str] = field(default_factory=list)


class Trial:
    """One run; `run` once."""

    def __init__(
        self,
        seed: int,
        plan: Plan | None = None,
        *,
        controllers: int = 3,
        brokers: int = 3,
        telling: bool = False,
    ) -> None:
        self.seed = seed
        self.quorum = settings.quorum(seed) if controllers >= 3 else Quorum.STATIC
        self.simulation = Simulation(
            seed,
            controllers=controllers,
            brokers=brokers,
            properties=settings.properties(seed, brokers),
            quorum=self.quorum,
            levels=settings.levels(seed),
            telling=telling,
        )
        machines = self.simulation.machines
        ids = [machine.number for machine in machines]
        self.controllers = {
            n: (host_name(n), CONTROLLER_PORT) for n in (ids[:controllers] or ids[controllers:])
        }
        self.brokers = {n: (host_name(n), BROKER_PORT) for n in ids[controllers:]}
        cast = Cast(tuple(self.controllers), tuple(self.brokers))
        if plan is None:
            plan = draw(
                seed,
                cast,
                start_ms=CHAOS_BEGINS_MS,
                end_ms=CHAOS_ENDS_MS,
                without=("member",) if self.quorum is Quorum.STATIC else (),
            )
        self.plan = plan
        self.watcher = Watcher(
            {machine.number: machine.disk for machine in machines}, settings.MIN_ISR
        )
        self.simulation.on_step.append(self.watcher.after_step)
        self.simulation.on_log.append(self.watcher.on_log)
        self.saboteur = Saboteur(self.simulation, cast, plan, self.watcher, CAREFUL)
        self.history = History()
        self.clients: list[Client] = []
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        self.compacted = CompactedWork(
            self.simulation,
            self.brokers,
            self.history,
            COMPACTED,
            PARTITIONS,
            is_leader=self._is_leader,
        )
        self.groups = GroupWork(
            self.simulation,
            self.watcher,
            self.brokers,
            self.history,
            CAREFUL,
            PARTITIONS,
            newer=settings.newer_protocol(seed),
        )
        self._chaos_steps: int | None = None
        self.operator = self._hired_operator()
        self.saboteur.operator = self.operator
        self._failure: BaseException | None = None
        self._tasks: list[asyncio.Task[Any]] = []

    # -- the run -------------------------------------------------------------------------------

    def run(self, *, limit_ms: int | None = None, chaos_steps: int | None = None) -> Verdict:
        """Runs it to its end, or to `limit_ms`; all faults end after `chaos_steps` callbacks."""
        self._chaos_steps = chaos_steps
        verdict = Verdict(self.seed, self.plan)
        with self.simulation:
            # Caught in here: an error holds on to the world that it came from.
            self._try(verdict, limit_ms or 1 << 60)
            verdict.at_ms, verdict.step = self.simulation.now_ms, self.simulation.steps
            verdict.trace = self.simulation.trace
            verdict.story = list(self.simulation.story)
            verdict.coverage = self.coverage()
            self._let_go()
        return verdict

    def _try(self, verdict: Verdict, limit_ms: int) -> None:
        try:
            self._phases(limit_ms)
        except Violation as broken:
            verdict.rule, verdict.detail = broken.rule, broken.detail
        except Undecided as open_question:
            verdict.rule, verdict.detail = "every history is decided", str(open_question)
        except UnexpectedError as error:
            verdict.rule, verdict.detail = "nodes handle every error", str(error)
        except AssertionError as error:
            verdict.rule, verdict.detail = "assertions hold", repr(error)

    def _let_go(self) -> None:
        """Holds on to nothing of the world any more."""
        self._failure = None
        self._tasks.clear()
        self.clients.clear()
        self.producers.clear()
        self.consumers.clear()
        del self.watcher, self.saboteur, self.operator, self.compacted, self.groups

    def _phases(self, limit_ms: int) -> None:
        self._set_up()
        self._begin_work()
        until_ms = min(CHAOS_ENDS_MS, limit_ms)
        if not self._go_on(until_ms, self._chaos_steps) or limit_ms <= CHAOS_ENDS_MS:
            return
        self.saboteur.heal()
        self.groups.be_calm()
        self._set_pace(1)
        self._converge()
        self._stay_calm()
        self._read_back()
        self._judge()

    def _go_on(self, until_ms: int, steps: int | None = None) -> bool:
        """Lets time pass, until `steps` callbacks were made at most; raises what a client found
        wrong."""
        while self.simulation.now_ms < until_ms:
            if steps is not None and self.simulation.steps >= steps:
                break
            self.simulation.run_until(min(until_ms, self.simulation.now_ms + _LOOK_EVERY_MS))
            if self._failure is not None:
                raise self._failure
        return True

    def _wait(self, done: Callable[[], str | None], limit_ms: int, rule: str) -> None:
        """Until `done` has nothing more to wait for; Violation after `limit_ms`."""
        end_ms = self.simulation.now_ms + limit_ms
        while (missing := done()) is not None:
            if self.simulation.now_ms >= end_ms:
                raise Violation(rule, f"{limit_ms} ms later: {missing}")
            self._go_on(min(end_ms, self.simulation.now_ms + _LOOK_EVERY_MS))

    def _spawn(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        loop, _ = self.simulation.client_env(name)
        task = loop.create_task(work, name=name)
        task.add_done_callback(self._over)
        self._tasks.append(task)
        return task

    def _over(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and task.exception() is not None and self._failure is None:
            self._failure = task.exception()

    # -- before --------------------------------------------------------------------------------

    def _set_up(self) -> None:
        made = [
            self._spawn("setup", self._make_topics("setup", (CAREFUL, LOOSE, COMPACTED))),
            self._spawn("setup-groups", self.groups.set_up("setup-groups")),
        ]
        self._wait(
            lambda: None if all(task.done() for task in made) else "topics are not made",
            20_000,
            "a fresh cluster serves",
        )
        self._go_on(CHAOS_BEGINS_MS)

    async def _make_topics(self, name: str, wanted: tuple[str, ...]) -> None:
        _, env = self.simulation.client_env(name)
        links = Links(env, name, self.brokers)
        for topic in wanted:
            build = create_topic(
                topic,
                partitions=PARTITIONS,
                replicas=min(3, len(self.brokers)),
                configs=settings.compaction(self.seed) if topic == COMPACTED else None,
            )
            while True:
                node_id = env.chance.choice(sorted(self.brokers))
                try:
                    answer = await links.call(node_id, ApiKey.CREATE_TOPICS, build, 3_000)
                except (NotSent, NoAnswer):
                    await asyncio.sleep(0.1)
                    continue
                error = answer.topics[0].error_code
                if error in (ErrorCode.none, ErrorCode.topic_already_exists):
                    break
                await asyncio.sleep(0.1)
        links.close()

    def _begin_work(self) -> None:
        for number, changes in enumerate((True, True, False)):
            # Reads cost little, and it takes many to meet a controller that was replaced.
            every_ms = 1_200 if changes else 350
            client = self._admin(f"admin{number}", every_ms=every_ms, changes=changes)
            self.clients.append(client)
            self._spawn(client.name, client.run())
        self.clients.append(self.operator)
        self._spawn("operator", self.operator.run())
        if self.quorum is Quorum.ADDED:
            for node_id in list(self.controllers)[1:]:
                self.operator.ask(Addition(node_id))
        self._produce("idem", CAREFUL, acks=records.ALL, idempotent=True, every_ms=500)
        self._produce("all", CAREFUL, acks=records.ALL, idempotent=False, every_ms=900)
        self._produce("one", LOOSE, acks=1, idempotent=False, every_ms=900)
        self._produce("zero", LOOSE, acks=0, idempotent=False, every_ms=900)
        for topic in (CAREFUL, LOOSE):
            self._consume(f"reader-{topic}", topic)
        more: list[Producer | Consumer] = [self.compacted.producer, self.compacted.reader]
        for one in (*more, *self.groups.members):
            self.clients.append(one)
            self._spawn(one.name, one.run())
        self._set_pace(settings.pace(self.seed))

    def _set_pace(self, pace: int) -> None:
        for client in self.clients:
            client.pace = pace

    def _admin(self, name: str, *, every_ms: int, changes: bool) -> AdminClient:
        _, env = self.simulation.client_env(name)
        return AdminClient(
            env,
            name,
            self.controllers,
            self.brokers,
            self.history,
            door(self.simulation, list(self.controllers), name),
            every_ms=every_ms,
            changes=changes,
            newest_led=self._newest_led,
        )

    def _hired_operator(self) -> Operator:
        _, env = self.simulation.client_env("operator")
        return Operator(
            env,
            "operator",
            self.controllers,
            self.history,
            self.simulation.cluster.cluster_id,
            self._directory_of,
            self.saboteur.replace_disk,
        )

    def _produce(
        self, name: str, topic: str, *, acks: int, idempotent: bool, every_ms: int
    ) -> Producer:
        _, env = self.simulation.client_env(name)
        producer = Producer(
            env,
            name,
            self.brokers,
            self.history,
            topic,
            PARTITIONS,
            acks=acks,
            idempotent=idempotent,
            every_ms=every_ms,
            is_leader=self._is_leader,
        )
        self.producers.append(producer)
        self.clients.append(producer)
        self._spawn(name, producer.run())
        return producer

    def _is_leader(self, node_id: int, place: records.Place) -> bool:
        """Whether a node leads a partition by all that is committed, and knows it."""
        node, image = self.simulation.node(node_id), self.watcher.images.newest
        partition = None if image is None else image.partition(place.topic, place.partition)
        if node is None or node.broker is None or partition is None:
            return False
        replica = node.broker.replicas.find(place.topic, None, place.partition)
        return (
            isinstance(replica, Replica)
            and partition.leader == node_id
            and replica.core.leader_epoch == partition.leader_epoch
        )

    def _newest_led(self, node_id: int) -> int | None:
        """The newest epoch in which the quorum had a leader, if that is this node."""
        leaders = self.watcher.quorum.facts.leaders
        newest = max(leaders)
        return newest if leaders[newest] == node_id else None

    def _consume(self, name: str, topic: str) -> Consumer:
        _, env = self.simulation.client_env(name)
        consumer = Consumer(env, name, self.brokers, self.history, topic, PARTITIONS)
        self.consumers.append(consumer)
        self.clients.append(consumer)
        self._spawn(name, consumer.run())
        return consumer

    # -- what only the world knows ----------------------------------------------------------------

    def _directory_of(self, node_id: int) -> UUID | None:
        node = self.simulation.node(node_id)
        if node is None or node.raft is None:
            return None
        return node.raft.config.directory_id

    # -- after ---------------------------------------------------------------------------------

    def _converge(self) -> None:
        simulation = self.simulation
        simulation.tell("trial", "must converge")
        begin_ms = simulation.now_ms
        end = self.watcher.quorum.facts.committed_end
        self._wait(lambda: self._missing(end), CONVERGE_MAX_MS, "a healed cluster converges")
        self._spawn("late", self._make_topics("late", (LATE,)))
        producer = self._produce("later", LATE, acks=records.ALL, idempotent=True, every_ms=100)
        consumer = self._consume("reader-late", LATE)

        def served() -> str | None:
            written = sum(record.outcome is Outcome.OK for record in producer.sent)
            read = len(consumer.seen)
            if min(written, read) >= 2 * PARTITIONS:
                return None
            return f"{written} records of a new topic were acknowledged, {read} read"

        left_ms = max(1, CONVERGE_MAX_MS - (simulation.now_ms - begin_ms))
        self._wait(served, left_ms, "a healed cluster serves new topics")
        simulation.tell("trial", f"converged in {simulation.now_ms - begin_ms} ms")
        simulation.world.count("convergence ms", simulation.now_ms - begin_ms)

    def _stay_calm(self) -> None:
        """Where nothing goes wrong, every client is served and the quorum's leader stays."""
        begin = len(self.history.calls)
        elections = self.watcher.quorum.counts["elections"]
        # To acks=0 nobody answers; the operator rests.
        silent = ["operator", *(producer.name for producer in self.producers if not producer.acks)]

        def answered() -> str | None:
            served = {
                call.client
                for call in self.history.calls[begin:]
                if call.outcome is Outcome.OK or call.result in (topics.EXISTS, topics.ABSENT)
            }
            names = [client.name for client in self.clients if client.name not in silent]
            missing = [name for name in names if name not in served]
            return f"{missing} had no answer" if missing else None

        self._wait(answered, ANSWER_MAX_MS, "a healed cluster answers every client")
        if self._chaos_steps is None:
            self._go_on(CALM_UNTIL_MS)
        more = self.watcher.quorum.counts["elections"] - elections
        require(more == 0, "a leader with a majority stays", f"{more} elections in a healed quorum")

    def _missing(self, end: int) -> str | None:
        """What a converged cluster has and this one has not."""
        for machine in self.simulation.machines:
            node = machine.node
            if node is None:
                return f"{machine.name} is down: {machine.exit!r}"
            why = node.why_not_ready()
            if why is not None:
                return f"{machine.name} is not ready: {why}"
            if node.image.last_offset + 1 < end:
                return f"{machine.name} is at offset {node.image.last_offset}, {end} is committed"
            needs_end = None if node.raft is None else node.raft.core.state.needs_end
            # What it lost need not have been committed: then it waits for the log to grow past it.
            if needs_end is not None and needs_end < node.image.last_offset:
                return f"{machine.name} has not fetched what it lost"
        active = active_controllers(self.simulation, self.controllers)
        if len(active) != 1:
            return f"active controllers: {active}"
        if not self.operator.idle:
            return "a controller is not back in the quorum"
        if missing := not_voting(self.simulation, self.controllers):
            return f"controllers don't vote: {missing}"
        image = self.watcher.images.newest
        assert image is not None
        for name in sorted(image.topics.by_name):
            for index, partition in sorted(image.topics.by_name[name].partitions.items()):
                full = sorted(partition.isr) == sorted(partition.replicas)
                if partition.leader == NO_LEADER or not full:
                    return f"{name}-{index}: {partition}"
        return None

    def _read_back(self) -> None:
        """Everybody stops; then everything is read again from the start."""
        for client in self.clients:
            if client not in self.groups.members:
                client.close()
        # What is still on its way arrives now, or never.
        self._go_on(self.simulation.now_ms + 1_000)
        ends = self._ends(CAREFUL)
        self._wait(
            lambda: self.groups.missing(ends), CATCH_UP_MAX_MS, "a group consumes everything"
        )
        for member in self.groups.members:
            member.close()
        self._go_on(self.simulation.now_ms + 500)
        self.final: dict[records.Place, list[tuple[int, bytes]]] = {}
        readers = []
        for topic in (CAREFUL, LOOSE, LATE):
            name = f"last-{topic}"
            _, env = self.simulation.client_env(name)
            reader = Consumer(env, name, self.brokers, self.history, topic, PARTITIONS)
            readers.append(self._spawn(name, reader.read_to_end()))
        last = self.compacted.last
        readers_of_all = [*readers, self._spawn(last.name, last.read_all())]
        self._wait(
            lambda: (
                None if all(task.done() for task in readers_of_all) else "records can't be read"
            ),
            READ_BACK_MAX_MS,
            "a healed cluster can be read",
        )
        for task in readers:
            self.final.update(task.result())
        self._read_topics()
        different = self.watcher.partitions.differences()
        require(not different, "replicas are equal in the end", different)

    def _ends(self, topic: str) -> dict[records.Place, int]:
        """Where each partition's high watermark is now."""
        image = self.watcher.images.newest
        assert image is not None
        ends = {}
        for place in (records.Place(topic, index) for index in range(PARTITIONS)):
            partition = image.partition(place.topic, place.partition)
            node = None if partition is None else self.simulation.node(partition.leader)
            assert node is not None
            assert node.broker is not None
            replica = node.broker.replicas.find(place.topic, None, place.partition)
            assert isinstance(replica, Replica)
            ends[place] = replica.core.high_watermark
        return ends

    def _read_topics(self) -> None:
        """One more read of every topic that was ever asked for, to be judged with the others."""
        reader = self._admin("last-admin", every_ms=0, changes=False)
        names = [call.args["name"] for call in self.history.calls if call.kind in topics.KINDS]
        task = self._spawn(reader.name, reader.read_all(dict.fromkeys(names)))
        self._wait(
            lambda: None if task.done() else "topics can't be read",
            READ_BACK_MAX_MS,
            "a healed cluster can be read",
        )

    def _judge(self) -> None:
        records.judge(
            [record for producer in self.producers for record in producer.sent],
            [seen for one in (*self.consumers, *self.groups.members) for seen in one.seen],
            self.final,
        )
        self.compacted.judge(clocks_right=not self.saboteur.done["clock"])
        self.groups.judge(self.final)
        ids = [
            call.result[0]
            for call in self.history.calls
            if call.kind == "init producer" and call.outcome is Outcome.OK
        ]
        if len(ids) != len(dict.fromkeys(ids)):
            raise Violation("producer ids are given once", f"{ids}")
        topics.judge(self.history)

    def coverage(self) -> dict[str, int]:
        """Events, faults and calls, counted."""
        total: Counter[str] = Counter(self.simulation.coverage)
        total.update(self.watcher.counts)
        total.update({f"fault {kind}": n for kind, n in self.saboteur.done.items()})
        total.update({f"left out {kind}": n for kind, n in self.saboteur.left_out.items()})
        total.update({f"call {name}": n for name, n in self.history.counts().items()})
        total["calls"] = len(self.history.calls)
        total["membership changes"] = self.operator.done
        total["faults"] = sum(self.saboteur.done.values())
        return dict(sorted(total.items()))


def run_trial(
    seed: int,
    plan: Plan | None = None,
    *,
    controllers: int = 3,
    brokers: int = 3,
    telling: bool = False,
    limit_ms: int | None = None,
    chaos_steps: int | None = None,
) -> Verdict:
    """Runs one seed, under its own plan or the one given; see Trial."""
    trial = Trial(seed, plan, controllers=controllers, brokers=brokers, telling=telling)
    return trial.run(limit_ms=limit_ms, chaos_steps=chaos_steps)
