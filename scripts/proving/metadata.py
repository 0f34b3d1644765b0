"""A large metadata log: what the door says, what every controller's log says, before and after
all nodes were killed and started again."""

from __future__ import annotations

import time

from clusters import Cluster, running_cluster
from waiting import NotInTime, wait_until

from proving.part import Failed, Outcome, Task
from spark_audit.replay import Limit
from spark_audit.session import in_process
from spark_audit.state import state_at

PARTITIONS_MAX = 3_000
PER_TOPIC = 50


def prove(task: Task) -> Outcome:
    """Topics of 50 partitions on three brokers for half of the time, at most 3,000 partitions."""
    outcome = Outcome("metadata")
    folder = task.scratch / "metadata"
    # Small enough for snapshots to be written and the log to be cut.
    settings = {"metadata.log.max.record.bytes.between.snapshots": 200_000}
    try:
        with running_cluster(folder, 3, 3, settings=settings) as cluster:
            outcome.figures = _fill(task, cluster)
            before = _described(cluster)
            began = time.monotonic()
            cluster.kill(*cluster.ids())
            cluster.start(*cluster.ids())
            outcome.figures["restart s"] = round(time.monotonic() - began, 1)
            after = _described(cluster)
            if sorted(after) != sorted(before):
                raise Failed("topics differ after the restart")
            cluster.down()
            outcome.figures["compared logs"] = _compare(cluster, before)
    except (Failed, NotInTime, AssertionError) as error:
        outcome.fail(f"kept in {folder}: {error!s:.600}")
    return outcome


def _fill(task: Task, cluster: Cluster) -> dict[str, object]:
    end = time.monotonic() + max(20.0, task.left_s / 2)
    began = time.monotonic()
    topics = 0
    with cluster.admin(120) as admin:
        while topics * PER_TOPIC < PARTITIONS_MAX and time.monotonic() < end:
            admin.create_topic(f"topic-{topics:05}", PER_TOPIC, 3)
            topics += 1
            task.say(f"{topics * PER_TOPIC} partitions created")
    seconds = time.monotonic() - began
    return {"partitions": topics * PER_TOPIC, "created per s": round(topics * PER_TOPIC / seconds)}


def _described(cluster: Cluster) -> dict[str, dict]:
    """All topics, once every replica is in sync."""
    found: dict[str, dict] = {}

    def settled() -> bool:
        with cluster.admin(30) as admin:
            found.update(admin.describe_topics(linearizable=True))
        return all(
            len(partition["isr"]) == 3
            for topic in found.values()
            for partition in topic["partitions"].values()
        )

    wait_until(settled, "all replicas in sync", 300, every_s=1.0)
    return found


def _compare(cluster: Cluster, before: dict[str, dict]) -> int:
    """Every controller's log tells the topics and assignments that the door told."""
    ids = cluster.ids("controller")
    for id_ in ids:
        document = state_at(str(cluster.data(id_)), in_process, Limit())
        if not document["complete"]:
            raise Failed(f"controller {id_}: records of its log are missing")
        topics = document["state"]["topics"]
        for name, topic in before.items():
            told = topics.get(name)
            if told is None or told["id"] != topic["id"]:
                raise Failed(f"controller {id_}: topic {name} is not in its log")
            for index, partition in topic["partitions"].items():
                if told["partitions"][index]["replicas"] != partition["replicas"]:
                    raise Failed(f"controller {id_}: replicas of {name}-{index} differ")
    return len(ids)
