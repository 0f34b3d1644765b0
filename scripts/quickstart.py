"""The main job, end to end: a cluster, a topic, records, a killed controller, its history in Spark.

Three controllers in a Raft quorum and three brokers run as six processes on this machine. Nothing
here is staged: the topic is made over gRPC, the records go through librdkafka, the active
controller is ended with SIGKILL, and what Spark tells is read from a controller's own directory.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from rich.console import Console

from admin.client import AdminClient
from pykraft.cli import CommandError
from pykraft.local_cluster import LocalCluster
from spark_audit.files import AuditError
from wire.errors import KafkaError

CONTROLLERS = BROKERS = PARTITIONS = REPLICAS = 3
RECORDS = 3000
CLIENT_TIMEOUT_S = 30.0

console = Console(stderr=True)


class DemonstrationFailed(Exception):
    """Something that was to be shown was not so."""


@contextmanager
def step(what: str) -> Iterator[None]:
    """Shows a step while it runs, and how long it took."""
    begun = time.monotonic()
    with console.status(what):
        yield
    console.print(f"[green]✓[/green] {what} [dim]{time.monotonic() - begun:.2f} s[/dim]")


def produce(bootstrap: str, topic: str, first: int, count: int) -> None:
    """Produces `count` numbered records at acks=all; all must be acknowledged."""
    failed: list[str] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(str(error))

    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 5}
    )
    for number in range(first, first + count):
        key = str(number)
        producer.produce(topic, key=key, value=f"record {number}", on_delivery=delivered)
        producer.poll(0)
    left = producer.flush(CLIENT_TIMEOUT_S)
    if left or failed:
        raise DemonstrationFailed(
            f"{left} records unacknowledged, {len(failed)} failed {failed[:1]}"
        )


def consume(bootstrap: str, topic: str) -> list[int]:
    """Every record of the topic, as its number, sorted."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "quickstart",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    seen: list[int] = []
    ended = 0
    deadline = time.monotonic() + CLIENT_TIMEOUT_S
    while ended < PARTITIONS:
        if time.monotonic() > deadline:
            raise DemonstrationFailed(f"only {len(seen)} records consumed in {CLIENT_TIMEOUT_S} s")
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            ended += 1  # end of a partition; anything else is fatal in librdkafka
        else:
            seen.append(int(message.key()))
    consumer.close()
    return sorted(seen)


def check_all(seen: list[int], count: int) -> None:
    """Each record once."""
    if seen != list(range(count)):
        raise DemonstrationFailed(f"{len(seen)} records consumed of {count} produced")


def fail_over(cluster: LocalCluster, admin: AdminClient, topic: str) -> tuple[int, int, int]:
    """Kills the active controller; (who it was, who is it now, ms until the next topic)."""
    old = cluster.status()["active_controller"]
    if old is None:
        raise DemonstrationFailed("no active controller to kill")
    cluster.kill([old])
    begun = time.monotonic()
    admin.create_topic(f"{topic}-after-failover", PARTITIONS, REPLICAS)
    took_ms = round((time.monotonic() - begun) * 1000)
    new = cluster.status()["active_controller"]
    cluster.start([old])
    return old, new, took_ms


def audit(cluster: LocalCluster) -> dict[str, Any]:
    """What Spark finds in the metadata logs of all three controllers."""
    # Imported here: a Spark that can't start is told after what it has nothing to do with.
    from spark_audit import session
    from spark_audit.verify import verify

    directories = [
        str(cluster.node_directory(node) / "data" / "__cluster_metadata-0")
        for node in cluster.nodes()
        if "controller" in node.roles
    ]
    spark = session.start(quiet=True)
    try:
        found = verify(directories, session.on_spark(spark))
    finally:
        spark.stop()
    return {
        "records": found["directories"][0]["records"],
        "verified": found["sound"],
        "detail": found,
    }


def run(cluster: LocalCluster) -> dict[str, Any]:
    """The whole demonstration; the document that --json prints."""
    begun = time.monotonic()
    with step(f"cluster of {CONTROLLERS} controllers and {BROKERS} brokers"):
        status = cluster.up(CONTROLLERS, BROKERS)
    topic = f"quickstart-{uuid.uuid4().hex[:8]}"
    bootstrap = status["bootstrap_servers"]
    with AdminClient(status["admin"]) as admin:
        with step(f"topic {topic}, {PARTITIONS} partitions on {REPLICAS} brokers, over gRPC"):
            admin.create_topic(topic, PARTITIONS, REPLICAS)
        with step(f"{RECORDS} records produced at acks=all and consumed again (librdkafka)"):
            produce(bootstrap, topic, 0, RECORDS)
            check_all(consume(bootstrap, topic), RECORDS)
        with step("active controller killed (SIGKILL), next topic created, controller back"):
            old, new, failover_ms = fail_over(cluster, admin, topic)
        with step(f"{RECORDS} more records produced, all consumed"):
            produce(bootstrap, topic, RECORDS, RECORDS)
            seen = consume(bootstrap, topic)
            check_all(seen, 2 * RECORDS)
    with step("metadata log of every controller replayed and compared in Spark"):
        found = audit(cluster)
    if not found["verified"]:
        raise DemonstrationFailed(f"the audit found damage: {json.dumps(found['detail'])}")
    return {
        "controllers": CONTROLLERS,
        "brokers": BROKERS,
        "topic": topic,
        "produced": 2 * RECORDS,
        "consumed": len(seen),
        "failover_ms": failover_ms,
        "killed_controller": old,
        "active_controller": new,
        "audit": {"records": found["records"], "verified": found["verified"]},
        "bootstrap_servers": bootstrap,
        "admin": status["admin"],
        "directory": str(cluster.directory),
        "seconds": round(time.monotonic() - begun, 2),
    }


def tell(result: dict[str, Any], *, stopped: bool) -> None:
    """What happened, for a person."""
    print(
        f"{result['produced']} records produced, {result['consumed']} consumed, none lost.\n"
        f"Controller {result['killed_controller']} was killed; {result['active_controller']} took "
        f"over, the next topic was there after {result['failover_ms']} ms.\n"
        f"{result['audit']['records']} metadata records replayed in Spark: sound, and the same on "
        "every controller."
    )
    if not stopped:
        print(
            f"The cluster goes on: clients {result['bootstrap_servers']}, gRPC {result['admin']}\n"
            "  .venv/bin/pykraft topics describe    (run `pykraft --help` for more)\n"
            "  scripts/stop-cluster                 ends it"
        )


def main() -> int:
    """Parses the arguments and runs; 0 if everything was shown."""
    parser = argparse.ArgumentParser(prog="scripts/quickstart", description=__doc__)
    parser.add_argument("--stop-after", action="store_true", help="stop the cluster at the end")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    options = parser.parse_args()
    root = Path(__file__).resolve().parent.parent
    cluster = LocalCluster(Path(os.environ.get("PYKRAFT_HOME", root / ".pykraft")))
    try:
        result = run(cluster)
        if options.stop_after:
            with step("cluster stopped"):
                cluster.down()
    except (CommandError, DemonstrationFailed, KafkaException, KafkaError, AuditError) as error:
        print(f"quickstart: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as interrupt:
        # The notes are of a start that was undone; a cluster that was up is left, as ever.
        left = ["interrupted; what runs of the cluster is ended by scripts/stop-cluster"]
        for note in getattr(interrupt, "__notes__", left):
            print(f"quickstart: {note}", file=sys.stderr)
        return 128 + signal.SIGINT
    if options.json:
        print(json.dumps(result))
    else:
        tell(result, stopped=options.stop_after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
