"""Applies a run of partition changes at once: the bulk of a busy cluster's log.

Only changes of leader and ISR qualify. The states in between are checked with numpy; where one
of them is odd, or a partition is unknown, the run is handed back to be replayed record by record,
so that findings come from one place (`metadata.soundness`).
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import numpy as np

from metadata.image import MetadataImage, PartitionRegistration
from metadata.records import PartitionRecord
from spark_audit import kernels
from spark_audit.frames import Bytes, Ints, Mask
from spark_audit.kernels import IntArrays
from spark_audit.rows import Rows, sort_rows

FEWEST = 64  # a shorter run is not worth it


@dataclass(slots=True)
class Changes:
    """The plain partition changes of a chunk, in the order of its rows."""

    data: Bytes
    rows: Ints
    topic: Ints
    partition: Ints
    leader: Ints
    isr: IntArrays

    def between(self, start: int, stop: int) -> Changes:
        """The changes in rows start..stop."""
        low, high = np.searchsorted(self.rows, [start, stop])
        part = slice(int(low), int(high))
        isr = IntArrays(self.isr.position[part], self.isr.count[part])
        return Changes(
            self.data, self.rows[part], self.topic[part], self.partition[part],
            self.leader[part], isr,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.rows)


def plain_changes(rows: Rows) -> Changes:
    """Finds the changes of leader and ISR alone; empty where there are few."""
    kinds = rows.kinds()
    parts = []
    if int((kinds.known & (kinds.api_key == kernels.PARTITION_CHANGE)).sum()) >= FEWEST:
        for api_key, _, which, part in sort_rows(rows, kinds).kernel:
            if api_key == kernels.PARTITION_CHANGE and part is not None:
                keep = part.plain
                isr = IntArrays(part.isr.position[keep], part.isr.count[keep])
                parts.append(
                    (which[keep], part.topic[keep], part.partition[keep], part.leader[keep],
                     isr.position, isr.count)
                )  # fmt: skip
    if not parts:
        none = np.zeros(0, dtype=np.int64)
        return Changes(rows.data, none, none, none, none, IntArrays(none, none))
    which, topic, partition, leader, position, count = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    order = np.argsort(which, kind="stable")
    isr = IntArrays(position[order], count[order])
    return Changes(
        rows.data, which[order], topic[order], partition[order], leader[order], isr
    )  # fmt: skip


def apply_changes(image: MetadataImage, changes: Changes) -> MetadataImage | None:
    """The image after a run of changes; None where they must be looked at one by one."""
    keys = np.empty((len(changes), 20), dtype=np.uint8)
    keys[:, :16] = changes.data[changes.topic[:, None] + np.arange(16)]
    keys[:, 16:] = changes.partition.astype(">i4").view(np.uint8).reshape(-1, 4)
    distinct, group = np.unique(keys.view("V20").ravel(), return_inverse=True)
    found = _registrations(image, distinct)
    if found is None:
        return None
    run = _Run(changes, group, [before for _, _, before in found])
    if run.odd():
        return None
    for number, (topic, index, before) in enumerate(found):
        image = image.apply(run.after(number, topic, index, before))
    return image


def _registrations(
    image: MetadataImage, distinct: Ints
) -> list[tuple[UUID, int, PartitionRegistration]] | None:
    found = []
    for key in distinct:
        raw = bytes(key)
        topic = image.topic_by_id(UUID(bytes=raw[:16]))
        index = int.from_bytes(raw[16:], "big", signed=True)
        before = None if topic is None else topic.partitions.get(index)
        if topic is None or before is None:
            return None
        if before.directories and len(before.directories) != len(before.replicas):
            return None
        found.append((topic.id, index, before))
    return found


class _Run:
    """The changes sorted by partition, with what each leaves in force."""

    def __init__(self, changes: Changes, group: Ints, before: list[PartitionRegistration]) -> None:
        order = np.argsort(group, kind="stable")
        self.group = group[order]
        self._before = before
        leader, count = changes.leader[order], changes.isr.count[order]
        # Lists of ISR members: one for each change, then one for each partition as it was.
        lengths, flat = kernels.int_lists(
            changes.data, IntArrays(changes.isr.position[order], count)
        )
        earlier = [len(one.isr) for one in before]
        self.lengths = np.concatenate([lengths, np.array(earlier, dtype=np.int64)])
        members = [member for one in before for member in one.isr]
        self.members = np.concatenate([flat, np.array(members, dtype=np.int32)])
        self.starts = np.cumsum(self.lengths) - self.lengths
        n = len(order)
        places = np.arange(n)
        first = np.searchsorted(self.group, np.arange(len(before)))
        self.last = np.append(first[1:], n) - 1
        self.changes = self.last - first + 1
        self.isr = _latest(places, count >= 0, first[self.group], n + self.group)
        stated = leader != kernels.UNCHANGED
        held = _latest(places, stated, first[self.group], np.full(n, -1))
        at_first = np.array([one.leader for one in before], dtype=np.int64)
        self.leader = np.where(held >= 0, leader[held], at_first[self.group])
        self.elections = np.add.reduceat(stated.astype(np.int64), first)

    def odd(self) -> bool:
        """Whether a state in between has its leader outside the ISR, or ISR members that are
        no replicas."""
        lengths = self.lengths[self.isr]
        change = np.repeat(np.arange(len(self.isr)), lengths)
        inside = np.arange(len(change)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        member = self.members[self.starts[self.isr][change] + inside]
        led = np.zeros(len(self.isr), dtype=np.bool_)
        led[change[member == self.leader[change]]] = True
        if bool(((self.leader >= 0) & ~led).any()):
            return True
        width = max(len(one.replicas) for one in self._before)
        replicas = np.full((len(self._before), width), -1, dtype=np.int64)
        for number, one in enumerate(self._before):
            replicas[number, : len(one.replicas)] = one.replicas
        known: Mask = (replicas[self.group[change]] == member[:, None]).any(axis=1)
        return not bool(known.all())

    def after(
        self, number: int, topic: UUID, index: int, before: PartitionRegistration
    ) -> PartitionRecord:
        """One partition after the run, stated in full."""
        last = self.last[number]
        listed = self.isr[last]
        start = self.starts[listed]
        return PartitionRecord(
            partition_id=index,
            topic_id=topic,
            replicas=before.replicas,
            isr=tuple(self.members[start : start + self.lengths[listed]].tolist()),
            removing_replicas=before.removing,
            adding_replicas=before.adding,
            leader=int(self.leader[last]),
            leader_recovery_state=before.leader_recovery_state,
            leader_epoch=before.leader_epoch + int(self.elections[number]),
            partition_epoch=before.partition_epoch + int(self.changes[number]),
            directories=before.directories,
            eligible_leader_replicas=before.elr,
            last_known_elr=before.last_known_elr,
        )


def _latest(places: Ints, stated: Mask, first: Ints, otherwise: Ints) -> Ints:
    """For each change the latest one up to it, in its partition, that states something."""
    latest = np.maximum.accumulate(np.where(stated, places, -1))
    return np.where(latest >= first, latest, otherwise)
