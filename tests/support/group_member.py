"""A process that consumes a topic as a member of a group, and says what happens in JSON lines.

    python group_member.py LIBRARY PROTOCOL BOOTSTRAP GROUP TOPIC

It commits after each round of records, after it has said which they were, and says what was
acknowledged. SIGTERM has it leave. Every line says when, by a clock that all processes share.
"""

import json
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

COMMIT_EVERY = 50
# For nodes: sessions as short as the members' own, so that a killed one is missed soon.
NODE_SETTINGS = {
    "group.initial.rebalance.delay.ms": 500,
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.session.timeout.ms": 6000,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 500,
}


def say(**what):
    print(json.dumps({"at": time.monotonic(), **what}), flush=True)


def ends(got):
    """The offset to commit for each partition, of records as they are said."""
    return {partition: offset + 1 for partition, offset, _ in got}


class Stopped(Exception):
    pass


def _stop(number, frame):
    raise Stopped


def confluent(protocol, bootstrap, group, topic):
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "log_level": 0,
    }
    if protocol == "consumer":
        # Now and then librdkafka 2.16 forgets a query of offsets that met a coordinator which had
        # just moved, and never gives up the partition that it was about. After so long it is out.
        settings |= {"group.protocol": "consumer", "max.poll.interval.ms": 15_000}
    else:
        settings |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
        settings["partition.assignment.strategy"] = protocol
    consumer = Consumer(settings)
    mine = {}

    def assigned(_, partitions):
        mine.update({p.partition: True for p in partitions})
        say(owns=sorted(mine), assigned=sorted(p.partition for p in partitions))

    def revoked(_, partitions):
        for p in partitions:
            mine.pop(p.partition, None)
        say(owns=sorted(mine))

    consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    try:
        while True:
            found = consumer.consume(COMMIT_EVERY, 0.2)
            errors = [str(m.error()) for m in found if m.error() is not None]
            if errors:
                say(errors=errors)
            messages = [m for m in found if m.error() is None]
            if not messages:
                continue
            got = [(m.partition(), m.offset(), m.value().decode()) for m in messages]
            say(got=got)
            places = [TopicPartition(topic, p, end) for p, end in ends(got).items()]
            try:
                done = consumer.commit(offsets=places, asynchronous=False)
            except KafkaException as error:
                say(not_committed=str(error))
            else:
                say(
                    committed=[(p.partition, p.offset) for p in done if p.error is None],
                    not_committed=[str(p.error) for p in done if p.error is not None],
                )
    finally:
        consumer.close()


def kafka_python(protocol, bootstrap, group, topic):
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked):
            say(owns=[])

        def on_partitions_assigned(self, assigned):
            partitions = sorted(p.partition for p in assigned)
            say(owns=partitions, assigned=partitions)

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap.split(","),
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6000,
        heartbeat_interval_ms=500,
        request_timeout_ms=20_000,
    )
    consumer.subscribe([topic], listener=Listener())
    try:
        while True:
            rounds = consumer.poll(timeout_ms=200, max_records=COMMIT_EVERY)
            found = [r for records in rounds.values() for r in records]
            if not found:
                continue
            got = [(r.partition, r.offset, r.value.decode()) for r in found]
            say(got=got)
            try:
                consumer.commit()
            except KafkaError as error:
                say(not_committed=repr(error))
            else:
                say(committed=list(ends(got).items()))
    finally:
        consumer.close()


class Member:
    """The process, as a test sees it: `owns` are its partitions, `got` what it has consumed, `said`
    all that it has ever said."""

    def __init__(self, library, protocol, bootstrap, group, topic):
        self.owns = []
        self.got = []
        self.said = []
        self.process = subprocess.Popen(
            [sys.executable, __file__, library, protocol, bootstrap, group, topic],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            said = json.loads(line)
            self.owns = said.get("owns", self.owns)
            self.got += map(tuple, said.get("got", ()))
            self.said.append(said)

    def kill(self):
        self.process.kill()
        self._ended()

    def leave(self):
        self.process.terminate()
        self._ended()

    def _ended(self):
        self.process.wait(120)
        self._reader.join()
        self.process.stdout.close()
        self.process.stderr.close()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)
    with suppress(Stopped):
        {"confluent": confluent, "kafka-python": kafka_python}[sys.argv[1]](*sys.argv[2:])
