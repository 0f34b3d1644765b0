"""A metadata log of a million partitions: loaded, snapshotted, changed."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks import calls
from benchmarks.failover import next_topic
from benchmarks.measures import Bench, Taken
from benchmarks.processes import pss_mb
from benchmarks.quorums import JvmQuorum, PykraftQuorum, Quorum
from benchmarks.servers import BenchFailed
from benchmarks.stats import LOWER, Result, percentile
from wire.apis import ApiKey
from wire.errors import DecodeError, ErrorCode
from wire.messages import fill, request_module

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import bench_audit_log

FIGURES = {
    "load-log": "s",
    "load-snapshot": "s",
    "load-broker": "s",
    "memory-controller": "MB",
    "memory-broker": "MB",
    "create-topic": "ms",
    "create-topic-p99": "ms",
    "snapshot-wait": "ms",
}
TOPICS_CREATED = 200
# A run takes two minutes on each side, and what is this large differs little from run to run.
RUNS_MAX = 3
TIMEOUT_S = 180.0
PAUSE_S = 0.05
BROKER_ID = 99
# Its text fills a record: many of these make a snapshot due.
LONG_VALUE = ",".join(f"{partition}:1" for partition in range(4000))


def all_names() -> list[str]:
    """Every figure."""
    return [f"metadata-1M/{figure}" for figure in FIGURES]


def million(bench: Bench) -> Iterator[Result]:
    """New directories in each run; the log in them is written once."""
    if not any(bench.wanted(name) for name in all_names()):
        return
    bench.say(f"metadata-1M: writing a log of {bench.plan.partitions:,} partitions")
    source, _ = bench.place()
    bench_audit_log.generate_opening(source, bench.plan.partitions)
    log = source / "__cluster_metadata-0" / f"{0:020d}.log"
    taken, failed = Taken(), None
    try:
        for run in range(min(bench.plan.runs, RUNS_MAX)):
            for side in ("ours", *(["kafka"] if "kafka" in bench.peers else [])):
                _one_run(bench, taken, side, log, f"{side}, run {run + 1}")
    except BenchFailed as reason:
        failed = reason
    # What there is took minutes: a failure doesn't cost it.
    for figure, unit in FIGURES.items():
        name = f"metadata-1M/{figure}"
        if bench.wanted(name) and taken.values("ours", figure):
            yield taken.result(name, figure, unit, LOWER, against="kafka")
    if failed is not None:
        raise failed


def _one_run(bench: Bench, taken: Taken, side: str, log: Path, what: str) -> None:
    make = PykraftQuorum if side == "ours" else JvmQuorum
    alone = ("load-log", "load-snapshot", "load-broker", "memory", "create-topic")
    if any(bench.wanted(name) for name in all_names() if name.split("/")[1].startswith(alone)):
        bench.say(f"metadata-1M: one controller, {what}")
        with ExitStack() as stack:
            quorum = _with_log(bench, make, log, 1, stack)
            taken.add(side, quorum.label, **_alone(bench, quorum, what))
            shutil.rmtree(quorum.directory)
    if bench.wanted("metadata-1M/snapshot-wait"):
        bench.say(f"metadata-1M: three controllers write snapshots, {what}")
        with ExitStack() as stack:
            quorum = _with_log(bench, make, log, 3, stack)
            quorum.start()
            quorum.leader(TIMEOUT_S)
            taken.add(side, quorum.label, **{"snapshot-wait": change_until_snapshots(quorum)})
            quorum.stop()
            shutil.rmtree(quorum.directory)


def _with_log(
    bench: Bench,
    make: type[PykraftQuorum] | type[JvmQuorum],
    log: Path,
    count: int,
    stack: ExitStack,
) -> Quorum:
    """Controllers that find the log as if they had written it."""
    directory, port = bench.place()
    # Kafka's default, 20 MiB, for a million; smaller logs in proportion.
    snapshot_bytes = min(20 << 20, 20 * bench.plan.partitions)
    settings = {"metadata.log.max.record.bytes.between.snapshots": snapshot_bytes}
    quorum = make(directory, port, count=count, settings=settings)
    stack.callback(quorum.stop)
    quorum.prepare()
    for node_id in quorum.addresses:
        quorum.metadata_directory(node_id).mkdir(exist_ok=True)
        shutil.copy(log, quorum.metadata_directory(node_id))
    return quorum


def _alone(bench: Bench, quorum: Quorum, what: str) -> dict[str, float]:
    """One controller, which serves when it has loaded everything; then a broker beside it."""
    (node_id,) = quorum.addresses
    figures = {"load-log": start_and_change(quorum, "after-log")}
    if snapshots_of(quorum, node_id) == 0:
        change_until_snapshots(quorum)
    times = create_one_by_one(quorum, node_id)
    figures["create-topic"] = percentile(times, 50)
    figures["create-topic-p99"] = percentile(times, 99)
    quorum.stop()
    bench.say(f"metadata-1M: one controller from its snapshot, {what}")
    figures["load-snapshot"] = start_and_change(quorum, "after-snapshot")
    figures["memory-controller"] = pss_mb(quorum.pids())
    bench.say(f"metadata-1M: a broker, {what}")
    host, port = quorum.addresses[node_id].rsplit(":", 1)
    address = f"{host}:{int(port) + 1}"
    quorum.add_broker(BROKER_ID, address)
    begun = time.perf_counter()
    quorum.start(BROKER_ID)
    _wait_until_unfenced(quorum, address)
    figures["load-broker"] = time.perf_counter() - begun
    figures["memory-broker"] = pss_mb([quorum.processes[BROKER_ID].pid])
    return figures


def start_and_change(quorum: Quorum, name: str) -> float:
    """Starts a controller that is alone; seconds until it has committed a topic."""
    (address,) = quorum.addresses.values()
    begun = time.perf_counter()
    quorum.start()
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            with calls.Caller(address) as caller:
                next_topic([caller], name, timeout_s=TIMEOUT_S)
            return time.perf_counter() - begun
        except OSError:
            quorum.pids()
            if time.monotonic() > deadline:
                raise BenchFailed(f"{quorum.label}: not up in {TIMEOUT_S:.0f} s") from None
            time.sleep(PAUSE_S)


def create_one_by_one(quorum: Quorum, node_id: int) -> list[float]:
    """Milliseconds from asking for a topic to its commit, for a few in turn."""
    times = []
    with calls.Caller(quorum.addresses[node_id]) as caller:
        for number in range(TOPICS_CREATED):
            begun = time.perf_counter()
            calls.create_topics(caller, [f"one-{number}"])
            times.append((time.perf_counter() - begun) * 1e3)
    return times


def _wait_until_unfenced(quorum: Quorum, address: str) -> None:
    """Returns when a broker says that it is one of those that serve."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            with calls.Caller(address) as caller:
                answer = caller.call(
                    ApiKey.METADATA,
                    9,
                    topics=(),
                    allow_auto_topic_creation=False,
                    include_cluster_authorized_operations=False,
                    include_topic_authorized_operations=False,
                )
            if any(broker.node_id == BROKER_ID for broker in answer.brokers):
                return
        except (OSError, DecodeError):
            quorum.pids()
        time.sleep(PAUSE_S)
    raise BenchFailed(f"{quorum.label}: the broker does not serve in {TIMEOUT_S:.0f} s")


# -- the commits of others while a snapshot is written ----------------------------------------


def snapshots_of(quorum: Quorum, node_id: int) -> int:
    """The end offset of the newest whole snapshot of a controller, 0 for none."""
    names = quorum.metadata_directory(node_id).glob("*-*.checkpoint")
    return max((int(path.name.split("-")[0]) for path in names), default=0)


def change_until_snapshots(quorum: Quorum) -> float:
    """Makes changes, one after the other, until each controller has a newer snapshot than now;
    the longest that one of them was waited for, in milliseconds."""
    before = {node_id: snapshots_of(quorum, node_id) for node_id in quorum.addresses}
    longest = 0.0
    deadline = time.monotonic() + TIMEOUT_S
    number = 0
    with ExitStack() as stack:
        active = stack.enter_context(active_controller(quorum, "active"))
        while any(snapshots_of(quorum, node_id) <= old for node_id, old in before.items()):
            number += 1
            begun = time.perf_counter()
            while not _change(active, number):
                active = stack.enter_context(active_controller(quorum, f"active-{number}"))
            longest = max(longest, time.perf_counter() - begun)
            if time.monotonic() > deadline:
                raise BenchFailed(f"{quorum.label}: no snapshot in {TIMEOUT_S:.0f} s")
    return longest * 1e3


def active_controller(quorum: Quorum, name: str) -> calls.Caller:
    """A connection to the controller that commits a topic of this name. Who led when it was looked
    last need not be the one: a controller that is busy loading may lose the lead."""
    callers = [calls.Caller(address, TIMEOUT_S) for address in quorum.addresses.values()]
    active = next_topic(callers, name, timeout_s=TIMEOUT_S)
    for caller in callers:
        if caller is not active:
            caller.close()
    return active


def _change(caller: calls.Caller, number: int) -> bool:
    """A config of a topic gets another value, of 20 KB or so; False where another controller has
    to be asked."""
    module = request_module(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1)
    value = f"{number}:1,{LONG_VALUE}"
    config = fill(
        module.AlterableConfig,
        name="follower.replication.throttled.replicas",
        config_operation=0,
        value=value,
    )
    resource = fill(
        module.AlterConfigsResource,
        resource_type=2,
        resource_name="topic-00000",
        configs=(config,),
    )
    answer = caller.call(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=(resource,), validate_only=False
    )
    (outcome,) = answer.responses
    if outcome.error_code == ErrorCode.not_controller:
        return False
    if outcome.error_code != ErrorCode.none:
        raise BenchFailed(f"{caller.address}: {outcome.error_code.name}: {outcome.error_message}")
    return True
