"""A process that consumes a topic as a member of a group, and says what happens in JSON lines.

    python group_member.py LIBRARY PROTOCOL BOOTSTRAP GROUP TOPIC

It commits after each round of records, after it has said which they were. SIGTERM has it leave.
"""

import json
import signal
import subprocess
import sys
import threading
from contextlib import suppress

COMMIT_EVERY = 50


def say(**what):
    print(json.dumps(what), flush=True)


class Stopped(Exception):
    pass


def _stop(number, frame):
    raise Stopped


def confluent(protocol, bootstrap, group, topic):
    from confluent_kafka import Consumer, KafkaException

    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "log_level": 0,
    }
    if protocol == "consumer":
        settings["group.protocol"] = "consumer"
    else:
        settings |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
        settings["partition.assignment.strategy"] = protocol
    consumer = Consumer(settings)
    mine = {}

    def assigned(_, partitions):
        mine.update({p.partition: True for p in partitions})
        say(owns=sorted(mine))

    def revoked(_, partitions):
        for p in partitions:
            mine.pop(p.partition, None)
        say(owns=sorted(mine))

    consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    try:
        while True:
            messages = [m for m in consumer.consume(COMMIT_EVERY, 0.2) if m.error() is None]
            if not messages:
                continue
            say(got=[(m.partition(), m.offset(), m.value().decode()) for m in messages])
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:
                say(not_committed=str(error))
    finally:
        consumer.close()


def kafka_python(protocol, bootstrap, group, topic):
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked):
            say(owns=[])

        def on_partitions_assigned(self, assigned):
            say(owns=sorted(p.partition for p in assigned))

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
            say(got=[(r.partition, r.offset, r.value.decode()) for r in found])
            try:
                consumer.commit()
            except KafkaError as error:
                say(not_committed=repr(error))
    finally:
        consumer.close()


class Member:
    """The process, as a test sees it: `owns` are its partitions, `got` what it has consumed."""

    def __init__(self, library, protocol, bootstrap, group, topic):
        self.owns = []
        self.got = []
        self.not_committed = []
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
            self.not_committed += [said[w] for w in ("not_committed",) if w in said]

    def kill(self):
        self.process.kill()
        self._ended()

    def leave(self):
        self.process.terminate()
        self._ended()

    def _ended(self):
        self.process.wait(30)
        self._reader.join()
        self.process.stdout.close()
        self.process.stderr.close()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)
    with suppress(Stopped):
        {"confluent": confluent, "kafka-python": kafka_python}[sys.argv[1]](*sys.argv[2:])
