"""The directories of a node at its start: what may fail, and what stops it."""

import asyncio
import shutil

import pytest

from pykraft.directories import open_all
from pykraft.node_config import parse_node_config
from pykraft.storage_format import format_directories
from wire.errors import FatalError
from wire.exits import EXIT_BAD_DIRECTORY
from world.real import real_env


@pytest.fixture
def home(tmp_path):
    """Directories a, b and c of node 1, formatted."""
    form(tmp_path, "a", "b", "c")
    return tmp_path


def form(home, *names, node_id=1, cluster_id="c1"):
    paths = [str(home / name) for name in names]
    levels = {"metadata.version": 25}
    asyncio.run(
        format_directories(real_env(), paths, node_id=node_id, cluster_id=cluster_id, levels=levels)
    )


def opened(home, roles="broker,controller", names="abc", **more):
    """What can be opened of `names`, and why the rest can't."""
    values = {
        "process.roles": roles,
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@127.0.0.1:1",
        "log.dirs": ",".join(str(home / name) for name in names),
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    if roles == "controller":
        values["listeners"] = "CONTROLLER://127.0.0.1:0"

    async def main():
        found = await open_all(real_env(), parse_node_config(values))
        found.release(taken_by_broker=False)
        return found

    return asyncio.run(main())


def refused(*args, **more):
    with pytest.raises(FatalError) as error:
        opened(*args, **more)
    assert error.value.exit_code == EXIT_BAD_DIRECTORY
    return error.value.reason


def as_file(directory):
    shutil.rmtree(directory)
    directory.write_text("not a directory")


def without_sense(directory):
    (directory / "meta.properties").write_text("version=1\nnode.id=x\n")


def unreadable(directory):
    (directory / "meta.properties").unlink()
    (directory / "meta.properties").mkdir()


def unreadable_checkpoint(directory):
    (directory / "recovery-point-offset-checkpoint").mkdir()


RUINS = [as_file, without_sense, unreadable, unreadable_checkpoint]


@pytest.mark.parametrize("ruin", RUINS)
def test_one_of_several_may_fail(home, ruin):
    ruin(home / "b")
    found = opened(home)
    assert [d.path for d in found.log_directories] == [str(home / "a"), str(home / "c")]
    assert found.metadata is found.log_directories[0]
    assert list(found.failed) == [str(home / "b")]
    assert str(home / "b") in found.failed[str(home / "b")], "the reason says where"


@pytest.mark.parametrize("ruin", RUINS)
def test_not_that_of_the_metadata_log(home, ruin):
    ruin(home / "a")
    reason = refused(home)
    assert reason.startswith(f"{home}/a can't be used: ")
    assert "metadata log" in reason
    # Nothing stays locked, and where it lies is a setting.
    assert list(opened(home, metadata_log_dir=str(home / "b")).failed) == [str(home / "a")]


def test_a_broker_needs_one_beside_that_of_the_metadata_log(home):
    for name in "bc":
        as_file(home / name)
    reason = refused(home, names="bc", metadata_log_dir=str(home / "a"))
    assert reason.startswith("none of log.dirs can be used, a broker needs one: ")
    assert f"{home}/b" in reason
    assert f"{home}/c" in reason
    # A controller puts nothing there.
    found = opened(home, "controller", "bc", metadata_log_dir=str(home / "a"))
    assert list(found.failed) == [str(home / "b"), str(home / "c")]
    assert found.log_directories == []


@pytest.mark.parametrize("absent", [True, False])
def test_one_that_is_not_formatted_stops_the_node(home, absent):
    """It may be a disk that isn't mounted, or a new one: only the operator knows."""
    shutil.rmtree(home / "b")
    if not absent:
        (home / "b").mkdir()
    reason = refused(home)
    assert reason.startswith(f"{home}/b {'does not exist' if absent else 'is not formatted'}")
    assert (home / "b").exists() is not absent


def test_one_of_another_node_or_cluster_or_in_use_stops_the_node(home):
    form(home, "other-node", node_id=2)
    form(home, "other-cluster", cluster_id="c2")
    for other, text in [("other-node", "belongs to node 2"), ("other-cluster", f"{home}/b of c2")]:
        shutil.rmtree(home / "b")
        shutil.copytree(home / other, home / "b")
        assert text in refused(home)
    shutil.rmtree(home / "b")
    shutil.copytree(home / "c", home / "b")
    assert "one is a copy" in refused(home)
    env = real_env()
    lock = env.disk.lock(str(home / "c" / ".lock"))
    assert refused(home, names="ac") == f"{home}/c is in use by another process"
    lock.release()
    assert opened(home, names="ac").failed == {}


def test_one_that_is_there_by_two_names_is_not_another_processs(home):
    shutil.rmtree(home / "b")
    (home / "b").symlink_to(home / "a")
    assert refused(home, names="ab").startswith(f"{home}/b and {home}/a are the same directory: ")
    assert opened(home, names="ac", metadata_log_dir=f"{home}/a/").failed == {}
