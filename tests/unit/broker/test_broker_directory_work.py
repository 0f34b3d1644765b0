"""Work on partition directories: in order, one at a time for each, few at once."""

import asyncio

from structlog.testing import capture_logs

from broker.directory_work import DirectoryWork
from broker.log_store import DirectoryOffline
from wire.exits import EXIT_BROKER_TASK_FAILED


def run(story):
    async def main():
        fatal = []
        work = DirectoryWork(1, fatal.append)
        await story(work, fatal)
        assert (work._turns, work._behind, work._running) == ({}, {}, {})

    asyncio.run(main())


def test_few_run_at_once_and_each_gets_its_turn():
    async def story(work, fatal):
        running, most, done = set(), [0], []

        async def one(name):
            running.add(name)
            most[0] = max(most[0], len(running))
            await asyncio.sleep(0)
            running.discard(name)
            done.append(name)

        for number in range(1000):
            work.add(f"t-{number}", lambda n=number: one(n))
        assert len(asyncio.all_tasks()) == 1 + 8, "what waits is no task"
        await work.settled()
        assert most == [8]
        assert done == list(range(1000))
        assert fatal == []

    run(story)


def test_work_on_one_directory_is_done_in_order_one_at_a_time():
    async def story(work, fatal):
        done = []

        async def one(number):
            done.append(("begin", number))
            await asyncio.sleep(0)
            if number == 1:
                work.add("t-0", lambda: one(9))  # comes behind all that waits
            done.append(("end", number))

        for number in range(4):
            work.add("t-0", lambda n=number: one(n))
        work.add("t-1", lambda: one(5))
        await work.settled()
        mine = [number for what, number in done if what == "begin" and number != 5]
        assert mine == [0, 1, 2, 3, 9]
        of_one = [entry for entry in done if entry[1] != 5]
        assert of_one == [(what, number) for number in mine for what in ("begin", "end")]
        assert fatal == []

    run(story)


def test_what_fails_holds_nothing_up():
    async def story(work, fatal):
        done = []

        async def offline():
            raise DirectoryOffline("gone")

        async def broken():
            raise ValueError("a bug")

        async def good():
            done.append(1)

        with capture_logs() as logs:
            for kind in (offline, broken, good):
                work.add("t-0", kind)
            await work.settled()
        assert done == [1]
        assert [e["reason"] for e in logs if e["event"] == "replica_offline"] == ["gone"]
        assert [error.exit_code for error in fatal] == [EXIT_BROKER_TASK_FAILED]

    run(story)


def test_one_that_is_cancelled_gives_its_turn_away():
    async def story(work, fatal):
        done = []

        async def waits():
            tasks.append(asyncio.current_task())
            await asyncio.Event().wait()

        async def good():
            done.append(1)

        tasks = []
        work.add("t-0", waits)
        work.add("t-0", good)
        while not tasks:  # noqa: ASYNC110 - it is a turn or two
            await asyncio.sleep(0)
        tasks[0].cancel()
        await work.settled()
        assert done == [1]
        assert fatal == []

    run(story)


def test_what_comes_after_the_end_is_not_done():
    async def story(work, fatal):
        done = []

        async def one(number):
            await asyncio.sleep(0)
            done.append(number)

        for number in range(20):
            work.add("t-0" if number % 2 else f"t-{number}", lambda n=number: one(n))
        await work.close()
        assert sorted(done) == list(range(20))
        work.add("t-1", lambda: one(20))
        await work.settled()
        assert len(done) == 20
        assert fatal == []

    run(story)
