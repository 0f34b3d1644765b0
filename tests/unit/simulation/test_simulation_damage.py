"""Which byte of a covered log is damaged, and what a power cut must leave of the synced offset."""

from types import SimpleNamespace

import pytest

from raft.config import DIRECTORY
from raft.synced_offset import SyncedOffset
from simulation.checks import Violation
from simulation.cluster import DATA
from simulation.damage import CoveredBatch, Durability, choose
from world.memory import Media

BATCHES = [CoveredBatch("/log", 100 * i, 100, i + 1) for i in range(40)]


def test_every_part_of_a_log_is_hit_and_its_end_most():
    hits = [choose(BATCHES, place / 10_000) for place in range(10_001)]
    assert {batch for batch, _ in hits} == set(BATCHES)
    assert all(0 <= position - batch.position < batch.length for batch, position in hits)
    assert hits[0] == (BATCHES[0], 0)
    assert hits[-1] == (BATCHES[-1], 3_999)
    assert sum(batch in BATCHES[-10:] for batch, _ in hits) > 5_500


@pytest.mark.parametrize("place", [0.0, 0.4999, 0.5, 1.0])
def test_one_byte_is_enough(place):
    batch = CoveredBatch("/log", 7, 1, 1)
    assert choose([batch], place) == (batch, 7)


class Machine(SimpleNamespace):
    """A controller as far as it is looked at, and a disk that says `written`."""

    def __init__(self, written):
        media = Media()
        disk = media.mount()
        disk.make_dirs(f"{DATA}/{DIRECTORY}")
        SyncedOffset(disk, f"{DATA}/{DIRECTORY}").advance(written)
        log = SimpleNamespace(synced_end=0, truncations=0)
        state = SimpleNamespace(can_vote=True, log=log)
        raft = SimpleNamespace(_started=True, stopped=False, core=SimpleNamespace(state=state))
        super().__init__(
            name="node-101",
            number=101,
            lives=1,
            running=True,
            disk=media,
            loop=SimpleNamespace(paused=False),
            machine_disk=SimpleNamespace(backlog_ms=0),
            node=SimpleNamespace(raft=raft),
            log=log,
        )

    def kill(self, *, power):
        self.running = not power


def seen(machine, ends, change=lambda machine, now_ms: None):
    """It is looked at each 100 ms; `ends` are its log's, each from a time on."""
    durability = Durability()
    for now_ms in range(0, 5_001, 100):
        machine.log.synced_end = [end for since, end in ends if since <= now_ms][-1]
        change(machine, now_ms)
        durability.look(machine, now_ms)
    return durability


@pytest.mark.parametrize(
    ("ends", "owed"),
    [
        ([(0, 7)], 7),
        ([(0, 7), (3_700, 9)], 9),
        ([(0, 7), (3_900, 9)], 7),
    ],
)
def test_what_was_durable_a_while_ago_is_owed(ends, owed):
    durability = seen(Machine(owed), ends)
    durability.cut_power(Machine(owed), 5_000)
    with pytest.raises(Violation, match=f"{owed - 1} is on the disk, {owed} was durable"):
        durability.cut_power(Machine(owed - 1), 5_000)


def test_nothing_is_owed_of_time_in_which_nothing_could_be_done():
    def paused(machine, now_ms):
        machine.loop.paused = now_ms == 4_000

    def busy(machine, now_ms):
        machine.machine_disk.backlog_ms = 100 * (now_ms == 4_000)

    def restarted(machine, now_ms):
        machine.lives = 1 + (now_ms >= 4_000)

    def cut_and_grown_again(machine, now_ms):
        machine.log.truncations = int(now_ms >= 4_050)

    for change in (paused, busy, restarted, cut_and_grown_again):
        machine = Machine(0)
        assert seen(machine, [(0, 7)], change).owed(machine, 5_000) == 0
    machine = Machine(0)
    durability = seen(machine, [(0, 7)])
    machine.running = False
    assert durability.owed(machine, 5_000) == 0
