"""One coordinator's work: `grouping.py '{"groups": G, "offsets": N, "members": M}'`.

Loads G groups of N committed offsets each, as a partition of `__consumer_offsets` has them. Then M
members join one group, beat every 3 s and commit. Prints the seconds and MB of loading, the share
of a core that the heartbeats take, the time of a commit, and that of all joins and syncs of one
rebalance; all of it processor time.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psutil

from broker.groups import events as e
from broker.groups.coordinator import GroupCoordinator
from broker.groups.effects import Answer, Append
from broker.groups.regexes import compile_regex
from broker.groups.settings import GroupSettings
from wire.group_records import OffsetCommitKey, OffsetCommitValue, encode_key, encode_value

WALL_MS = 1_700_000_000_000
HEARTBEAT_MS = 3_000
TOPIC_ID = UUID(int=1)
PART = 10_000


def records(groups: int, offsets: int) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a log, group by group."""
    for group in range(groups):
        for partition in range(offsets):
            key = OffsetCommitKey(f"group-{group}", "a-topic-of-many-groups", partition)
            value = OffsetCommitValue(
                1_000_000 + group + partition, 5, "", WALL_MS + group, topic_id=TOPIC_ID
            )
            yield encode_key(key), encode_value(value)


class Driver:
    """The coordinator with a log that commits at once."""

    def __init__(self) -> None:
        ids = iter(range(1 << 60))
        self.core = GroupCoordinator(GroupSettings(), lambda: UUID(int=next(ids)), compile_regex)
        self.answers: dict[int, Any] = {}
        self.now_ms = 0
        self._end = 0
        self._callers = 0

    def tell(self, event: e.Event) -> None:
        for effect in self.core.handle(event, self.now_ms, WALL_MS + self.now_ms):
            if isinstance(effect, Answer):
                self.answers[effect.caller] = effect.value
            elif isinstance(effect, Append):
                self._end += len(effect.records)
                self.tell(e.Appended(effect.token, self._end))
                self.tell(e.Committed(self._end))

    def ask(self, make: Any, *args: Any) -> int:
        self._callers += 1
        self.tell(make(self._callers, *args))
        return self._callers

    def advance(self, ms: int) -> None:
        end = self.now_ms + ms
        while (deadline := self.core.next_deadline_ms()) is not None and deadline <= end:
            self.now_ms = max(self.now_ms, deadline)
            self.tell(e.Tick())
        self.now_ms = end


def load(driver: Driver, job: dict[str, int]) -> dict[str, float]:
    """Seconds and MB; making the records counts for neither."""
    process = psutil.Process()
    gc.collect()
    before, used = process.memory_info().rss, 0.0
    part: list[tuple[bytes, bytes]] = []
    for offset, record in enumerate(records(job["groups"], job["offsets"])):
        part.append(record)
        if len(part) == PART:
            used += replayed(driver, offset, part)
            part = []
    used += replayed(driver, 0, part)
    began = time.process_time()
    driver.tell(e.Loaded())
    used += time.process_time() - began
    gc.collect()
    return {"load": used, "memory": (process.memory_info().rss - before) / 1e6}


def replayed(driver: Driver, offset: int, part: list[tuple[bytes, bytes]]) -> float:
    began = time.process_time()
    for key, value in part:
        driver.core.replay(offset, key, value, e.NO_PRODUCER)
    return time.process_time() - began


def join(driver: Driver, member_id: str) -> int:
    protocols = (e.Protocol("range", bytes(64)),)
    timeouts = 45_000, 300_000
    return driver.ask(
        e.JoinGroup, "g", member_id, None, "c", "/::1", *timeouts, "consumer", protocols
    )


def members(driver: Driver, count: int) -> dict[str, float]:
    """A rebalance of that many, then five rounds of heartbeats and a commit by each."""
    ids = [driver.answers[join(driver, "")].member_id for _ in range(count)]
    began = time.process_time()
    callers = [join(driver, member_id) for member_id in ids]
    used = time.process_time() - began
    while callers[-1] not in driver.answers:
        driver.advance(3_000)
    began = time.process_time()
    assigned = tuple((member_id, bytes(64)) for member_id in ids)
    for member_id in ids:
        given = assigned if member_id == ids[0] else ()
        driver.ask(e.SyncGroup, "g", 1, member_id, None, "consumer", "range", given)
    used += time.process_time() - began
    rounds = 5
    beats = commits = 0.0
    for _ in range(rounds):
        began = time.process_time()
        for member_id in ids:
            driver.ask(e.Heartbeat, "g", 1, member_id, None)
        driver.advance(HEARTBEAT_MS)
        beats += time.process_time() - began
    for member_id in ids:
        one = (e.CommittedOffset("t", 0, 1, topic_id=TOPIC_ID),)
        began = time.process_time()
        driver.ask(e.OffsetCommit, "g", member_id, 1, None, one)
        commits += time.process_time() - began
    return {
        "rebalance": used * 1e3,
        "heartbeats": 100 * beats / rounds / (HEARTBEAT_MS / 1e3),
        "commit": commits / count * 1e6,
    }


def main(job: dict[str, int]) -> dict[str, float]:
    """The figures of one run."""
    driver = Driver()
    figures = load(driver, job)
    return figures | members(driver, job["members"])


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
