"""Damage of a controller's synced log: what the budget has to be, and what is owed after it.

A node may take for a torn tail what its disk's synced offset doesn't cover, and nothing else. So
that offset must not be far behind when the power goes, and damage below it must be noticed.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from raft.config import DIRECTORY
from raft.synced_offset import SyncedOffset
from simulation.checks import require
from simulation.cluster import DATA
from simulation.machine import Machine
from storage import names
from wire.batch import iter_headers
from wire.errors import DecodeError

_LAG_MS = 1_200
"""A second, a sync that is under way meanwhile, and its own."""
_BACKLOG_MS = 50
_YOUNG = 10  # batches


class CoveredBatch(NamedTuple):
    """A batch of the metadata log that the synced offset covers; `end` is exclusive."""

    path: str
    position: int
    length: int
    end: int


def synced_offset(machine: Machine) -> int:
    """What the disk of a machine that is down says."""
    return SyncedOffset(machine.disk.mount(), f"{DATA}/{DIRECTORY}").offset


def covered_batches(machine: Machine) -> tuple[int, list[CoveredBatch]]:
    """The synced offset on the disk of a machine that is down, and what it covers of the log."""
    synced, disk = synced_offset(machine), machine.disk.mount()
    directory = f"{DATA}/{DIRECTORY}"
    found = []
    for name in disk.list_dir(directory):
        if names.base_offset_of(name, names.LOG) is None:
            continue
        path = f"{directory}/{name}"
        try:
            for position, header in iter_headers(disk.read_bytes(path)):
                if header.next_offset <= synced:
                    found.append(CoveredBatch(path, position, header.length, header.next_offset))
        except DecodeError:
            continue  # behind an earlier damage
    return synced, found


def choose(batches: list[CoveredBatch], place: float) -> tuple[CoveredBatch, int]:
    """One of them and a position in its file, by a number from 0 to 1. Half of the numbers choose
    among the last ones, which the synced offset didn't cover a moment before."""
    if place >= 0.5:
        batches, place = batches[-_YOUNG:], place - 0.5
    size = sum(batch.length for batch in batches)
    left = min(size - 1, int(2 * place * size))
    for batch in batches:
        if left < batch.length:
            return batch, batch.position + left
        left -= batch.length
    raise AssertionError((place, size))


class Durability:
    """How far each controller's metadata log was durable a while ago, by what it said itself."""

    def __init__(self) -> None:
        # Life of the process and cuts of its log: with each begins another count.
        self._eras: dict[int, tuple[int, int]] = {}
        self._seen: dict[int, deque[tuple[int, int]]] = {}

    def look(self, machine: Machine, now_ms: int) -> None:
        """Now and then, at a machine whose process runs."""
        raft = None if machine.node is None else machine.node.raft
        seen = self._seen.setdefault(machine.number, deque())
        if (
            raft is None
            or not raft._started
            or not raft.core.state.can_vote  # an observer promises nothing, and doesn't sync
            or self._eras.get(machine.number) != _era(machine)
            or raft.stopped
            or (machine.loop is not None and machine.loop.paused)
            or machine.machine_disk.backlog_ms > _BACKLOG_MS
        ):
            # Where time passes and nothing can be done, or is done yet, nothing is owed.
            self._eras[machine.number] = _era(machine)
            seen.clear()
            return
        seen.append((now_ms, raft.core.state.log.synced_end))
        self._forget(seen, now_ms)

    @staticmethod
    def _forget(seen: deque[tuple[int, int]], now_ms: int) -> None:
        while len(seen) > 1 and seen[1][0] <= now_ms - _LAG_MS:
            seen.popleft()

    def owed(self, machine: Machine, now_ms: int) -> int:
        """What the synced offset must be at least if the machine loses power now."""
        seen = self._seen.get(machine.number)
        if not machine.running or not seen or self._eras[machine.number] != _era(machine):
            return 0
        self._forget(seen, now_ms)
        return seen[0][1] if seen[0][0] <= now_ms - _LAG_MS else 0

    def cut_power(self, machine: Machine, now_ms: int) -> None:
        """Does it. Raises Violation if the disk says less than it must."""
        owed = self.owed(machine, now_ms)
        machine.kill(power=True)
        if owed:
            found = synced_offset(machine)
            require(
                found >= owed,
                "a synced offset is durable a second later",
                f"{machine.name}: {found} is on the disk, {owed} was durable {_LAG_MS} ms before",
            )


def _era(machine: Machine) -> tuple[int, int]:
    """A log that is cut for a leader, and grows again at once, has its offset lowered first."""
    raft = None if machine.node is None else machine.node.raft
    cuts = 0 if raft is None or not raft._started else raft.core.state.log.truncations
    return machine.lives, cuts
