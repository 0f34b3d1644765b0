"""A node in one process and in memory: its start, what it is asked, its stop."""

import asyncio
import dataclasses
import re
from types import SimpleNamespace

import pytest
from raft_rig import eventually, free_ports
from structlog.testing import capture_logs

from broker.lifecycle import State
from pykraft.node import Node
from pykraft.node_config import parse_node_config
from pykraft.storage_format import format_directories
from wire.errors import FatalError
from world.memory import memory_env

CONFIG = {
    "process.roles": "controller",
    "node.id": "1",
    "listeners": "CONTROLLER://127.0.0.1:0",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:1",
    "log.dirs": "/data",
}


def test_a_linearizable_read_waits_for_a_long_batch_on_its_way_into_the_image():
    async def main():
        node = Node(memory_env(), parse_node_config(CONFIG))

        async def confirm():
            return 5_000

        node.raft = SimpleNamespace(confirm_leadership=confirm, applied_offset=10)
        node.controller = SimpleNamespace(active=True)
        read = asyncio.ensure_future(node.confirm_read())

        async def move_on(offset):
            node.raft.applied_offset = offset
            moved, node.publisher.moved = node.publisher.moved, asyncio.Event()
            moved.set()
            for _ in range(5):
                await asyncio.sleep(0)

        await move_on(10)
        assert not read.done()
        await move_on(4_999)
        assert not read.done()
        await move_on(5_000)
        assert read.result() == 5_000

    asyncio.run(main())


async def formatted(metadata_directory=None):
    """The world of a node whose directory is formatted."""
    env = memory_env()
    await format_directories(
        env,
        ["/data"],
        node_id=1,
        cluster_id="c",
        levels={"metadata.version": 25},
        metadata_directory=metadata_directory,
    )
    return env


def test_a_start_is_given_up_when_the_node_is_told_to_stop():
    async def main():
        env, reading = await formatted(), asyncio.Event()
        snapshot = "/data/__cluster_metadata-0/00000000000000000005-0000000001.checkpoint"
        env.disk.make_dirs("/data/__cluster_metadata-0")
        env.disk.open(snapshot, create=True).append([bytes(1000)])

        async def run_blocking(function, *args):
            reading.set()
            await asyncio.Event().wait()

        slow = dataclasses.replace(env, run_blocking=run_blocking)
        node, stop = Node(slow, parse_node_config(CONFIG)), asyncio.Event()
        starting = asyncio.ensure_future(node.start_unless(stop))
        await reading.wait()
        assert list(env.disk.media.locked) == ["/data/.lock"]
        stop.set()
        async with asyncio.timeout(5):
            assert await starting is False
            await node.stop()
        assert node.failure is None
        assert env.disk.media.locked == {}
        assert env.disk.exists(snapshot), "nothing was decided about it"
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


@pytest.mark.parametrize("fails", ["before", "meanwhile"])
def test_a_broker_that_fails_does_not_wait_for_its_leaders_to_be_moved(fails):
    """It would beat on for half a minute, and serve what nobody else has."""

    async def main():
        (port,) = free_ports(1)
        combined = {
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{port}",
            "controller.quorum.voters": f"1@127.0.0.1:{port}",
        }
        node = Node(await formatted(), parse_node_config({**CONFIG, **combined}))
        await node.start()
        async with asyncio.timeout(5):
            await node.wait_ready()
        lifecycle = node.broker.lifecycle

        async def beat():  # the controller moves no leaders
            lifecycle._kick.clear()
            return 100

        lifecycle._beat = beat
        if fails == "before":
            node.fail(FatalError(22, "the disk failed"))
        stopping = asyncio.ensure_future(node.stop())
        if fails == "meanwhile":
            await eventually(lambda: lifecycle.state is State.CONTROLLED_SHUTDOWN)
            node.fail(FatalError(22, "the disk failed"))
        async with asyncio.timeout(5):
            await stopping

    asyncio.run(main())


def test_an_only_voter_may_remove_a_damaged_quorum_state_and_loses_nothing():
    async def main():
        env = await formatted()
        path = "/data/__cluster_metadata-0/quorum-state"

        async def lead():
            node = Node(env, parse_node_config(CONFIG))
            await node.start()
            async with asyncio.timeout(5):
                await node.wait_ready()
            epoch, end = node.raft.leader().epoch, node.raft.end_offset
            await node.stop()
            return epoch, end

        epoch, end = await lead()
        await env.disk.replace(path, b"{")
        node = Node(env, parse_node_config(CONFIG))
        with pytest.raises(FatalError, match=r"only voter, don't replace it.*: remove the file"):
            await node.start()
        await node.stop()
        env.disk.remove(path)
        later_epoch, later_end = await lead()
        assert later_epoch > epoch
        assert later_end > end

    asyncio.run(main())


def without_voters(**changed):
    """CONFIG with bootstrap servers in the voters' place."""
    values = {**CONFIG, "controller.quorum.bootstrap.servers": "127.0.0.1:1", **changed}
    values["listeners"] = "CONTROLLER://127.0.0.1:0"
    values["advertised.listeners"] = "CONTROLLER://127.0.0.1:1"
    del values["controller.quorum.voters"]
    return parse_node_config(values)


@pytest.mark.parametrize(
    ("servers", "had_led", "told", "warned"),
    [
        ("127.0.0.1:1", False, r"no other controller to ask: .* anew with --standalone", True),
        ("127.0.0.1:1,127.0.0.1:2", False, r"servers for them: 127\.0\.0\.1:2$", False),
        ("127.0.0.1:1,127.0.0.1:2", True, r"while kraft\.version is 0, every controller's", True),
    ],
)
def test_a_controller_that_knows_no_voters_says_so(servers, had_led, told, warned):
    async def main():
        env = await formatted("/data")
        if had_led:
            node = Node(env, parse_node_config(CONFIG))
            await node.start()
            async with asyncio.timeout(5):
                await node.wait_ready()
            assert node.why_not_ready() is None
            await node.stop()
        with capture_logs() as lines:
            node = Node(env, without_voters(**{"controller.quorum.bootstrap.servers": servers}))
            await node.start()
            reason = node.why_not_ready()
            await node.stop()
        rule = "neither its metadata log nor controller.quorum.voters names any voters"
        assert re.search(f"no leader of the controller quorum answers: {rule}.*{told}", reason)
        warnings = [line for line in lines if line["event"] == "no_voters_known"]
        assert [line["reason"] for line in warnings] == [reason.partition(": ")[2]] * warned

    asyncio.run(main())


def test_why_a_node_can_not_start_is_told_though_it_is_to_stop_as_well():
    async def main():
        stop = asyncio.Event()
        stop.set()
        node = Node(memory_env(), parse_node_config(CONFIG))

        async def start():
            raise FatalError(4, "broken")

        node.start = start
        with pytest.raises(FatalError, match="broken"):
            await node.start_unless(stop)

    asyncio.run(main())
