"""A metadata log that misses something, and the synced offset doesn't tell how much: by what else
on the disk it is noticed, and who gives it back."""

import asyncio
import os
import shutil
from pathlib import Path
from uuid import UUID

import pytest
from raft_rig import eventually
from structlog.testing import capture_logs
from test_raft_node_membership import Controller, E, ask, quorum_state_of, scene

from raft import snapshot_writer, synced_offset
from raft.config import RaftConfig
from raft.effects import ElectionState
from raft.events import RequestReceived
from raft.log_view import UNKNOWN_END
from raft.messages import VoteRequest
from raft.metadata_log import MetadataLog, describe_fetched, make_place
from raft.snapshots import SnapshotStore, file_name
from raft.synced_offset import NAME
from raft.voters import OffsetAndEpoch, ReplicaKey, VoterSet
from wire import control
from wire.apis import ApiKey
from wire.batch import build_batch
from wire.errors import FatalError
from world.env import DiskFull
from world.memory import MemoryFile, memory_env
from world.real import real_env

DIR = "/data/__cluster_metadata-0"
LOG = f"{DIR}/00000000000000000000.log"
NOBODY = VoterSet(())
ALONE = VoterSet.static({1: ("h", 1)}, "CONTROLLER")
TWO = VoterSet.static({1: ("h", 1), 2: ("h", 2)}, "CONTROLLER")
LOAD = b"load"
OTHERS = {"bootstrap": (("h", 1), ("h", 2))}


def config(**rest):
    return RaftConfig(
        node_id=1, directory_id=UUID(int=501), cluster_id="c", advertised=("h", 1),
        **{"voters": {}} | rest,
    )  # fmt: skip


def batch(base, epoch=1, count=3):
    values = [(5, None, b"%d" % (base + i) * 10, ()) for i in range(count)]
    return build_batch(values, base_offset=base, leader_epoch=epoch)


def append(log, base, epoch=1):
    log.append_fetched(describe_fetched(memoryview(bytes(batch(base, epoch))), base))


def opened(env, static=NOBODY, stored=None, **rest):
    log = MetadataLog(env, config(**rest), "/data")
    return log, asyncio.run(log.open(static, stored or ElectionState()))


def filled(*bases, voters=()):
    """A disk with these batches, synced, and with the snapshot 0-0 that names `voters`."""
    env = memory_env()

    async def fill():
        await make_place(env.disk, DIR)
        if voters:
            store = SnapshotStore(env, DIR)
            listed = [control.Voter(i, UUID(int=500 + i), (), 0, 1) for i in voters]
            zero = OffsetAndEpoch(0, 0)
            await snapshot_writer.write(env, store, zero, 0, [], kraft_version=1, voters=listed)
        log = MetadataLog(env, config(), "/data")
        await log.open(TWO)
        for base in bases:
            append(log, base)
        log.note_synced(await log.sync())

    asyncio.run(fill())
    return env


def begin_later(env, settings, *, snapshot=False):
    """The log begins at offset 9 now, behind a snapshot that is there or isn't."""

    async def begin():
        log = MetadataLog(env, settings, "/data")
        await log.open(NOBODY)
        log.log.truncate_and_restart_at(9)
        await log.log.settle()
        if snapshot:
            await snapshot_writer.write(env, log.snapshots, OffsetAndEpoch(9, 1), 0, [])
        append(log, 9)
        log.note_synced(await log.sync())

    asyncio.run(begin())


class Killed(BaseException):
    """The process ends here."""


def killed(*_):
    raise Killed


def spoil(env, place):
    file = env.disk.open(LOG)
    byte = file.pread(1, place)
    file.pwrite(bytes([byte[0] ^ 1]), place)


def become(env, content):
    """The synced offset's file holds this; None: it is gone."""
    env.disk.remove(f"{DIR}/{NAME}")
    if content is not None:
        env.disk.open(f"{DIR}/{NAME}", create=True).append([content])


# Without the file


def test_without_the_file_what_lies_sound_behind_damage_was_durable():
    """A directory of Kafka's, or a backup: its log is all there, but for what is damaged."""
    env = filled(0, 3, 6)
    become(env, None)
    spoil(env, len(batch(0)) + 70)
    for _ in range(2):  # it isn't forgotten over a restart
        _, found = opened(env, TWO)
        assert (found.view.end, found.needs_end) == (3, 9)
    env = filled(0, 3, 6)
    become(env, None)
    spoil(env, len(batch(0)) + 70)
    with pytest.raises(FatalError, match=r"no other voter.*00\.log: byte \d+: offset 3: CRC"):
        opened(env, ALONE)


def test_without_the_file_the_end_of_the_log_may_be_torn():
    env = filled(0, 3, 6)
    become(env, None)
    spoil(env, 2 * len(batch(0)) + 70)
    _, found = opened(env, ALONE)
    assert (found.view.end, found.needs_end) == (6, None)


# With a damaged file


@pytest.mark.parametrize("content", [b"", b"x", b"pkso" * 16, bytes(64)])
@pytest.mark.parametrize("whole_log", [True, False])
def test_a_file_without_a_sound_slot_is_damage(content, whole_log):
    """It is made whole at once, so nothing but damage brings it there."""
    env = filled(0, 3, 6)
    become(env, content)
    if not whole_log:
        spoil(env, len(batch(0)) + 70)
    with pytest.raises(FatalError) as caught:
        opened(env, ALONE)
    assert (NAME in caught.value.reason) == whole_log
    end = 9 if whole_log else 3
    with capture_logs() as lines:
        _, found = opened(env, TWO)
    assert (found.view.end, found.needs_end) == (end, UNKNOWN_END)
    assert any(NAME in str(line.get("where")) for line in lines)
    log, found = opened(env, TWO)
    assert (found.view.end, found.needs_end) == (end, UNKNOWN_END), "forgotten at a restart"

    async def refill(*, whole):
        append(log, log.log.end_offset)
        log.note_synced(await log.sync(), whole=whole)

    asyncio.run(refill(whole=False))
    log, found = opened(env, TWO)
    assert found.needs_end == UNKNOWN_END
    asyncio.run(refill(whole=True))
    log, found = opened(env, ALONE)
    assert (found.view.end, found.needs_end) == (end + 6, None)


def test_an_observer_needs_no_such_file():
    env = filled(0, 3)
    become(env, bytes(64))
    _, found = opened(env, TWO, observer=True)
    assert (found.view.end, found.needs_end) == (6, None)


# By what quorum-state says


@pytest.mark.parametrize("stored", [ElectionState(2, 2), ElectionState(2, -1, ReplicaKey(3))])
def test_who_was_not_alone_knows_it_from_quorum_state(stored):
    """All that came after it was joined by others is gone, and so is the synced offset."""
    env = filled(0, voters=(1,))
    become(env, None)
    with pytest.raises(FatalError, match=r"quorum-state names node [23] in epoch 2, but the log"):
        opened(env, stored=stored)
    for named in (stored, None):  # once noticed, it isn't forgotten
        _, found = opened(env, stored=named, **OTHERS)
        assert (found.history.voters.ids, found.needs_end) == ((1,), UNKNOWN_END)


@pytest.mark.parametrize(
    ("stored", "voters"),
    [
        (ElectionState(2, 1, ReplicaKey(1)), (1,)),  # it led itself
        (ElectionState(1, 2), (1,)),  # a leader that removed itself, in an epoch that is there
        (ElectionState(2, 2), (1, 3)),  # nobody is elected by these without the others
        (ElectionState(2, 2), ()),
    ],
)
def test_what_quorum_state_may_say_of_a_whole_log(stored, voters):
    _, found = opened(filled(0, voters=voters), stored=stored, **OTHERS)
    assert (found.view.last_epoch, found.needs_end) == (1, None)


# Where nothing is left


@pytest.mark.parametrize("left", ["nothing", "an empty directory", "quorum-state"])
def test_who_finds_nothing_doesnt_know_what_it_has_promised(left):
    env = filled(0, voters=(1, 2))
    env.disk.remove_tree(DIR)
    if left != "nothing":
        env.disk.make_dirs(DIR)
    if left == "quorum-state":
        asyncio.run(env.disk.replace(f"{DIR}/{left}", b"{}"))
    with capture_logs() as logs:
        _, found = opened(env, **OTHERS)
    assert [line["event"] for line in logs] == ["metadata_log_begins_empty"]
    assert (found.view.end, found.needs_end) == (0, UNKNOWN_END)
    _, found = opened(env, **OTHERS)  # once noticed, it isn't forgotten
    assert found.needs_end == UNKNOWN_END


def test_a_start_that_is_cut_short_leaves_the_doubt(monkeypatch):
    """Killed between any two of its steps: the first thing that it writes says so already."""
    env = memory_env()
    with monkeypatch.context() as patch:
        patch.setattr(synced_offset.SyncedOffset, "__init__", killed)
        with pytest.raises(Killed):
            opened(env, **OTHERS)
    assert NAME in env.disk.list_dir(DIR)
    _, found = opened(env, **OTHERS)
    assert found.needs_end == UNKNOWN_END


def test_a_place_that_was_made_is_not_one_that_was_emptied():
    env = memory_env()
    asyncio.run(make_place(env.disk, DIR))
    _, found = opened(env, **OTHERS)
    assert found.needs_end is None


def test_of_static_voters_nothing_tells_it():
    """One may be new: other tools that format directories leave none for the log."""
    _, found = opened(memory_env(), TWO, voters={1: ("h", 1), 2: ("h", 2)})
    assert found.needs_end is None


def test_a_voter_whose_log_was_removed_elects_nobody_who_lacks_what_it_had(tmp_path):
    """Acknowledged by the leader and it alone; the third is behind, and the leader is down."""

    async def tell(cluster):
        await of_three(cluster)
        leader = await cluster.leader()
        behind, robbed = (member for member in cluster.up if member is not leader)
        await behind.kill()
        await cluster.append(b"a", b"b")
        await robbed.kill()
        await leader.kill()
        shutil.rmtree(Path(robbed.directory) / "__cluster_metadata-0")
        for member in (robbed, behind):
            await member.start()
        asked, handle = [], robbed.node.core.handle

        def listening(event, now_ms):
            if isinstance(event, RequestReceived) and isinstance(event.request, VoteRequest):
                asked.append(event.request)
            return handle(event, now_ms)

        robbed.node.core.handle = listening
        await eventually(lambda: len(asked) >= 3)  # three times in vain
        assert not any(member.node.is_leader for member in cluster.up)
        await leader.start()
        await under_load(cluster, lambda: not robbed.node.status()["damaged"])
        await cluster.caught_up()
        first, *others = [member.recorder.state for member in cluster.up]
        assert first[first.index(b"a") :][:3] == [b"a", b"b", LOAD]
        assert others == [first] * 2

    scene(tmp_path, tell, static=False)


# Who gives it back


def test_others_are_known_from_the_configuration_too():
    """The set of the snapshot 0-0 is what is left of a log that named others later."""
    env = filled(0, 3, 6, voters=(1,))
    spoil(env, 70)
    for lonely in ({}, {"bootstrap": (("h", 1),)}):
        with pytest.raises(FatalError, match=r"00\.log: byte 0: offset 0: CRC is wrong"):
            opened(env, **lonely)
    _, found = opened(env, **OTHERS)
    assert (found.view.end, found.needs_end) == (0, 9)


def test_others_are_asked_for_a_snapshot_too():
    """The newest one is gone, and the log begins behind it; the snapshot 0-0 is still there."""
    env = filled(0, 3, 6, voters=(1,))

    begin_later(env, config())
    with pytest.raises(FatalError, match="no usable snapshot covers what was before"):
        opened(env)
    for _ in range(2):
        _, found = opened(env, **OTHERS)
        assert (found.view.start, found.view.end, found.needs_end) == (0, 0, 12)


def test_what_no_snapshot_goes_with_is_kept_and_can_be_put_back():
    """All controllers may have lost theirs at once, by somebody who cleaned up."""
    env = filled()
    disk = env.disk

    begin_later(env, config(**OTHERS), snapshot=True)
    path, snapshot = f"{DIR}/00000000000000000009.log", f"{DIR}/{file_name(OffsetAndEpoch(9, 1))}"
    content, taken = disk.read_bytes(path), disk.read_bytes(snapshot)
    disk.remove(snapshot)
    with capture_logs() as logs:
        for _ in range(2):
            _, found = opened(env, **OTHERS)
            assert (found.view.start, found.view.end, found.needs_end) == (0, 0, 12)
    told = [line for line in logs if line["event"] == "metadata_log_damaged"]
    assert "begins at offset 9" in told[0]["where"]
    assert disk.read_bytes(f"{path}.0.damaged") == content
    disk.remove(LOG)
    disk.rename(f"{path}.0.damaged", path)
    disk.open(snapshot, create=True).append([taken])
    _, found = opened(env, **OTHERS)
    assert (found.view.start, found.view.end, found.needs_end) == (9, 12, None)


def test_who_knows_no_voter_and_no_other_has_nobody_to_get_anything_from():
    """Its voters went with the snapshot, or with the whole log."""
    env = filled()

    begin_later(env, config(bootstrap=(("h", 1),)))
    path = f"{DIR}/00000000000000000009.log"
    content = env.disk.read_bytes(path)
    with pytest.raises(FatalError, match="no usable snapshot covers what was before"):
        opened(env, bootstrap=(("h", 1),))
    assert env.disk.read_bytes(path) == content
    _, found = opened(env, stored=ElectionState(3, 2), bootstrap=(("h", 1),))
    assert found.needs_end == 12, "node 2 has led it, and may find it again"


def test_whose_log_is_gone_waits_for_those_who_may_know_it():
    """The first controller of a quorum may name nobody but itself in its settings."""
    env = memory_env()
    env.disk.make_dirs(DIR)
    _, found = opened(env, bootstrap=(("h", 1),))
    assert found.needs_end == UNKNOWN_END


def test_without_room_it_begins_anew_all_the_same(monkeypatch):
    env = filled()

    begin_later(env, config(**OTHERS))
    append_bytes = MemoryFile.append

    def append_little(self, buffers):
        if sum(map(len, buffers)) >= len(batch(9)):
            raise DiskFull(self.path, "write", "no space")
        return append_bytes(self, buffers)

    monkeypatch.setattr(MemoryFile, "append", append_little)
    _, found = opened(env, **OTHERS)
    assert (found.view.end, found.needs_end) == (0, 12)


def test_one_spoiled_offset_does_not_put_the_end_out_of_reach():
    """No CRC covers it; and without the synced offset what is sound was durable."""
    env = filled(0, 3, 6)
    become(env, None)
    file = env.disk.open(LOG)
    file.pwrite(b"\x40", len(batch(0)) + 6)
    _, found = opened(env, TWO)
    assert (found.view.end, found.needs_end) == (3, 9)


class Standalone(Controller):
    """Controller 1 was formatted to be alone at first."""

    async def format(self):
        directory = f"{self.directory}/__cluster_metadata-0"
        os.makedirs(directory)
        env = real_env(1)
        ends = (control.Endpoint("CONTROLLER", "127.0.0.1", self.port),)
        voters = [control.Voter(self.node_id, self.key.directory_id, ends, 0, 1)]
        zero = OffsetAndEpoch(0, 0)
        store = SnapshotStore(env, directory)
        await snapshot_writer.write(env, store, zero, 0, [], kraft_version=1, voters=voters)


async def under_load(cluster, done):
    """Changes without any pause until `done`."""

    async def load():
        while True:
            await cluster.append(LOAD)

    loading = asyncio.ensure_future(load())
    await eventually(done)
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading


async def of_three(cluster):
    """Three voters, of which controller 1, the first, was alone at first."""
    cluster.members = {1: Standalone(cluster, 1)} | {i: Controller(cluster, i) for i in (2, 3)}
    one = cluster[1]
    await one.format()
    await one.start()
    for other in (cluster[2], cluster[3]):
        await other.start()
        await eventually(lambda new=other: len(new.node.voters.ids) == new.node_id - 1)
        assert await ask(cluster, ApiKey.ADD_RAFT_VOTER, other, one) == (E.none, None)
    await eventually(lambda: all(m.node.voters.ids == (1, 2, 3) for m in cluster.up))
    return one


def was_cut(files):
    """All after the first batch is gone, and so is the file that would have told."""
    (files / "00000000000000000000.log").write_bytes(_first_batch(files))
    (files / NAME).unlink()


def _first_batch(files):
    data = (files / "00000000000000000000.log").read_bytes()
    return data[: 12 + int.from_bytes(data[8:12], "big")]


def is_spoiled(files):
    data = bytearray((files / "00000000000000000000.log").read_bytes())
    data[len(_first_batch(files)) + 70] ^= 1
    (files / "00000000000000000000.log").write_bytes(data)


def is_spoiled_and_nothing_tells(files):
    is_spoiled(files)
    (files / NAME).write_bytes(bytes(64))


@pytest.mark.parametrize("damage", [was_cut, is_spoiled, is_spoiled_and_nothing_tells])
def test_a_former_lonely_controller_leads_nobody_astray(tmp_path, damage):
    """In what is left of its log it is the only voter; and it gets all back from the others."""

    async def tell(cluster):
        one = await of_three(cluster)
        await one.stop()
        await cluster.leader(unlike=1)
        await one.start()
        await cluster.append(b"a", b"b")
        await cluster.caught_up()
        await one.stop()
        assert quorum_state_of(one).leader_id in (2, 3)
        damage(Path(one.directory) / "__cluster_metadata-0")
        await one.start()
        await under_load(cluster, lambda: not one.node.status()["damaged"])
        await cluster.caught_up()
        assert one.node.voters.ids == (1, 2, 3)
        assert not any(member.fatal for member in cluster.up)
        await one.stop()
        await one.start()
        assert not one.node.status()["damaged"]

    scene(tmp_path, tell, static=False)
