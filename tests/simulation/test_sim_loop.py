"""asyncio's features on the simulated event loop, and what becomes of a dead or paused process."""

import asyncio
import gc
import inspect
from types import SimpleNamespace

import pytest

from simulation.loop import NodeDead, NodeLoop, Scheduler, Stuck, Trace


class Rig:
    """A scheduler and loops on it; `errors` is what their exception handlers were told."""

    def __init__(self):
        self.trace = Trace()
        self.scheduler = Scheduler(self.trace)
        self.errors = []

    def loop(self, number=1):
        owner = SimpleNamespace(name=f"n{number}")
        return NodeLoop(
            self.scheduler,
            number,
            owner,
            network=None,
            on_error=lambda loop, context: self.errors.append(context),
        )

    def run(self, main, until_s=100.0):
        """Runs a coroutine function on a loop of its own; (result, virtual seconds)."""
        loop = self.loop()
        ended = []

        async def timed():
            result = await main()
            ended.append(loop.time())
            return result

        task = loop.create_task(timed())
        self.scheduler.run_until(round(until_s * 1e6))
        return task.result(), ended[0]


@pytest.fixture
def rig():
    return Rig()


async def probe_sleep():
    await asyncio.sleep(0)
    await asyncio.sleep(1.5)
    return "slept"


async def probe_timeout():
    try:
        async with asyncio.timeout(0.25):
            await asyncio.Event().wait()
    except TimeoutError:
        return "timed out"


async def probe_task_group():
    done = []

    async def work(delay):
        await asyncio.sleep(delay)
        done.append(delay)

    async with asyncio.TaskGroup() as group:
        for delay in (0.3, 0.1, 0.2):
            group.create_task(work(delay))
    return done


async def probe_task_group_abort():
    ended = []

    async def work(number):
        try:
            await asyncio.sleep(5)
        finally:
            ended.append(number)

    async def fail():
        await asyncio.sleep(0.1)
        raise ValueError("no")

    async def all_of_them():
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(work(number))
            group.create_task(fail())

    with pytest.raises(ExceptionGroup):
        await all_of_them()
    return sorted(ended) == list(range(20)) and ended


async def probe_wait():
    tasks = [asyncio.create_task(asyncio.sleep(delay, delay)) for delay in (0.2, 0.1, 3)]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.wait(pending)
    return [task.result() for task in done]


async def probe_wait_for():
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.sleep(9), 0.5)
    return await asyncio.wait_for(asyncio.sleep(0.1, "in time"), 0.5)


async def probe_gather():
    return await asyncio.gather(*(asyncio.sleep(0.1 * n, n) for n in (3, 1, 2)))


async def probe_queue_and_locks():
    queue, condition, lock = asyncio.Queue(1), asyncio.Condition(), asyncio.Semaphore(2)
    seen = []

    async def consume():
        while (item := await queue.get()) is not None:
            async with lock:
                seen.append(item)
        async with condition:
            condition.notify_all()

    task = asyncio.create_task(consume())
    for item in (1, 2, None):
        await queue.put(item)
    async with condition:
        await condition.wait()
    await task
    return seen


async def probe_shield_and_cancel():
    inner = asyncio.create_task(asyncio.sleep(1, "inner"))
    outer = asyncio.create_task(asyncio.wait_for(asyncio.shield(inner), 0.2))
    with pytest.raises(TimeoutError):
        await outer
    return await inner


@pytest.mark.parametrize(
    ("probe", "result", "seconds"),
    [
        (probe_sleep, "slept", 1.5),
        (probe_timeout, "timed out", 0.25),
        (probe_task_group, [0.1, 0.2, 0.3], 0.3),
        (probe_wait, [0.1], 0.1),
        (probe_wait_for, "in time", 0.6),
        (probe_gather, [3, 1, 2], 0.3),
        (probe_queue_and_locks, [1, 2], 0.0),
        (probe_shield_and_cancel, "inner", 1.0),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_asyncio_works_unchanged_and_costs_no_time(rig, probe, result, seconds):
    got, took = rig.run(probe)
    assert got == result
    assert took == pytest.approx(seconds, abs=1e-5)
    assert rig.errors == []


def test_sets_of_tasks_have_the_same_order_whatever_their_addresses():
    orders = []
    keep = []
    for turn in range(6):
        keep.append([object() for _ in range(37 * turn)])  # moves what comes after
        orders.append(Rig().run(probe_task_group_abort)[0])
    assert orders[0]
    assert all(order == orders[0] for order in orders)


def test_equal_times_go_in_the_order_of_their_planning(rig):
    one, two = rig.loop(1), rig.loop(2)
    seen = []
    for number in range(50):
        loop = (one, two)[number % 2]
        loop.call_later(0.5, seen.append, number)
    rig.scheduler.run_until(500_000)
    assert seen == list(range(50))


def test_run_until_stops_the_clock_there(rig):
    seen = []
    loop = rig.loop()
    loop.call_later(2.0, seen.append, "late")
    assert rig.scheduler.run_until(1_000_000)
    assert (seen, rig.scheduler.now_ms) == ([], 1_000)
    assert rig.scheduler.run_until(2_000_000)
    assert seen == ["late"]


def test_max_steps_ends_a_run_early(rig):
    loop = rig.loop()
    for _ in range(10):
        loop.call_soon(int)
    assert not rig.scheduler.run_until(10, max_steps=4)
    assert rig.scheduler.steps == 4


def test_what_a_dead_process_would_begin_is_closed(rig):
    """Otherwise it would be told of as a coroutine that was never awaited."""

    async def work():
        raise AssertionError("it runs")

    loop = rig.loop()
    loop.dead = True
    begun = work()
    with pytest.raises(NodeDead):
        loop.create_task(begun)
    assert inspect.getcoroutinestate(begun) == inspect.CORO_CLOSED


def test_nothing_of_a_dead_process_runs_on(rig):
    loop = rig.loop()
    ran = []

    async def work():
        try:
            await asyncio.sleep(1)
            ran.append("after")
        finally:
            ran.append("finally")

    task = loop.create_task(work())
    rig.scheduler.run_until(500_000)
    unstarted = loop.create_task(work())
    del unstarted
    loop.dead = True
    rig.scheduler.run_until(5_000_000)
    gc.collect()
    assert ran == []
    with pytest.raises(NodeDead):
        loop.call_soon(int)
    with pytest.raises(NodeDead):
        loop.call_later(1, int)
    with pytest.raises(NodeDead):
        task.cancel()
    assert rig.errors == []
    for left in asyncio.all_tasks(loop):
        left.get_coro().close()


def test_a_paused_process_makes_up_for_what_it_missed(rig):
    loop, other = rig.loop(1), rig.loop(2)
    seen = []
    for number in range(4):
        loop.call_later(number / 10, lambda n=number: seen.append((n, loop.time())))
        other.call_later(number / 10, lambda n=number: seen.append((-n, other.time())))
    loop.pause()
    rig.scheduler.run_until(1_000_000)
    assert [number for number, _ in seen] == [0, -1, -2, -3]
    loop.go_on()
    rig.scheduler.run_until(1_500_000)
    assert seen[4:] == [(number, 1.0) for number in range(4)]


def test_an_unhandled_exception_is_told_and_the_rest_goes_on(rig):
    loop = rig.loop()
    seen = []
    loop.call_soon(lambda: 1 / 0)
    loop.call_soon(seen.append, 1)
    rig.scheduler.run_until(1)
    assert seen == [1]
    assert isinstance(rig.errors[0]["exception"], ZeroDivisionError)


def test_a_loop_that_never_waits_is_found(rig):
    loop = rig.loop()

    def again():
        loop.call_soon(again)

    loop.call_soon(again)
    with pytest.raises(Stuck):
        rig.scheduler.run_until(1)


def test_threads_are_refused(rig):
    async def main():
        with pytest.raises(RuntimeError, match="no threads"):
            await asyncio.to_thread(int)
        return True

    assert rig.run(main)[0]


def test_the_trace_tells_runs_apart():
    def run(delay):
        rig = Rig()
        rig.loop().call_later(delay, int)
        rig.scheduler.run_until(10_000_000)
        return rig.trace.digest()

    assert run(1.0) == run(1.0)
    assert run(1.0) != run(1.000001)
