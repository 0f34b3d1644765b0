"""Waits for a cluster that isn't there yet: `probe.py '{"bootstrap": …, "replicas": …}'`.

Prints "waiting" once its clients exist, then, when a record in a topic with that many replicas is
acknowledged at acks=all, the monotonic time of the acknowledgement.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

TIMEOUT_S = 120.0
PAUSE_S = 0.02
IMPATIENT = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 20,
    "topic.metadata.refresh.fast.interval.ms": 20,
    "broker.address.family": "v4",
    "log_level": 0,
}


def create_topic(admin: AdminClient, replicas: int, deadline: float) -> None:
    """Asks again until enough brokers are there."""
    while True:
        topic = NewTopic("first", num_partitions=replicas, replication_factor=replicas)
        try:
            admin.create_topics([topic], operation_timeout=5, request_timeout=5)["first"].result()
            return
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_S)


def main() -> int:
    """One acknowledged record."""
    job = json.loads(sys.argv[1])
    settings = {**IMPATIENT, "bootstrap.servers": job["bootstrap"]}
    admin = AdminClient(settings)
    producer = Producer({**settings, "acks": "all", "linger.ms": 0})
    acknowledged: list[float] = []

    def delivered(error: Any, _: Any) -> None:
        if error is None:
            acknowledged.append(time.monotonic())

    print("waiting", flush=True)
    deadline = time.monotonic() + TIMEOUT_S
    create_topic(admin, job["replicas"], deadline)
    while not acknowledged and time.monotonic() < deadline:
        producer.produce("first", b"first", partition=0, on_delivery=delivered)
        producer.flush(TIMEOUT_S)
    if not acknowledged:
        print("no record was acknowledged", file=sys.stderr)
        return 1
    print(acknowledged[0], flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
