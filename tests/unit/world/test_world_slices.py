"""Long blocking work can be left between two of its parts."""

import asyncio
import threading

import pytest

from world.real import real_env
from world.slices import run_at_once, run_in_slices


def count_to(end, seen):
    for number in range(end):
        seen.append((number, threading.current_thread().name))
        yield
    return end


def test_work_runs_off_the_loop_to_its_end():
    seen = []
    assert asyncio.run(run_in_slices(real_env(), count_to(5, seen))) == 5
    assert [number for number, _ in seen] == list(range(5))
    assert all(name.startswith("blocking") for _, name in seen)
    assert run_at_once(count_to(3, [])) == 3


def test_an_error_is_the_callers():
    def fails():
        yield
        raise ValueError("no")

    for run in (lambda work: asyncio.run(run_in_slices(real_env(), work)), run_at_once):
        with pytest.raises(ValueError, match="no"):
            run(fails())


def test_a_cancelled_caller_leaves_nothing_at_work_for_longer_than_one_part():
    async def main():
        begun, go_on = threading.Event(), threading.Event()
        seen = []

        def work():
            for number in range(100):
                seen.append(number)
                begun.set()
                assert go_on.wait(120)
                yield

        env = real_env()
        task = asyncio.ensure_future(run_in_slices(env, work()))
        await env.run_blocking(begun.wait)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        go_on.set()
        for _ in range(20):
            await env.run_blocking(lambda: None)
        assert seen == [0]

    asyncio.run(main())
