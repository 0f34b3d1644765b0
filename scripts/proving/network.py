"""Real clusters on a network that is cut, late and lossy at random, their processes killed and
stopped; what clients saw is judged as the simulation judges its own."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from judged_clients import clients_at_work
from network_faults import Mischief
from networked_cluster import networked_cluster
from one_history import assert_metadata_agrees, assert_replicas_agree
from waiting import NotInTime

from proving.part import Failed, Outcome, Task
from simulation.models.linear import Undecided
from wire.errors import KafkaError

ROUND_S = 60.0
SHAPES = ((3, 3), (3, 3), (0, 3))
# Short times, so that patience runs out often.
PATIENCE_S = 2.6
SETTINGS = {
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "4000",
    "broker.session.timeout.ms": "1800",
    "broker.heartbeat.interval.ms": "300",
    "controller.quorum.fetch.timeout.ms": "1200",
}


def prove(task: Task) -> Outcome:
    """Rounds on fresh clusters, a third of them of combined roles, until the time is over."""
    outcome = Outcome("network")
    figures: dict[str, Any] = {"rounds": 0, "faults": 0, "calls": 0, "partitions compared": 0}
    seed = int(time.time()) if task.seeds is None else task.seeds.start
    while task.left_s > 30 or not figures["rounds"]:
        folder = task.scratch / f"network-{seed}"
        figures["rounds"] += 1
        try:
            _round(task, seed, folder, figures)
        except (Failed, NotInTime, Undecided, AssertionError, KafkaError) as error:
            outcome.fail(f"seed {seed}, kept in {folder}: {error!s:.600}")
            break
        seed += 1
    outcome.figures = figures
    return outcome


def _round(task: Task, seed: int, folder: Path, figures: dict[str, Any]) -> None:
    shape = SHAPES[seed % len(SHAPES)]
    with networked_cluster(folder, *shape, settings=SETTINGS, seed=seed) as cluster:
        kind = f"on {cluster.network.kind}"
        figures[kind] = figures.get(kind, 0) + 1
        mischief = Mischief(cluster, seed, PATIENCE_S)
        try:
            with clients_at_work(cluster, "proof", seed) as clients:
                task.say(
                    f"round {figures['rounds']}, seed {seed}: {figures['faults']} faults so far"
                )
                mischief.run(max(10.0, min(ROUND_S, task.left_s - 20)))
                task.say(f"round {figures['rounds']}: healed, must be whole and is judged")
        finally:
            (folder / "story.txt").write_text("\n".join(mischief.story) + "\n")
        figures["faults"] += sum(mischief.done.values())
        figures["calls"] += sum(clients.counts().values())
        cluster.down()
        assert_metadata_agrees(cluster)
        figures["partitions compared"] += assert_replicas_agree(
            cluster, [clients.careful, clients.loose]
        )
