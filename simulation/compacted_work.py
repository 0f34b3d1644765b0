"""The compacted topic of a run: who writes and reads it, what its replicas hold, the verdict."""

from __future__ import annotations

from collections.abc import Mapping

from simulation import settings
from simulation.clients.compacted import CompactedReader, KeyedProducer, read_replica
from simulation.clients.links import Address
from simulation.clients.records import IsLeader
from simulation.history import History
from simulation.models import compacted
from simulation.models.records import Place
from simulation.run import Simulation


class CompactedWork:
    """A producer of keyed records and a reader that begins again and again."""

    def __init__(
        self,
        simulation: Simulation,
        brokers: Mapping[int, Address],
        history: History,
        topic: str,
        partitions: int,
        *,
        is_leader: IsLeader,
    ) -> None:
        self._simulation = simulation
        self._brokers = brokers
        self._history = history
        self._topic = topic
        self._partitions = partitions
        _, env = simulation.client_env("keyed")
        self.producer = KeyedProducer(
            env, "keyed", brokers, history, topic, partitions, every_ms=450, is_leader=is_leader
        )
        self.reader = self._reader("reader-compacted")
        self.last = self._reader("last-compacted")

    def _reader(self, name: str) -> CompactedReader:
        _, env = self._simulation.client_env(name)
        return CompactedReader(
            env, name, self._brokers, self._history, self._topic, self._partitions
        )

    def _replicas(self) -> list[compacted.Reading]:
        """What each replica has, whoever leads: they are cleaned each for itself. All of it is
        committed by now."""
        made = []
        for node_id in self._brokers:
            node = self._simulation.node(node_id)
            assert node is not None
            assert node.broker is not None
            for replica in node.broker.replicas:
                if replica.topic == self._topic:
                    place = Place(self._topic, replica.index)
                    who, now_ms = f"node {node_id}", self._simulation.now_ms
                    made.append(read_replica(who, place, replica.log, now_ms))
        return made

    def judge(self, *, clocks_right: bool) -> None:
        """Violation unless all that was read, `last` by the last reader, is a right compaction of
        what was written. A cleaner whose clock was an hour ahead took tombstones for older."""
        configs = settings.compaction(self._simulation.seed)
        missing = compacted.judge(
            self.producer.keyed,
            [*self.reader.readings, *self.last.readings, *self._replicas()],
            int(configs["delete.retention.ms"]) if clocks_right else 0,
        )
        self._simulation.world.count("records found compacted away", missing)
