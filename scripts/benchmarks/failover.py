"""From the end of the active controller to the next committed topic.

Three controllers without brokers, and a client that was connected to all of them before. It asks
the two that are left for a topic, again and again, until one of them says that it is committed.
"""

from __future__ import annotations

import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

from benchmarks import calls
from benchmarks.measures import Bench, Taken
from benchmarks.networks import Network
from benchmarks.quorums import FIRST_ID, JvmQuorum, PykraftQuorum, Quorum
from benchmarks.servers import BenchFailed
from benchmarks.stats import LOWER, Result, percentile
from wire.apis import ApiKey, ErrorCode

KINDS = ("kill", "pause", "cut")
FIGURES = ("p50", "p99")
# A node that doesn't lead answers at once; asked more often, it has less time to become a leader.
RETRY_S = 0.005
TIMEOUT_S = 60.0
COMMITTED = (ErrorCode.none, ErrorCode.topic_already_exists)
# A JVM is long in starting again: ten minutes for so many kills.
JVM_FAULTS_MAX = 50


def all_names() -> list[str]:
    """Every figure."""
    return [f"failover/{kind}/{figure}" for kind in KINDS for figure in FIGURES]


class Fault:
    """One way to lose the leader: `begin` does it, `end` brings the node back."""

    def __init__(
        self, quorum: Quorum, begin: Callable[[int], None], end: Callable[[int], None]
    ) -> None:
        self.quorum, self.begin, self.end = quorum, begin, end


def _restart(quorum: Quorum, node_id: int) -> None:
    quorum.processes[node_id].wait()
    quorum.start(node_id)


def _fault(kind: str, quorum: Quorum, network: Network | None) -> Fault:
    if kind == "kill":
        kill = partial(quorum.signal, number=signal.SIGKILL)
        return Fault(quorum, kill, partial(_restart, quorum))
    if kind == "pause":
        pause = partial(quorum.signal, number=signal.SIGSTOP)
        return Fault(quorum, pause, partial(quorum.signal, number=signal.SIGCONT))
    assert network is not None
    return Fault(
        quorum,
        lambda node_id: network.cut(node_id - FIRST_ID),
        lambda node_id: network.heal(node_id - FIRST_ID),
    )


def failover(bench: Bench, kind: str) -> Iterator[Result]:
    """As many faults as the plan says on each side in turn, on quorums that stay up."""
    names = {figure: f"failover/{kind}/{figure}" for figure in FIGURES}
    if not any(bench.wanted(name) for name in names.values()):
        return
    taken, times = Taken(), {}
    with ExitStack() as stack:
        faults = {side: _started(bench, kind, side, stack) for side in _sides(bench)}
        for number in range(bench.plan.faults):
            for side, fault in faults.items():
                if side != "ours" and number >= JVM_FAULTS_MAX:
                    continue
                bench.say(f"failover/{kind}, {fault.quorum.label}, {number + 1}")
                times.setdefault(side, []).append(_once(fault, f"{kind}-{number}") * 1e3)
        for side, fault in faults.items():
            for value in times[side]:
                taken.add(side, fault.quorum.label, p50=value)
            taken.add(side, fault.quorum.label, p99=percentile(times[side], 99))
    for figure, name in names.items():
        if bench.wanted(name):
            yield taken.result(name, figure, "ms", LOWER, against="kafka")


def _sides(bench: Bench) -> list[str]:
    return ["ours", *(["kafka"] if "kafka" in bench.peers else [])]


def _started(bench: Bench, kind: str, side: str, stack: ExitStack) -> Fault:
    bench.say(f"failover/{kind}: starting {side}")
    directory, port = bench.place()
    make = PykraftQuorum if side == "ours" else JvmQuorum
    if kind == "cut":
        network = stack.enter_context(Network(3, number=_sides(bench).index(side)))
        quorum = make(
            directory,
            port,
            hosts=network.hosts,
            within=lambda node_id, command: network.within(node_id - FIRST_ID, command),
        )
    else:
        network, quorum = None, make(directory, port)
    stack.callback(quorum.stop)
    quorum.prepare()
    quorum.start()
    quorum.settle()
    return _fault(kind, quorum, network)


def _once(fault: Fault, name: str) -> float:
    """One fault; seconds from it to the next committed topic. The node is back at the end."""
    quorum = fault.quorum
    leader = quorum.leader()
    with ExitStack() as stack:
        callers = {
            node_id: stack.enter_context(calls.Caller(address))
            for node_id, address in quorum.addresses.items()
        }
        calls.create_topics(callers[leader], [f"{name}-before"])
        left = [caller for node_id, caller in callers.items() if node_id != leader]
        begun = time.perf_counter()
        fault.begin(leader)
        try:
            next_topic(left, f"{name}-after")
            seconds = time.perf_counter() - begun
        finally:
            fault.end(leader)
    return seconds


def next_topic(
    callers: list[calls.Caller], name: str, timeout_s: float = TIMEOUT_S
) -> calls.Caller:
    """Returns when one of them has committed the topic, and which. BenchFailed if none does in
    time."""
    request = calls.topics_of([name])
    due = dict.fromkeys(callers, 0.0)
    asked: dict[calls.Caller, None] = {}
    told: dict[str, None] = {}
    deadline = time.monotonic() + timeout_s
    while (now := time.monotonic()) < deadline:
        for caller in callers:
            if caller not in asked and due[caller] <= now:
                caller.send(ApiKey.CREATE_TOPICS, calls.CREATE_TOPICS_VERSION, **request)
                asked[caller] = None
        readable, _, _ = select.select([caller.socket for caller in asked], [], [], RETRY_S)
        for caller in [caller for caller in asked if caller.socket in readable]:
            (topic,) = caller.receive().topics
            if topic.error_code in COMMITTED:
                return caller
            told[str(ErrorCode(topic.error_code).name.upper())] = None
            del asked[caller]
            due[caller] = time.monotonic() + RETRY_S
    raise BenchFailed(
        f"no topic was committed in {timeout_s:.0f} s; answers: {', '.join(told) or 'none'}"
    )
