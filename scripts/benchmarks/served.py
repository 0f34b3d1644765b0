"""What groups cost a whole node that serves them, its network included: how soon their offsets are
there again after a restart, what memory they take, and what the heartbeats of many members cost."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from benchmarks.calls import Caller
from benchmarks.loads import Side, held_child
from benchmarks.measures import Bench, Taken, running_sides, start_once
from benchmarks.processes import cpu_seconds, idle_cpu_share
from benchmarks.servers import ONE, BenchFailed, Servers
from benchmarks.stats import LOWER, Result
from wire.apis import ApiKey, ErrorCode
from wire.messages import fill, request_module

COMMIT_VERSION, FETCH_VERSION = 7, 5
TOPIC, PARTITIONS = "offsets-of-many-groups", 10
# So many commits are under way at a time; one group in so many is asked for after the restart,
# enough of them to be sure of each of the 50 partitions that hold them.
BURST, EVERY = 100, 97
LOAD_LIMIT_S, PAUSE_S = 300.0, 0.05
SETTLE_LIMIT_S = 400
SPARE_FILES = 200
# Fewer have a connection each, as 20,000 files allow it; the figure is for this many.
PER_MEMBERS = 5_000
FULL: dict[str, float] = {"groups": 100_000, "members": 4_700, "beating_s": 15.0}
QUICK: dict[str, float] = {"groups": 5_000, "members": 500, "beating_s": 6.0}
PROTOCOLS = ("classic", "consumer")
_KEPT = ("groups/served/load", "groups/served/memory")
_BEATS = tuple(f"groups/served/heartbeats/{protocol}" for protocol in PROTOCOLS)


def all_names() -> list[str]:
    """Every figure."""
    return [*_KEPT, *_BEATS]


def kept_offsets(bench: Bench, *, quick: bool) -> Iterator[Result]:
    """A node of each side, filled once, then stopped in order and started again for each run. Its
    first start, without groups, is what its memory is compared with."""
    if not any(bench.wanted(name) for name in _KEPT):
        return
    groups = int((QUICK if quick else FULL)["groups"])
    taken = Taken()
    with ExitStack() as stack:
        filled = []
        for name, servers in bench.sides(ONE):
            bench.say(f"{groups:,} groups commit to {servers.label}")
            stack.callback(servers.stop)
            bootstrap, _ = start_once(servers, ONE)
            # Not deleted again: its groups' offsets would go with it.
            Side(servers, ONE, bootstrap, bench.scratch).make_topic(TOPIC, PARTITIONS)
            with Caller(bootstrap) as caller:
                _await_coordinator(caller)
            servers.halt()
            empty = _started(servers, bootstrap, 0)[1]
            servers.start()
            with _connected(bootstrap, time.monotonic()) as caller:
                _commit(caller, groups)
            servers.halt()
            filled.append((name, servers, bootstrap, empty))
        for run in range(bench.plan.runs):
            for name, servers, bootstrap, empty in filled:
                bench.say(f"groups/served/load, {servers.label}, run {run + 1}")
                seconds, memory, cpu = _started(servers, bootstrap, groups)
                taken.add(name, servers.label, load=seconds, memory=memory - empty, cpu_s=cpu)
    yield taken.result("groups/served/load", "load", "s", LOWER, "cpu_s")
    yield taken.result("groups/served/memory", "memory", "MB", LOWER)


def _started(servers: Servers, bootstrap: str, groups: int) -> tuple[float, float, float]:
    """Starts it, and stops it again in order. Seconds from the command until offsets of every
    partition are answered; the memory that it then needs, in MB; the CPU seconds until then."""
    begun = time.monotonic()
    servers.start()
    with _connected(bootstrap, begun) as caller:
        for group in range(0, groups or 1, EVERY):
            _await_offsets(caller, group, begun, there=groups > 0)
        seconds = time.monotonic() - begun
    cpu, memory = cpu_seconds(servers.pids()), servers.live_mb()
    servers.halt()
    return seconds, memory, cpu


def _connected(bootstrap: str, begun: float) -> Caller:
    while True:
        try:
            return Caller(bootstrap)
        except OSError:
            if time.monotonic() - begun > LOAD_LIMIT_S:
                raise BenchFailed(f"{bootstrap}: nobody listens") from None
            time.sleep(PAUSE_S)


def _await_offsets(caller: Caller, group: int, begun: float, *, there: bool) -> None:
    """Until the group's coordinator answers; its offsets must be those that were committed."""
    module = request_module(ApiKey.OFFSET_FETCH, FETCH_VERSION)
    asked = fill(module.OffsetFetchRequestTopic, name=TOPIC, partition_indexes=(0,))
    while True:
        answer = caller.call(
            ApiKey.OFFSET_FETCH, FETCH_VERSION, group_id=f"group-{group}", topics=(asked,)
        )
        if answer.error_code is ErrorCode.none:
            break
        if time.monotonic() - begun > LOAD_LIMIT_S:
            raise BenchFailed(f"{caller.address}: group-{group}: {answer.error_code.name}")
        time.sleep(PAUSE_S)
    found = answer.topics[0].partitions[0].committed_offset
    if there and found != group:
        raise BenchFailed(f"{caller.address}: group-{group} has {found} for {group}")


def _await_coordinator(caller: Caller) -> None:
    """The first question makes the topic of the offsets."""
    begun = time.monotonic()
    while caller.call(ApiKey.FIND_COORDINATOR, 1, key="group-0", key_type=0).error_code:
        if time.monotonic() - begun > LOAD_LIMIT_S:
            raise BenchFailed(f"{caller.address}: group-0 has no coordinator")
        time.sleep(PAUSE_S)


def _commit(caller: Caller, groups: int) -> None:
    """Each group commits an offset for each partition of the topic, without members."""
    _await_offsets(caller, 0, time.monotonic(), there=False)
    module = request_module(ApiKey.OFFSET_COMMIT, COMMIT_VERSION)

    def commit(group: int) -> dict[str, Any]:
        partitions = tuple(
            fill(
                module.OffsetCommitRequestPartition,
                partition_index=index,
                committed_offset=group + index,
                committed_metadata="",
            )
            for index in range(PARTITIONS)
        )
        topic = fill(module.OffsetCommitRequestTopic, name=TOPIC, partitions=partitions)
        return {
            "group_id": f"group-{group}",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": (topic,),
        }

    # Requests of one connection are answered one after the other, and a commit may be held back for
    # others to share its append.
    with ExitStack() as stack:
        callers = [stack.enter_context(Caller(caller.address)) for _ in range(BURST)]
        for first in range(0, groups, BURST):
            burst = list(zip(callers, range(first, min(first + BURST, groups)), strict=False))
            for one, group in burst:
                one.send(ApiKey.OFFSET_COMMIT, COMMIT_VERSION, **commit(group))
            for one, group in burst:
                for part in one.receive().topics[0].partitions:
                    if part.error_code is not ErrorCode.none:
                        raise BenchFailed(
                            f"{caller.address}: group-{group}: {part.error_code.name}"
                        )


def heartbeats(bench: Bench, *, quick: bool) -> Iterator[Result]:
    """Many members of one group with a connection each, once they have settled; a node of each side
    that stays up, a fresh group and topic for each run. What the node takes anyway is no part."""
    protocols = [one for one, name in zip(PROTOCOLS, _BEATS, strict=True) if bench.wanted(name)]
    if not protocols:
        return
    plan = QUICK if quick else FULL
    # Ours leaves three quarters of the files that it may have open to its logs.
    _need_files(4 * (int(plan["members"]) + SPARE_FILES))
    with running_sides(bench, ONE) as sides:
        for protocol in protocols:
            taken = Taken()
            for run in range(bench.plan.runs):
                for name, side in sides:
                    bench.say(f"groups/served/heartbeats/{protocol}, run {run + 1}")
                    share = _beating(side, protocol, run, plan)
                    taken.add(name, side.servers.label, heartbeats=share)
            title = f"groups/served/heartbeats/{protocol}"
            yield taken.result(title, "heartbeats", "%", LOWER)


def _need_files(count: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < count:
        raise BenchFailed(f"{count} open files are needed, {most} allowed (ulimit -Hn)")


def _beating(side: Side, protocol: str, run: int, plan: dict[str, float]) -> float:
    """Percent of a core for PER_MEMBERS."""
    pids = side.servers.pids()
    name = f"beats-{protocol}-{run}"
    with side.topic(name, PARTITIONS) as topic:
        idle = idle_cpu_share(pids, plan["beating_s"] / 3)
        job = {
            "bootstrap": side.bootstrap,
            "group": name,
            "topic": topic,
            "protocol": protocol,
            "members": plan["members"],
            "partitions": PARTITIONS,
            "timeout_s": SETTLE_LIMIT_S,
        }
        with held_child("gathering.py", job):
            # A full round before the first that counts: all beat at their pace by then.
            idle_cpu_share(pids, plan["beating_s"] / 3)
            beating = idle_cpu_share(pids, plan["beating_s"])
    return 100 * (beating - idle) * PER_MEMBERS / plan["members"]
