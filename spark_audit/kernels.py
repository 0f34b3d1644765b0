"""Decodes the frequent metadata record types with numpy, all rows of one type at once.

A row that a kernel is not sure of is left out of its mask, and the record-at-a-time decoder
of `metadata.records` has the last word on it. Layouts: KIP-631 and its later versions
(PartitionRecord and PartitionChangeRecord 0-2, NoOpRecord 0).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from spark_audit.frames import Bytes, Ints, Mask, big_endian, uvarints

PARTITION, PARTITION_CHANGE, NO_OP = 3, 5, 20
_KNOWN_VERSIONS = {PARTITION: 2, PARTITION_CHANGE: 2, NO_OP: 0}
UNCHANGED = -2  # a leader that a change record leaves as it is
_MOST_TAGS = 16


@dataclass(slots=True)
class Kinds:
    """The frames (KIP-631: frame version, api key, record version) in front of n values."""

    api_key: Ints
    version: Ints
    body: Ints  # where the record's own bytes begin
    known: Mask  # framed soundly


def kinds(data: Bytes, position: Ints, length: Ints) -> Kinds:
    """Reads the frame of every value."""
    at = np.where(length >= 3, position, 0)
    frame, after, sound = uvarints(data, at)
    api_key, after, fine = uvarints(data, after)
    sound &= fine
    version, after, fine = uvarints(data, after)
    sound &= fine & (length >= 3) & (frame == 1) & (after <= position + length)
    return Kinds(api_key, version, after, sound)


@dataclass(slots=True)
class IntArrays:
    """For some rows, an array of int32 inside the bytes: its place and count (-1: absent)."""

    position: Ints
    count: Ints


@dataclass(slots=True)
class Partitions:
    """What a kernel read for n rows; `ok` says for which. A leader of -2 means unchanged."""

    ok: Mask
    partition: Ints
    topic: Ints  # where the 16 bytes of the topic id are
    leader: Ints
    isr: IntArrays
    replicas: IntArrays
    removing: IntArrays
    adding: IntArrays
    elr: IntArrays
    plain: Mask  # a change of leader and ISR alone
    leader_epoch: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    partition_epoch: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


def no_op(data: Bytes, body: Ints, end: Ints) -> Mask:
    """Which rows are a NoOpRecord: nothing but an empty tag section."""
    mask: Mask = (body + 1 == end) & (data[body] == 0)
    return mask


def _array(data: Bytes, at: Ints, end: Ints, width: int) -> tuple[Ints, Ints, Ints, Mask]:
    """Compact arrays: (first element, count or -1 for null, after, sound)."""
    size, start, sound = uvarints(data, at)
    count = size - 1
    after = start + np.maximum(count, 0) * width
    sound &= after <= end
    return start, count, np.where(sound, after, at), sound


def partition_record(data: Bytes, body: Ints, end: Ints, version: int) -> Partitions:
    """PartitionRecord v0-2."""
    ok = (end - body) >= 4 + 16 + 4 + 12 + 1
    at = np.where(ok, body, 0)
    limit = np.where(ok, end, len(data) - 64)
    here = at + 20
    replicas_at, replicas, here, fine = _array(data, here, limit, 4)
    ok &= fine & (replicas >= 0)
    isr_at, isr, here, fine = _array(data, here, limit, 4)
    ok &= fine & (isr >= 0)
    moving = []
    for _ in range(2):  # removing, adding
        start, count, here, fine = _array(data, here, limit, 4)
        ok &= fine & (count >= 0)
        moving.append(IntArrays(start, count))
    fixed = here
    ok &= fixed + 13 <= limit
    here = np.where(ok, fixed + 12, at)
    if version >= 1:
        _, count, here, fine = _array(data, here, limit, 16)
        ok &= fine & (count >= 0)
    tags: dict[int, tuple[str | None, int]] = {0: (None, 1)}
    if version >= 2:
        tags |= {1: ("elr", -4), 2: (None, -4)}
    read = _Tags(data, here, limit, ok, tags)
    ok &= read.ok
    fixed = np.where(ok, fixed, at)
    return Partitions(
        ok=ok,
        partition=big_endian(data, at, ">i4"),
        topic=at + 4,
        leader=big_endian(data, fixed, ">i4"),
        isr=IntArrays(isr_at, isr),
        replicas=IntArrays(replicas_at, replicas),
        removing=moving[0],
        adding=moving[1],
        elr=read.array("elr"),
        plain=np.zeros(len(at), dtype=np.bool_),
        leader_epoch=big_endian(data, fixed + 4, ">i4"),
        partition_epoch=big_endian(data, fixed + 8, ">i4"),
    )


def partition_change(data: Bytes, body: Ints, end: Ints, version: int) -> Partitions:
    """PartitionChangeRecord v0-2: all but partition and topic are tagged fields."""
    ok = (end - body) >= 4 + 16 + 1
    at = np.where(ok, body, 0)
    limit = np.where(ok, end, len(data) - 64)
    tags: dict[int, tuple[str | None, int]] = {
        0: ("isr", -4), 1: ("leader", 4), 2: ("replicas", -4), 3: ("removing", -4),
        4: ("adding", -4), 5: (None, 1),
    }  # fmt: skip
    if version >= 2:
        tags |= {6: ("elr", -4), 7: (None, -4)}
    if version >= 1:
        tags |= {8: (None, -16)}
    read = _Tags(data, at + 20, limit, ok, tags)
    leader_at = read.start["leader"]
    leader = np.full(len(at), UNCHANGED, dtype=np.int64)
    present = leader_at >= 0
    leader[present] = big_endian(data, leader_at[present], ">i4")
    return Partitions(
        ok=read.ok,
        partition=big_endian(data, at, ">i4"),
        topic=at + 4,
        leader=leader,
        isr=read.array("isr"),
        replicas=read.array("replicas"),
        removing=read.array("removing"),
        adding=read.array("adding"),
        elr=read.array("elr"),
        plain=~read.besides("isr", "leader"),
    )


class _Tags:
    """A tag section read for many rows: known tags of a known width, ascending, to the end.

    `tags` maps a tag to (name or None, width): a positive width is that of a plain field, a
    negative one that of an array's element. Anything else makes the row not ok.
    """

    def __init__(
        self,
        data: Bytes,
        at: Ints,
        limit: Ints,
        ok: Mask,
        tags: dict[int, tuple[str | None, int]],
    ) -> None:
        n = len(at)
        self.ok = ok.copy()
        names = [name for name, _ in tags.values() if name]
        self.start = {name: np.full(n, -1, dtype=np.int64) for name in names}
        self.count = {name: np.full(n, -1, dtype=np.int64) for name in names}
        self._data, self._limit, self._known = data, limit, tags
        self.others = np.zeros(n, dtype=np.bool_)  # rows with a tag that has no name here
        self._here = at.copy()
        section, self._here, fine = uvarints(data, self._here)
        self.ok &= fine & (section <= _MOST_TAGS)
        last = np.full(n, -1, dtype=np.int64)
        rows = np.flatnonzero(self.ok & (section > 0))
        number = 0
        while len(rows):
            rows = self._field(rows, last)
            number += 1
            rows = rows[section[rows] > number]
        self.ok &= self._here == limit

    def array(self, name: str) -> IntArrays:
        """A tagged array of each row; absent everywhere where the version has no such tag."""
        nowhere = np.full(len(self.ok), -1, dtype=np.int64)
        return IntArrays(self.start.get(name, nowhere), self.count.get(name, nowhere))

    def besides(self, *names: str) -> Mask:
        """The rows that have a tag of another name than these, or of none."""
        found = self.others.copy()
        for name in self.start.keys() - set(names):
            found |= self.start[name] >= 0
        return found

    def _field(self, rows: Ints, last: Ints) -> Ints:
        """One tagged field of each row; returns the rows that are still sound."""
        data = self._data
        tag, here, fine = uvarints(data, self._here[rows])
        size, here, fine_size = uvarints(data, here)
        after = here + size
        good = fine & fine_size & (tag > last[rows]) & (after <= self._limit[rows])
        last[rows] = tag
        known = np.zeros(len(rows), dtype=np.bool_)
        for number, (name, width) in self._known.items():
            which = np.flatnonzero(good & (tag == number))
            if not len(which):
                continue
            if width > 0:
                known[which] = size[which] == width
                start, count = here[which], size[which]
            else:
                start, count, stop, fine = _array(data, here[which], after[which], -width)
                known[which] = fine & (stop == after[which])
            if name:
                self.start[name][rows[which]] = start
                self.count[name][rows[which]] = count
            else:
                self.others[rows[which]] = True
        good &= known
        self._here[rows] = np.where(good, after, self._here[rows])
        self.ok[rows[~good]] = False
        return rows[good]


def supported(api_key: int, version: int) -> bool:
    """Whether a kernel here reads that type in that version."""
    return 0 <= version <= _KNOWN_VERSIONS.get(api_key, -1)


def int_lists(data: Bytes, arrays: IntArrays) -> tuple[Ints, npt.NDArray[np.int32]]:
    """All elements of the arrays in a row, and each array's length (0 for absent ones)."""
    lengths = np.maximum(arrays.count, 0)
    total = int(lengths.sum())
    if not total:
        return lengths, np.zeros(0, dtype=np.int32)
    ends = np.cumsum(lengths)
    inside = np.arange(total) - np.repeat(ends - lengths, lengths)
    places = np.repeat(arrays.position, lengths) + 4 * inside
    picked = np.ascontiguousarray(data[places[:, None] + np.arange(4)])
    return lengths, picked.view(">i4").ravel().astype(np.int32)


_ALPHABET = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", dtype=np.uint8
)


def uuid_texts(data: Bytes, at: Ints) -> Bytes:
    """Kafka's 22-character form of the 16 bytes at each place, as an (n, 22) array."""
    raw = np.zeros((len(at), 18), dtype=np.uint8)
    raw[:, :16] = data[at[:, None] + np.arange(16)]
    groups = raw.reshape(len(at), 6, 3)
    first, second, third = groups[:, :, 0], groups[:, :, 1], groups[:, :, 2]
    out = np.empty((len(at), 6, 4), dtype=np.uint8)
    out[:, :, 0] = first >> 2
    out[:, :, 1] = ((first & 3) << 4) | (second >> 4)
    out[:, :, 2] = ((second & 15) << 2) | (third >> 6)
    out[:, :, 3] = third & 63
    return np.ascontiguousarray(_ALPHABET[out.reshape(len(at), 24)[:, :22]])
