"""The log against a plain list, under random operations, kills and power losses."""

import asyncio
import random

import pytest
from examples import examples
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st
from storage_helpers import batch, read_all

from storage.config import LogConfig
from storage.log import Log
from wire.batch import iter_headers, read_header
from world.env import DiskFull
from world.memory import Media, memory_env
from world.real import real_env

OPERATIONS = (
    ["append"] * 6
    + ["append_many", "append_idempotent", "follow", "flush", "roll", "epoch", "read", "read"]
    + ["truncate", "delete_prefix", "checkpoint", "full_disk", "reopen", "kill", "crash", "crash"]
)
STEPS = st.lists(
    st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 2**32 - 1)), min_size=1, max_size=40
)


class Machine:
    """A log and what it should hold: whole batches as bytes, in order."""

    def __init__(self, env, directory, media=None, preallocate=False):
        self.env = env
        self.directory = directory
        self.media = media
        self.config = LogConfig(
            segment_bytes=2000,
            index_interval_bytes=150,
            retention_ms=-1,
            preallocate=preallocate,
        )
        self.batches = []
        self.start = 0
        self.epoch = 0
        self.sequence = 0
        self.producer_epoch = 0
        self.checkpoint = 0
        self.log = None

    async def open(self, clean=False):
        self.log = await Log.open(
            self.env,
            self.directory,
            self.config,
            recovery_point=self.checkpoint,
            clean=clean,
            log_start_offset=self.start,
        )
        self.log.on_lowered_recovery_point = self.lower_checkpoint
        assert self.log.recovery_point == self.log.end_offset

    async def lower_checkpoint(self):
        self.checkpoint = min(self.checkpoint, self.log.recovery_point)

    @property
    def end(self):
        return read_header(self.batches[-1]).next_offset if self.batches else self.start

    def check(self):
        log = self.log
        assert log.end_offset == max(self.end, self.start)
        assert log.log_start_offset == self.start
        kept = [b for b in self.batches if read_header(b).last_offset >= self.start]
        assert read_all(log) == b"".join(kept)
        epochs = {}
        for data in kept:
            header = read_header(data)
            epochs.setdefault(header.leader_epoch, max(header.base_offset, self.start))
        written = [entry for entry in log.epochs.entries() if entry[1] < log.end_offset]
        assert written == sorted(epochs.items())
        last = {}
        for data in self.batches:
            header = read_header(data)
            if header.producer_id >= 0:
                last[header.producer_id] = header
        for producer_id, header in last.items():
            if header.last_offset < self.start:
                continue  # its batch may be gone from the log
            known = log.producers.get(producer_id)
            assert known is not None
            assert (known.epoch, known.last_sequence, known.last_offset) == (
                header.producer_epoch,
                header.last_sequence,
                header.last_offset,
            )
        assert len(log.producers) <= 1

    async def step(self, name, number):
        chance = random.Random(number)
        await getattr(self, name)(chance)

    def take(self, buffers):
        self.batches += [bytes(one) for buffer in buffers for one in _split(buffer)]

    def new_batch(self, chance, **fields):
        return batch(
            chance.randrange(1, 5),
            size=chance.choice([0, 10, 60, 500]),
            time=chance.randrange(10_000),
            step=chance.choice([-1, 0, 1]),
            **fields,
        )

    async def append(self, chance):
        data = self.new_batch(chance)
        info = self.log.append_as_leader([data], self.epoch)
        assert info.base_offset == max(self.end, self.start)
        self.take([data])

    async def append_many(self, chance):
        data = [self.new_batch(chance) for _ in range(chance.randrange(1, 8))]
        data[0] = data[0] + self.new_batch(chance)
        self.log.append_as_leader(data, self.epoch)
        self.take(data)

    async def append_idempotent(self, chance):
        known = self.log.producers.get(7)
        first = 0 if known is None else known.last_sequence + 1
        data = self.new_batch(chance, producer_id=7, producer_epoch=0, base_sequence=first)
        copy = bytearray(data)
        info = self.log.append_as_leader([data, copy], self.epoch, check_producers=True)
        self.take([data])
        assert info.outcomes[1][:2] == (info.base_offset, info.last_offset)

    async def follow(self, chance):
        data = bytearray()
        offset = max(self.end, self.start)
        for _ in range(chance.randrange(1, 6)):
            one = self.new_batch(chance, base_offset=offset, leader_epoch=self.epoch)
            offset = read_header(one).next_offset
            data += one
        partial = self.new_batch(chance, base_offset=offset)[: chance.randrange(70)]
        self.log.append_as_follower(bytes(data + partial))
        self.take([data])

    async def flush(self, chance):
        await self.log.flush()
        assert self.log.recovery_point == self.log.end_offset

    async def roll(self, chance):
        self.log.roll()

    async def epoch(self, chance):  # shadowed by the attribute; see next_epoch
        raise AssertionError

    async def read(self, chance):
        log = self.log
        offset = chance.randrange(log.log_start_offset, log.end_offset + 1)
        upto = chance.randrange(log.log_start_offset, log.end_offset + 1)
        max_bytes = chance.choice([1, 100, 700, 5000])
        found = log.read(offset, max_bytes, upto=upto, min_one=chance.random() < 0.5)
        if found is None:
            return
        data = found.file.pread(found.length, found.position)
        headers = [header for _, header in iter_headers(data)]
        assert headers[-1].next_offset <= upto
        assert found.length <= max_bytes or len(headers) == 1
        whole = b"".join(self.batches)
        assert data in whole
        assert headers[0].base_offset <= offset <= headers[0].last_offset

    async def truncate(self, chance):
        offset = chance.randrange(self.start, self.log.end_offset + 1)
        self.log.truncate_to(offset)
        await self.log.settle()
        self.batches = [b for b in self.batches if read_header(b).next_offset <= offset]

    async def delete_prefix(self, chance):
        offset = chance.randrange(self.start, self.log.end_offset + 1)
        self.log.advance_log_start(offset)
        self.start = offset
        self.log.delete_retired_segments(0, self.log.end_offset)
        first = self.log.segments.peekitem(0)[0]
        self.batches = [b for b in self.batches if read_header(b).next_offset > first]
        await self.log.delete_due_files(10**12)

    async def checkpoint_now(self, chance):
        self.checkpoint = self.log.recovery_point

    async def full_disk(self, chance):
        if self.media is None:
            return
        self.media.faults.space_left = chance.randrange(100)
        try:
            data = self.new_batch(chance)
            self.log.append_as_leader([data], self.epoch)
            self.take([data])
        except DiskFull:
            pass
        finally:
            self.media.faults.space_left = None

    async def reopen(self, chance):
        await self.log.close(clean=True)
        await self.open(clean=True)
        assert not self.log.recovery.rebuilt
        assert self.log.recovery.damage is None

    async def kill(self, chance):
        await self.log.close(clean=False)
        if self.media is not None:
            self.media.kill()
            self.env = memory_env(disk=self.media.mount())
        self.checkpoint = chance.choice([0, self.checkpoint, self.log.recovery_point])
        await self.open()
        assert self.log.recovery.damage is None

    async def crash(self, chance):
        if self.media is None:
            return await self.kill(chance)
        safe = self.log.recovery_point
        self.media.lose_power(chance)
        self.env = memory_env(disk=self.media.mount())
        await self.open()
        assert self.log.recovery.damage is None
        assert self.log.end_offset >= safe
        end = self.log.end_offset
        self.batches = [b for b in self.batches if read_header(b).next_offset <= end]
        first = self.log.segments.peekitem(0)[0]
        self.batches = [b for b in self.batches if read_header(b).next_offset > first]
        return None


def _split(buffer):
    return [buffer[at : at + header.length] for at, header in iter_headers(buffer)]


async def play(machine, steps):
    await machine.open()
    for name, number in steps:
        if name == "epoch":
            machine.epoch += 1 + number % 3
        elif name == "checkpoint":
            await machine.checkpoint_now(None)
        else:
            await machine.step(name, number)
        machine.check()
    await machine.log.close()
    await machine.open(clean=True)
    machine.check()
    await machine.log.close(clean=False)


# The zeros of a trimmed, preallocated segment, back after a power loss.
ZEROS_BACK = [
    *[("append", 0), ("append", 0), ("append", 1), ("flush", 0), ("append", 0), ("append", 0)],
    *[("checkpoint", 0), ("crash", 42)],
]
ZEROS_BACK_SOONER = [
    *[("append", 0), ("append", 1), ("flush", 0), ("append", 0), ("checkpoint", 0), ("crash", 87)]
]
# The same, read from a recovery point before: what follows the zeros was synced.
ZEROS_BACK_BEFORE = [
    *[("append", 0)] * 10,
    *[("append", 1), ("flush", 0), ("append", 0), ("flush", 0), ("crash", 0)],
]


@example(ZEROS_BACK_BEFORE, True)
@example(ZEROS_BACK, True)
@example(ZEROS_BACK_SOONER, True)
@examples(400, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS, st.booleans())
def test_log_equals_a_list_on_a_disk_that_loses_power(steps, preallocate):
    media = Media()
    machine = Machine(memory_env(disk=media.mount()), "/log/t-0", media, preallocate)
    asyncio.run(play(machine, steps))


@pytest.mark.parametrize("seed", range(12))
def test_log_equals_a_list_on_a_real_disk(seed, tmp_path):
    chance = random.Random(seed)
    steps = [(chance.choice(OPERATIONS), chance.getrandbits(32)) for _ in range(30)]
    env = real_env(seed)
    asyncio.run(play(Machine(env, str(tmp_path / "t-0"), preallocate=bool(seed % 2)), steps))
