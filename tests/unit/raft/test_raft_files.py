"""The quorum's files: synced offset, quorum-state, snapshots, and what opening makes of them."""

import asyncio
import random
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from raft import snapshot_writer
from raft.config import RaftConfig
from raft.effects import ElectionState
from raft.election_file import ElectionFile
from raft.metadata_log import MetadataLog, describe_fetched
from raft.snapshots import SnapshotStore, SnapshotUnusable, examine, file_name, parse_name, view
from raft.synced_offset import NAME, SyncedOffset
from raft.voters import OffsetAndEpoch, ReplicaKey, VoterSet
from storage import names, scan
from storage.scan import sound_end
from wire import checkpoints, control
from wire.batch import build_batch, iter_headers
from wire.errors import FatalError
from world.memory import MemoryDisk, memory_env
from world.slices import run_at_once

DIR = "/data/__cluster_metadata-0"
VOTERS = VoterSet.static({1: ("h", 1), 2: ("h", 2)}, "C")


@pytest.fixture
def env():
    made = memory_env()
    made.disk.make_dirs(DIR)
    asyncio.run(made.disk.sync_dir("/"))
    return made


def config(**rest):
    return RaftConfig(
        node_id=1, directory_id=UUID(int=501), cluster_id="c", voters={1: ("h", 1)}, **rest
    )


def batch(base, epoch, count=1, size=10):
    return build_batch(
        [(5, None, b"%d" % (base + i) * size, ()) for i in range(count)],
        base_offset=base,
        leader_epoch=epoch,
    )


def fetched(data, base):
    return describe_fetched(memoryview(bytes(data)), base)


# The synced offset


def test_synced_offset_is_remembered(env):
    synced = SyncedOffset(env.disk, DIR)
    assert synced.offset == 0
    for offset in (3, 3, 2, 9):
        synced.advance(offset)
    assert synced.offset == 9
    assert SyncedOffset(env.disk, DIR).offset == 9
    asyncio.run(synced.lower(4))
    assert SyncedOffset(env.disk, DIR).offset == 4


@pytest.mark.parametrize("place", range(0, 60, 3))
def test_a_spoiled_slot_leaves_the_other(env, place):
    synced = SyncedOffset(env.disk, DIR)
    synced.advance(5)
    synced.advance(8)
    file = env.disk.open(f"{DIR}/{NAME}")
    byte = file.pread(1, place)
    file.pwrite(bytes([byte[0] ^ 0x10]), place)
    assert SyncedOffset(env.disk, DIR).offset in (5, 8)


@pytest.mark.parametrize("content", [b"", b"x", b"pkso" * 40, bytes(64)])
def test_nonsense_says_nothing(env, content):
    env.disk.open(f"{DIR}/{NAME}", create=True).append([content])
    assert SyncedOffset(env.disk, DIR).offset == 0


# quorum-state


@pytest.mark.parametrize("kraft_version", [0, 1])
@pytest.mark.parametrize(
    "state",
    [
        ElectionState(),
        ElectionState(4, 2, None),
        ElectionState(4, -1, ReplicaKey(3, UUID(int=700))),
        ElectionState(4, 1, ReplicaKey(1, UUID(int=501))),
    ],
)
def test_quorum_state_is_read_back(env, state, kraft_version):
    file = ElectionFile(env.disk, DIR)
    assert file.load() == ElectionState()
    asyncio.run(file.save(state, VOTERS, kraft_version))
    if kraft_version == 0 and state.voted is not None:
        state = state._replace(voted=ReplicaKey(state.voted.node_id))
    assert file.load() == state


def test_a_quorum_state_that_makes_no_sense_stops_the_node(env):
    env.disk.open(f"{DIR}/quorum-state", create=True).append([b'{"leaderId":1}'])
    with pytest.raises(FatalError, match="quorum-state"):
        ElectionFile(env.disk, DIR).load()


# Snapshots


def test_names():
    snapshot = OffsetAndEpoch(1234, 5)
    assert file_name(snapshot) == "00000000000000001234-0000000005.checkpoint"
    assert parse_name(file_name(snapshot)) == snapshot
    assert parse_name("00000000000000001234-0000000005.checkpoint.part") is None
    assert parse_name("00000000000000001234.log") is None


def write(env, snapshot, values, **rest):
    store = loaded(env)
    asyncio.run(snapshot_writer.write(env, store, snapshot, 777, [values], **rest))
    return store


def loaded(env):
    store = SnapshotStore(env, DIR)
    asyncio.run(store.load())
    return store


def values_in(env, store, snapshot):
    async def read():
        seen = view(env, store.open(snapshot), store.complete[snapshot])
        return seen, [value async for values in seen.slices for value in values]

    return asyncio.run(read())


def test_a_snapshot_is_written_whole_and_read_back(env):
    snapshot = OffsetAndEpoch(5000, 7)
    values = [b"%d" % i * 5 for i in range(2_500)]
    store = write(env, snapshot, values)
    facts = store.complete[snapshot]
    assert (facts.timestamp_ms, facts.kraft_version, facts.voters) == (777, 0, None)
    seen, found = values_in(env, store, snapshot)
    assert found == values
    assert (seen.end_offset, seen.epoch, seen.timestamp_ms) == (5000, 7, 777)
    assert env.disk.list_dir(DIR) == [file_name(snapshot)]


def test_voters_are_in_the_header_of_a_dynamic_quorum(env):
    snapshot = OffsetAndEpoch(5, 1)
    voter = control.Voter(1, UUID(int=501), (control.Endpoint("C", "h", 1),), 0, 1)
    facts = write(env, snapshot, [], kraft_version=1, voters=[voter]).complete[snapshot]
    assert (facts.kraft_version, facts.voters) == (1, (voter,))


def test_a_snapshot_cut_anywhere_is_unusable(env):
    snapshot = OffsetAndEpoch(5, 1)
    store = write(env, snapshot, [b"a", b"b", b"c"])
    path = store.path(snapshot)
    whole = env.disk.read_bytes(path)
    for length in range(len(whole)):
        file = env.disk.open("/data/cut", create=True)
        file.truncate(0)
        file.append([whole[:length]])
        with pytest.raises(SnapshotUnusable, match="/data/cut"):
            run_at_once(examine(file, snapshot))
    for place in range(0, len(whole), 7):
        file.truncate(0)
        spoiled = bytearray(whole)
        spoiled[place] ^= 4
        file.append([spoiled])
        try:
            facts = run_at_once(examine(file, snapshot))
        except SnapshotUnusable:
            continue
        # The leader epoch of a batch is not covered by its CRC, nor does it mean anything here.
        assert facts.size == len(whole)


def test_the_place_of_a_bad_header_is_said_once_and_is_the_files(env):
    """A header is read from a buffer, in which it lies elsewhere."""
    snapshot = OffsetAndEpoch(5, 1)
    store = write(env, snapshot, [b"a" * 100_000])
    whole = bytearray(env.disk.read_bytes(store.path(snapshot)))
    *_, (last, _) = iter_headers(whole)
    whole[last + 16] = 9
    file = env.disk.open("/data/bad", create=True)
    file.append([whole])
    with pytest.raises(SnapshotUnusable) as caught:
        run_at_once(examine(file, snapshot))
    reason = "batch of magic 9, only 2 is supported"
    assert str(caught.value) == f"/data/bad: byte {last}: {reason}"


def test_the_place_of_a_bad_header_in_the_log_is_said_once(env):
    filled(env, (0, 1, 3), (3, 1, 3))
    size = len(batch(0, 1, 3))
    path = spoil(env, size + 16)
    with pytest.raises(FatalError) as fatal:
        opened(env)
    assert f"{path}: byte {size}: offset 3: batch of magic 3, only 2" in str(fatal.value)


def test_leftovers_go_and_unusable_files_stay_for_inspection(env):
    good, bad = OffsetAndEpoch(5, 1), OffsetAndEpoch(9, 1)
    write(env, good, [b"a"])
    for name in (file_name(bad), file_name(good) + ".part", file_name(bad) + ".deleted"):
        env.disk.open(f"{DIR}/{name}", create=True).append([b"half"])
    store = loaded(env)
    assert list(store.complete) == [good]
    assert list(store.unusable) == [f"{DIR}/{file_name(bad)}"]
    store.set_aside()
    assert env.disk.list_dir(DIR) == [file_name(good), file_name(bad) + ".damaged"]


# Opening


ALONE = VoterSet.static({1: ("localhost", 1)}, "CONTROLLER")


def opened(env, *, alone=True, **rest):
    log = MetadataLog(env, config(**rest), "/data")
    return log, asyncio.run(log.open(ALONE if alone else VOTERS))


def filled(env, *batches, **rest):
    """A log with these (base, epoch, count), synced, then left as a crash leaves it."""

    async def fill():
        log = MetadataLog(env, config(**rest), "/data")
        await log.open(ALONE)
        for base, epoch, count in batches:
            data = batch(base, epoch, count)
            log.append_fetched(fetched(data, base))
        log.note_synced(await log.sync())
        return log

    return asyncio.run(fill())


def test_the_outline_of_a_log(env):
    filled(env, (0, 1, 3), (3, 2, 1), (4, 2, 2))
    _, found = opened(env)
    assert (found.view.start, found.view.end, found.view.epochs) == (0, 6, [(1, 0), (2, 3)])
    assert found.needs_end is None


def test_unsynced_records_may_be_lost_without_a_word(env):
    log = filled(env, (0, 1, 3))
    log.append_fetched(fetched(batch(3, 1, 2), 3))
    crashed = memory_env(disk=env.disk.crash(random.Random(3)))
    _, found = opened(crashed)
    assert found.view.end in (3, 5)
    assert found.needs_end is None


def spoil(env, place):
    path = f"{DIR}/00000000000000000000.log"
    file = env.disk.open(path)
    position = place if place >= 0 else file.size() + place
    byte = file.pread(1, position)
    file.pwrite(bytes([byte[0] ^ 1]), position)
    return path


def test_damage_before_the_synced_offset_is_told(env):
    filled(env, (0, 1, 3), (3, 1, 3), (6, 1, 3))
    path = spoil(env, -5)
    with pytest.raises(FatalError) as caught:
        opened(env)
    assert path in caught.value.reason
    assert "offset 6" in caught.value.reason
    log, found = opened(env, alone=False)
    assert (found.view.end, found.needs_end) == (6, 9)

    async def refill():
        log.append_fetched(fetched(batch(6, 2, 1), 6))
        log.note_synced(await log.sync())

    asyncio.run(refill())
    # It isn't forgotten over a restart before it is whole again.
    log, found = opened(env, alone=False)
    assert (found.view.end, found.needs_end) == (7, 9)

    async def refill_more():
        log.append_fetched(fetched(batch(7, 2, 4), 7))
        log.note_synced(await log.sync())

    asyncio.run(refill_more())
    assert opened(env)[1].needs_end is None


def test_damage_before_a_synced_offset_that_lags_counts_all_that_was_there(env):
    """A power cut may leave an older synced offset than the log's, which was longer by then."""
    filled(env, (0, 1, 3), (3, 1, 3), (6, 2, 3))
    asyncio.run(SyncedOffset(env.disk, DIR).lower(4))
    write(env, OffsetAndEpoch(6, 1), [b"a"])
    spoil(env, len(batch(0, 1, 3)) + 70)
    with pytest.raises(FatalError, match="offset 3"):
        opened(env)
    _, found = opened(env, alone=False)
    assert (found.view.start, found.view.end, found.needs_end) == (6, 6, 9)
    _, found = opened(env, alone=False)
    assert (found.view.end, found.needs_end) == (6, 9)


def end_of_the_sound(data, offset, begin=0):
    file = MemoryDisk().open("/f", create=True)
    file.append([data])
    return run_at_once(sound_end(file, 0, begin, offset))


@pytest.fixture(params=[61, 100, 1 << 20])
def window(request, monkeypatch):
    """Bytes that are read at a time: a header, less than a batch, all."""
    monkeypatch.setattr(scan, "_WINDOW", request.param)


@pytest.mark.parametrize("place", range(len(batch(0, 1, 3)), len(batch(0, 1, 3)) + 61))
def test_sound_batches_are_found_behind_any_damage(window, place):
    data = bytearray(b"".join(batch(3 * i, 1, 3) for i in range(4)))
    data[place] ^= 2
    begin = len(batch(0, 1, 3)) + 1
    assert end_of_the_sound(bytes(data), 3, begin) == 12
    assert end_of_the_sound(bytes(data)[:-1], 3, begin) == 9


@pytest.mark.parametrize("before", range(70))
def test_they_are_found_wherever_a_stretch_ends(window, before):
    assert end_of_the_sound(b"\x02" * before + batch(3, 1, 3) + b"\x02" * 5, 3) == 6


def test_where_nothing_sound_follows_the_damage_is_the_end(window):
    assert end_of_the_sound(b"", 7) == 7
    assert end_of_the_sound(b"\x02" * 1000, 7) == 7
    assert end_of_the_sound(batch(0, 1, 3), 7) == 7


def test_an_offset_behind_damage_that_cannot_be_is_not_believed(window):
    """No CRC covers it. A log that waited for such an end would never be whole again."""
    batches = [bytearray(batch(3 * i, 1, 3)) for i in range(4)]
    batches[2][6] ^= 0x40  # offset 16390
    begin = len(batches[0]) + 1
    assert end_of_the_sound(b"".join(map(bytes, batches)), 3, begin) == 12


def test_what_follows_damage_is_searched_in_slices():
    file = MemoryDisk().open("/f", create=True)
    file.append([b"\x02" * 100_000, *[batch(i, 1, 1, 60_000) for i in range(100)]])
    slices = list(sound_end(file, 0, 0, 0))
    assert len(slices) >= 100_000 // scan._SLICE_BATCHES + file.size() // scan._WINDOW


@pytest.mark.parametrize("place", range(12, 16))
def test_a_spoiled_epoch_is_damage_though_the_crc_does_not_cover_it(env, place):
    filled(env, (0, 1, 3), (3, 2, 3), (6, 2, 3))
    spoil(env, len(batch(0, 1, 3)) + len(batch(3, 2, 3)) + place)
    _, found = opened(env, alone=False)
    assert (found.view.end, found.view.last_epoch, found.needs_end) == (6, 2, 9)


@pytest.mark.parametrize("place", range(12, 16))
def test_a_spoiled_epoch_of_deleted_records_is_not_believed(env, place):
    """The epoch file knows none of before the log's start, but that none of them was later."""
    filled(env, (0, 1, 3), (3, 1, 3), (6, 1, 3))
    path = f"{DIR}/{names.LEADER_EPOCHS}"
    asyncio.run(env.disk.replace(path, checkpoints.encode_epochs([(1, 6)])))
    spoil(env, len(batch(0, 1, 3)) + place)
    _, found = opened(env, alone=False)
    assert (found.view.end, found.view.last_epoch, found.needs_end) == (3, 1, 9)


def test_a_shorter_file_is_damage_too(env):
    filled(env, (0, 1, 3), (3, 1, 3))
    file = env.disk.open(f"{DIR}/00000000000000000000.log")
    file.truncate(len(batch(0, 1, 3)))
    with pytest.raises(FatalError, match="ends at offset 3"):
        opened(env)
    assert opened(env, alone=False)[1].needs_end == 6


def test_a_truncation_is_no_damage(env):
    log = filled(env, (0, 1, 3), (3, 1, 3))
    asyncio.run(log.truncate(3))
    _, found = opened(memory_env(disk=env.disk.crash(random.Random(1))))
    assert (found.view.end, found.needs_end) == (3, None)


def test_a_log_behind_its_snapshot_restarts_there(env):
    filled(env, (0, 1, 3))
    write(env, OffsetAndEpoch(50, 4), [b"a"])
    _, found = opened(env)
    assert (found.view.start, found.view.end, found.view.last_epoch) == (50, 50, 4)
    _, found = opened(env)
    assert (found.view.start, found.view.end, found.needs_end) == (50, 50, None)


@pytest.mark.parametrize("left", range(3))
def test_a_log_that_was_to_begin_behind_its_snapshot_is_not_called_damaged(env, left):
    """Old segments were gone, the newest first, and the new one wasn't there yet, when the process
    died."""
    filled(env, (0, 1, 3), (3, 1, 3), (6, 2, 3), segment_bytes=1)
    write(env, OffsetAndEpoch(50, 4), [b"a"])
    segments = [name for name in env.disk.list_dir(DIR) if name.endswith(".log")]
    assert len(segments) == 3
    for name in sorted(segments)[left:]:
        env.disk.remove(f"{DIR}/{name}")
    with capture_logs() as lines:
        _, found = opened(env)
    assert (found.view.start, found.view.end, found.needs_end) == (50, 50, None)
    assert [line for line in lines if line["log_level"] == "error"] == []


def test_a_log_without_its_beginning_needs_a_snapshot(env):
    async def make():
        log = MetadataLog(env, config(), "/data")
        await log.open(ALONE)
        log.log.truncate_and_restart_at(20)
        await log.log.settle()
        log.append_fetched(fetched(batch(20, 3, 2), 20))
        log.note_synced(await log.sync())

    asyncio.run(make())
    asyncio.run(SyncedOffset(env.disk, DIR).lower(21))  # it may lag behind the log
    with pytest.raises(FatalError, match="begins at offset 20 and no usable snapshot"):
        opened(env)
    for _ in range(2):  # it isn't forgotten over a restart
        _, found = opened(env, alone=False)
        assert (found.view.end, found.needs_end) == (0, 22)


@pytest.mark.parametrize("by", ["size", "age", "nothing", "no limit"])
def test_old_snapshots_and_the_log_before_them_are_dropped(env, by):
    log = filled(env, *((i * 10, 1, 10) for i in range(8)))
    wall_ms = env.clock.wall_ms() - (8 * 86_400_000 if by in ("age", "no limit") else 0)
    for end in (20, 40, 60):
        snapshot = OffsetAndEpoch(end, 1)
        asyncio.run(snapshot_writer.write(env, log.snapshots, snapshot, wall_ms, [[b"x"]]))
    retention = {"retention_bytes": 1 if by == "size" else 1 << 20}
    if by == "no limit":
        retention = {"retention_bytes": -1, "retention_ms": -1}
    log, _ = opened(env, **retention)
    for _ in range(2):
        log.trim()
        if by in ("nothing", "no limit"):
            assert len(log.snapshots.complete) == 3
            assert log.log.log_start_offset == 0
        else:
            assert list(log.snapshots.complete) == [OffsetAndEpoch(60, 1)], "one always stays"
            assert log.log.log_start_offset == 60


def test_it_survives_the_disk_losing_power_at_any_moment():
    for seed in range(30):
        chance = random.Random(seed)
        env = memory_env(disk=MemoryDisk())
        env.disk.make_dirs("/data")
        asyncio.run(env.disk.sync_dir("/"))
        durable = 0
        for _ in range(4):
            log, found = opened(env, alone=False)
            assert found.needs_end is None
            assert found.view.end >= durable

            async def work(log=log, chance=chance):
                synced = log.log.end_offset
                for _ in range(chance.randint(0, 5)):
                    end = log.log.end_offset
                    log.append_fetched(fetched(batch(end, 1, chance.randint(1, 4)), end))
                    if chance.random() < 0.4:
                        synced = await log.sync()
                        log.note_synced(synced)
                return synced

            durable = asyncio.run(work())
            env = memory_env(disk=env.disk.crash(chance))
