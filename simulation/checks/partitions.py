"""What must always hold of partition logs, looked at in the live brokers and their disks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from uuid import UUID

from broker.partition import PartitionCore
from broker.partition_events import Effect, Event
from broker.replica import Replica
from broker.replica_manager import ReplicaManager
from metadata.image import MetadataImage
from simulation.checks import media as disks
from simulation.checks import require
from simulation.checks.logs import Batch, LogFacts, LogMirror

Key = tuple[UUID, int]


class _Watch:
    """What was seen last of one opened replica."""

    __slots__ = (
        "before",
        "end",
        "epoch",
        "high_watermark",
        "mirror",
        "registered",
        "replica",
    )

    def __init__(self, replica: Replica, before: _Watch | None, registered: int) -> None:
        self.replica = replica
        # The life before, whose registration is in force until there is one of another epoch.
        self.before: LogMirror | None = None if before is None else before.mirror
        self.registered = registered
        self.mirror: LogMirror = LogMirror(replica.log, disks.peek)
        self.end = self.epoch = -1
        self.high_watermark = 0


class _Hosted(dict[Key, Replica]):
    """The replicas that a broker hosts in one life, which note in `touched` whatever may have
    changed: one that is put in, and one whose core is told something. A core has no other door."""

    def __init__(self, replicas: dict[Key, Replica]) -> None:
        super().__init__()
        self.touched: dict[Replica, Key] = {}
        # The ISRs under which the mark moved in this step, which may take in several changes.
        self.moved_under: dict[Replica, list[tuple[int, ...]]] = {}
        for key, replica in replicas.items():
            self[key] = replica

    def __setitem__(self, key: Key, replica: Replica) -> None:
        super().__setitem__(key, replica)
        touched, moved_under = self.touched, self.moved_under
        touched[replica] = key
        core = replica.core
        handle = core.handle

        def noted(event: Event, now_ms: int) -> list[Effect]:
            touched[replica] = key
            mark, isr = core.high_watermark, core.isr
            effects = handle(event, now_ms)
            if core.is_leader and core.high_watermark != mark:
                # By an event that changes it, too, under the one before or after.
                moved_under.setdefault(replica, []).append(max(isr, core.isr, key=len))
            return effects

        replica.core.handle = noted  # type: ignore[method-assign]


class PartitionChecks:
    """`newest` is the newest committed image, `min_isr` min.insync.replicas of every topic.
    `counts` is what happened. Facts are kept by topic id and partition."""

    def __init__(self, newest: Callable[[], MetadataImage | None], min_isr: int) -> None:
        self._newest = newest
        self._min_isr = min_isr
        self.counts: Counter[str] = Counter()
        self.facts: dict[Key, LogFacts] = {}
        self._watches: dict[tuple[int, Key], _Watch] = {}  # the newest of each
        self._by_replica: dict[Replica, _Watch] = {}

    def look(self, broker_id: int, manager: ReplicaManager, *, wrote: bool) -> None:
        """After a step of a broker. `wrote` where it changed something on its disk: without that
        no log is longer or shorter than before."""
        hosted = manager._by_id
        if not isinstance(hosted, _Hosted):
            hosted = manager._by_id = _Hosted(hosted)
        touched, watches = hosted.touched, self._by_replica
        if wrote:
            for key, replica in hosted.items():
                watch = watches.get(replica)
                if watch is None or replica.log.end_offset != watch.end:
                    touched[replica] = key
        if touched:
            for replica, key in touched.items():
                if not replica.removed:
                    under = hosted.moved_under.get(replica, [])
                    self._look_at(broker_id, key, replica, under)
            touched.clear()
            hosted.moved_under.clear()

    def _look_at(
        self, broker_id: int, key: Key, replica: Replica, moved_under: list[tuple[int, ...]]
    ) -> None:
        watch = self._by_replica.get(replica)
        if watch is None:
            before = self._watches.get((broker_id, key))
            watch = _Watch(replica, before, self._registered(broker_id))
            self._by_replica[replica] = self._watches[broker_id, key] = watch
        core = replica.core
        if (
            replica.log.end_offset != watch.end
            or core.leader_epoch != watch.epoch
            or core.high_watermark != watch.high_watermark
        ):
            self._changed(broker_id, key, watch, moved_under)

    def _changed(
        self, broker_id: int, key: Key, watch: _Watch, moved_under: list[tuple[int, ...]]
    ) -> None:
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
            if core.is_leader:
                self._enough_in_sync(broker_id, facts, core, moved_under)
        core.check_invariants()

    def _epoch_changed(self, broker_id: int, facts: LogFacts, watch: _Watch) -> None:
        core = watch.replica.core
        require(
            core.leader_epoch > watch.epoch,
            "a replica's leader epoch never goes back",
            f"{facts.name}, broker {broker_id}: {watch.epoch}, then {core.leader_epoch}",
        )
        watch.epoch = core.leader_epoch
        if core.is_leader:
            facts.leads(broker_id, core.leader_epoch, watch.mirror)

    def _mark_moved(self, broker_id: int, key: Key, facts: LogFacts, watch: _Watch) -> None:
        """Leader or follower: what it takes for committed is so, and it never thinks again.

        A follower cuts its log only where a later leader's leaves it (KIP-101), and that leader has
        all that was committed: its mark stays, too.
        """
        core = watch.replica.core
        mark = core.high_watermark
        require(
            mark >= watch.high_watermark,
            "a replica's high watermark never goes back",
            f"{facts.name}, broker {broker_id}, {core.role.value} in epoch {core.leader_epoch}: "
            f"{watch.high_watermark}, then {mark}",
        )
        facts.commits(broker_id, core.leader_epoch, watch.mirror, watch.high_watermark, mark)
        watch.high_watermark = mark
        if core.is_leader:
            self._everyone_has(broker_id, key, facts, watch)

    def _enough_in_sync(
        self,
        broker_id: int,
        facts: LogFacts,
        core: PartitionCore,
        moved_under: list[tuple[int, ...]],
    ) -> None:
        needed = min(self._min_isr, len(core.replicas))
        for isr in moved_under or [core.isr]:
            require(
                len(isr) >= needed,
                "nothing is committed under min.insync.replicas",
                f"{facts.name}: leader {broker_id} in epoch {core.leader_epoch}, ISR {isr}",
            )

    def _registered(self, broker_id: int) -> int:
        """The epoch under which the controllers know a broker, -1 for none."""
        image = self._newest()
        broker = None if image is None else image.brokers.get(broker_id)
        return -1 if broker is None else broker.epoch

    def _everyone_has(self, broker_id: int, key: Key, facts: LogFacts, watch: _Watch) -> None:
        """What a leader commits is in the log of every replica in sync, by the leader's word or by
        the controllers'.

        A replica may have lost it since it fetched it, with its power, while the controllers still
        count on the life before.
        """
        core = watch.replica.core
        last = watch.mirror.ending_at_or_before(core.high_watermark)
        if last is None:
            return
        for member in dict.fromkeys((*core.isr, *self._committed_isr(key, core))):
            other = self._watches.get((member, key))
            held = None if other is None else other.mirror.find(last.base)
            has = other is not None and (
                (held is not None and held.id == last.id)
                or other.mirror.start > last.base
                or (held is None and last.next <= other.mirror.thin_below)
            )
            if not has and other is not None and other.before is not None:
                held = other.before.find(last.base)
                known = self._registered(member) == other.registered
                has = known and held is not None and held.id == last.id
            require(
                has,
                "committed is in the log of every replica in sync",
                f"{facts.name}: leader {broker_id} in epoch {core.leader_epoch} commits {last}, "
                f"{member} of {core.isr} has {held}",
            )

    def _committed_isr(self, key: Key, core: PartitionCore) -> tuple[int, ...]:
        """The ISR by the newest image, where that is of the leader's epoch, and not behind it."""
        image = self._newest()
        topic = None if image is None else image.topics_by_id.get(key[0])
        partition = None if topic is None else topic.partitions.get(key[1])
        if (
            partition is None
            or partition.leader_epoch != core.leader_epoch
            or partition.partition_epoch < core.partition_epoch
        ):
            return ()
        return partition.isr

    def differences(self) -> list[str]:
        """Replicas of one partition whose logs differ, as each broker last had them; of compacted
        ones only what nobody may have cleaned yet."""
        found: list[str] = []
        first: dict[Key, tuple[int, list[Batch]]] = {}
        thin: dict[Key, int] = {}
        for (_, key), watch in self._watches.items():
            thin[key] = max(watch.mirror.thin_below, thin.get(key, 0))
        for (broker_id, key), watch in self._watches.items():
            mine = watch.mirror.between(thin[key], watch.mirror.end)
            known_id, known = first.setdefault(key, (broker_id, mine))
            if [batch.id for batch in mine] != [batch.id for batch in known]:
                name = watch.replica.name
                found.append(f"{name}: broker {known_id} has {known[-1:]}, {broker_id} {mine[-1:]}")
        return found
