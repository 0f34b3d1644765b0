"""The simulated disk and the ways in which a process and its machine end."""

import asyncio

import pytest

from simulation.machine import Machine
from simulation.network import Network
from simulation.world import World
from world.env import DiskFull, SyncFailed

MADE = []


@pytest.fixture(autouse=True)
def let_go():
    """Ends the worlds that a test made, as Simulation.close does."""
    yield
    for rig in MADE:
        rig.machine.let_go()
    MADE.clear()


class Rig:
    """One machine; `do` runs a coroutine function of its env in its process."""

    def __init__(self, seed=1):
        MADE.append(self)
        self.world = World(seed)
        self.errors = []
        self.machine = Machine(self.world, Network(self.world), "m", 1, self.main, self.on_error)
        self.machine.start()

    async def main(self, machine, env):
        await asyncio.get_running_loop().create_future()

    def on_error(self, machine, message, error):
        self.errors.append((message, error))

    def do(self, work):
        return self.machine.loop.create_task(work(self.machine.env))

    def run(self, ms):
        scheduler = self.world.scheduler
        scheduler.run_until(scheduler.now_us + ms * 1000)

    def content(self, path):
        if not self.machine.running:
            self.machine.start()
        disk = self.machine.env.disk
        return disk.read_bytes(path) if disk.exists(path) else None


async def write_synced(env):
    file = env.disk.open("/f", create=True)
    file.append([b"synced"])
    began_ms = asyncio.get_running_loop().time()
    await file.sync()
    await env.disk.sync_dir("/")
    took_s = asyncio.get_running_loop().time() - began_ms
    file.append([b" and not"])
    return took_s


def test_a_sync_takes_time_and_more_when_told_so():
    rig = Rig()
    task = rig.do(write_synced)
    rig.run(100)
    assert 0.0001 < task.result() < 0.05
    rig.machine.slow_fsync(400)
    task = rig.do(write_synced)
    rig.run(3_000)
    assert 0.4 < task.result() < 1.0


def test_a_killed_process_leaves_all_that_it_wrote():
    rig = Rig()
    rig.do(write_synced)
    rig.run(100)
    rig.machine.kill()
    assert rig.content("/f") == b"synced and not"


def test_power_loss_takes_what_was_not_synced():
    contents = {}
    for seed in range(40):
        rig = Rig(seed)
        rig.do(write_synced)
        rig.run(100)
        rig.machine.kill(power=True)
        found = rig.content("/f")
        assert found[:6] == b"synced"
        contents[found] = None
    assert b"synced" in contents
    assert b"synced and not" in contents


def test_power_loss_during_a_sync_may_lose_it():
    contents = {}
    for seed in range(40):
        rig = Rig(seed)
        rig.machine.slow_fsync(400)
        rig.do(write_synced)
        rig.run(1)
        rig.machine.kill(power=True)
        contents[rig.content("/f")] = None
    assert None in contents  # not even its name


def test_dying_at_an_operation_leaves_what_came_before_it():
    async def work(env):
        for name in "abcdef":
            env.disk.open(f"/{name}", create=True)

    rig = Rig()
    rig.machine.kill(ops=3)
    rig.do(work)
    rig.run(1)
    assert not rig.machine.running
    assert sorted(rig.machine.disk.files()) == ["/a", "/b", "/c"]
    assert rig.errors == []


def test_dying_within_a_write_leaves_a_first_part_of_it():
    async def work(env):
        env.disk.open("/f", create=True).append([b"0123456789"])

    contents = {}
    for seed in range(60):
        rig = Rig(seed)
        rig.machine.kill(ops=1)
        rig.do(work)
        rig.run(1)
        contents[rig.content("/f")] = None
    assert len(contents) > 5
    assert all(b"0123456789".startswith(content) for content in contents)


def test_blocking_work_is_broken_off_by_a_kill():
    async def work(env):
        for name in "abcdef":
            env.disk.open(f"/{name}", create=True)

        def remove_all():
            for name in "abcdef":
                env.disk.remove(f"/{name}")

        await env.run_blocking(remove_all)

    left = {}
    for seed in range(40):
        rig = Rig(seed)
        rig.do(work)
        rig.run(0)
        rig.machine.kill()
        left[len(rig.machine.disk.files())] = None
    assert sorted(left) == [3, 4, 5, 6]
    rig = Rig()
    rig.do(work)
    rig.run(10)
    assert rig.machine.disk.files() == []


def test_a_cancelled_caller_does_not_stop_blocking_work():
    done = []

    async def work(env):
        await env.run_blocking(done.append, 1)

    rig = Rig()
    task = rig.do(work)
    rig.run(0)
    rig.machine.loop.call_soon(task.cancel)
    rig.run(10)
    assert task.cancelled()
    assert done == [1]


def test_a_full_disk_and_a_failing_sync():
    async def fill(env):
        env.disk.open("/g", create=True).append([b"x" * 100])

    rig = Rig()
    rig.machine.fill_disk(50)
    full = rig.do(fill)
    rig.run(10)
    assert isinstance(full.exception(), DiskFull)
    rig.machine.free_disk()
    fits = rig.do(fill)
    rig.machine.fail_sync()
    failed = rig.do(write_synced)
    rig.run(10)
    assert fits.result() is None
    assert isinstance(failed.exception(), SyncFailed)


def test_a_flipped_bit_stays():
    rig = Rig()
    rig.do(write_synced)
    rig.run(10)
    rig.machine.flip_bit("/f", 0, 0x20)
    rig.machine.kill(power=True)
    assert rig.content("/f")[:6] == b"Synced"


def test_clocks_outlive_processes_and_only_the_wall_jumps():
    rig = Rig()
    clock = rig.machine.clock
    wall_ms, now_ms = clock.wall_ms(), clock.now_ms()
    rig.run(1_000)
    rig.machine.clock_jump(-5_000)
    rig.machine.kill()
    rig.machine.start()
    assert rig.machine.env.clock.wall_ms() == wall_ms - 4_000
    assert rig.machine.env.clock.now_ms() == now_ms + 1_000


@pytest.mark.parametrize("power", [False, True])
def test_a_restarted_process_has_the_disk_for_itself(power):
    async def work(env):
        env.disk.lock("/lock")
        await asyncio.sleep(1)
        env.disk.open("/late", create=True)

    rig = Rig()
    rig.do(work)
    rig.run(10)
    rig.machine.kill(power=power)
    rig.machine.start()
    task = rig.do(work)
    rig.run(2_000)
    assert task.exception() is None
    assert rig.errors == []
