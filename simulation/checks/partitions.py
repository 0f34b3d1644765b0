"""What must always hold of partition logs, looked at in the live brokers and their disks."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from broker.replica import Replica
from broker.replica_manager import ReplicaManager
from simulation.checks import media as disks
from simulation.checks import require
from simulation.checks.logs import LogFacts, LogMirror

Key = tuple[UUID, int]


class _Watch:
    """What was seen last of one opened replica."""

    __slots__ = ("checked", "end", "epoch", "high_watermark", "leads", "mirror", "replica")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.mirror = LogMirror(replica.log, disks.peek)
        self.end = self.epoch = -1
        self.high_watermark = 0
        self.checked = 0
        self.leads = False


class PartitionChecks:
    """`counts` is what happened. Facts are kept by topic id and partition."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.facts: dict[Key, LogFacts] = {}
        self._watches: dict[tuple[int, Key], _Watch] = {}  # the newest of each
        self._by_replica: dict[Replica, _Watch] = {}

    def look(self, broker_id: int, manager: ReplicaManager) -> None:
        """After a step of a broker."""
        watches = self._by_replica
        for key, replica in manager._by_id.items():
            watch = watches.get(replica)
            if watch is None:
                watch = watches[replica] = self._watches[broker_id, key] = _Watch(replica)
            core = replica.core
            if (
                replica.log.end_offset != watch.end
                or core.leader_epoch != watch.epoch
                or core.high_watermark != watch.high_watermark
            ):
                self._changed(broker_id, key, watch)

    def _changed(self, broker_id: int, key: Key, watch: _Watch) -> None:
        replica = watch.replica
        core, log = replica.core, replica.log
        facts = self.facts.get(key)
        if facts is None:
            facts = self.facts[key] = LogFacts(f"{replica.name} ({key[0]})")
        if log.end_offset != watch.end:
            first = watch.end < 0
            cut, fresh = watch.mirror.update()
            if cut and not first:
                self.counts["truncations of partition logs"] += 1
            for before, batch in fresh:
                facts.appended(broker_id, before, batch)
            watch.end = log.end_offset
        if core.leader_epoch != watch.epoch:
            self._epoch_changed(broker_id, facts, watch)
        if core.high_watermark != watch.high_watermark:
            self._mark_moved(broker_id, key, facts, watch)

    def _epoch_changed(self, broker_id: int, facts: LogFacts, watch: _Watch) -> None:
        core = watch.replica.core
        require(
            core.leader_epoch > watch.epoch,
            "a replica's leader epoch never goes back",
            f"{facts.name}, broker {broker_id}: {watch.epoch}, then {core.leader_epoch}",
        )
        watch.epoch = core.leader_epoch
        watch.leads = core.is_leader
        # Another epoch may begin with a mark that its leader has not heard of yet.
        watch.high_watermark = watch.checked = min(watch.high_watermark, core.high_watermark)
        if core.is_leader:
            facts.leads(broker_id, core.leader_epoch, watch.mirror)

    def _mark_moved(self, broker_id: int, key: Key, facts: LogFacts, watch: _Watch) -> None:
        core = watch.replica.core
        mark = core.high_watermark
        if core.is_leader:
            require(
                mark >= watch.high_watermark,
                "a leader's high watermark never goes back",
                f"{facts.name}, broker {broker_id}, epoch {core.leader_epoch}: "
                f"{watch.high_watermark}, then {mark}",
            )
            facts.commits(broker_id, core.leader_epoch, watch.mirror, watch.checked, mark)
            watch.checked = mark
            self._everyone_has(broker_id, key, facts, watch)
        else:
            require(
                mark <= max(watch.end, watch.mirror.start),
                "the high watermark is within the log",
                f"{facts.name}, broker {broker_id}: {mark}, the log ends at {watch.end}",
            )
        watch.high_watermark = mark

    def _everyone_has(self, broker_id: int, key: Key, facts: LogFacts, watch: _Watch) -> None:
        """What a leader commits is in the log of every replica in sync."""
        core = watch.replica.core
        last = watch.mirror.ending_at_or_before(core.high_watermark)
        if last is None:
            return
        for member in core.isr:
            other = self._watches.get((member, key))
            if member == broker_id or other is None:
                continue
            held = other.mirror.find(last.base)
            require(
                (held is not None and held.id == last.id) or other.mirror.start > last.base,
                "committed is in the log of every replica in sync",
                f"{facts.name}: leader {broker_id} in epoch {core.leader_epoch} commits {last}, "
                f"{member} of {core.isr} has {held}",
            )
