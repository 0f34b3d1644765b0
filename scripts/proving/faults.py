"""Nodes of real clusters killed at random under load, and what must be there afterwards."""

from __future__ import annotations

import random
import time
from typing import Any

from clusters import Cluster, running_cluster
from one_history import assert_metadata_agrees
from waiting import NotInTime, wait_until

from proving.load import Load
from proving.part import Failed, Outcome, Task
from wire.errors import KafkaError

ROUND_S = 60.0
PARTITIONS = 3
SHAPES = ((3, 3), (0, 3))


def prove(task: Task) -> Outcome:
    """Rounds on fresh clusters, separate and combined roles in turn, until the time is over."""
    outcome = Outcome("faults")
    figures = {"rounds": 0, "kills": 0, "all killed": 0, "acknowledged": 0, "read back": 0}
    base = int(time.time())
    while task.left_s > 20 or not figures["rounds"]:
        seed = base + figures["rounds"]
        shape = SHAPES[figures["rounds"] % len(SHAPES)]
        figures["rounds"] += 1
        folder = task.scratch / f"faults-{seed}"
        try:
            _round(task, seed, shape, folder, figures)
        except (Failed, NotInTime, AssertionError) as error:
            outcome.fail(f"shape {shape}, seed {seed}, kept in {folder}: {error!s:.600}")
            break
    outcome.figures = figures
    return outcome


def _round(task: Task, seed: int, shape: tuple[int, int], folder: Any, figures: dict) -> None:
    chance = random.Random(seed)
    settings = {"min.insync.replicas": 2}
    with running_cluster(folder, *shape, settings=settings) as cluster:
        with cluster.admin() as admin:
            admin.create_topic("proof", PARTITIONS, 3)
        load = Load(cluster.bootstrap, "proof", PARTITIONS)
        end = time.monotonic() + max(10.0, min(ROUND_S, task.left_s))
        while time.monotonic() < end:
            _one_fault(cluster, load, chance, figures)
            task.say(
                f"round {figures['rounds']}, {shape[0]}+{shape[1]} nodes: {figures['kills']} kills,"
                f" {load.count} records acknowledged"
            )
        task.say(f"round {figures['rounds']}: reading {load.count} records back")
        load.stop(120)
        _everyone_in_sync(cluster)
        figures["acknowledged"] += load.count
        figures["read back"] += load.check(60)
        if load.count == 0:
            raise Failed("nothing was acknowledged")
        cluster.down()
        assert_metadata_agrees(cluster)


def _one_fault(cluster: Cluster, load: Load, chance: random.Random, figures: dict) -> None:
    """Kills some nodes with SIGKILL, lets the others go on or not, and starts them again."""
    ids = cluster.ids()
    kind = chance.random()
    if kind < 0.1:
        victims = ids
        figures["all killed"] += 1
    elif kind < 0.3:
        victims = chance.sample(ids, 2)
    else:
        victims = [chance.choice(ids)]
    before = load.count
    cluster.kill(*victims)
    figures["kills"] += len(victims)
    pause_s = chance.choice((0.0, 0.5, 4.0))
    time.sleep(pause_s)
    cluster.start(*victims)
    # One replica at a time: the next fault waits until all are in sync, as the budget says.
    _everyone_in_sync(cluster)
    wait_until(lambda: load.count > before or load.refused, "records acknowledged again", 90)


def _everyone_in_sync(cluster: Cluster) -> None:
    def in_sync() -> bool:
        with cluster.admin(10) as admin:
            topic = admin.describe_topics(["proof"])["proof"]
        return all(len(one["isr"]) == 3 for one in topic["partitions"].values())

    wait_until(in_sync, "all replicas in sync", 90, every_s=0.2, errors=(KafkaError, KeyError))
