"""Preparing log directories as Kafka's storage tool does.

Every formatted directory gets `meta.properties` with a fresh directory id, and
`bootstrap.checkpoint`: the bootstrap records with which the first
active controller begins the metadata log (KIP-584, KIP-866). Features other than metadata.version
stay at level 0 until the work behind them is there.

A quorum with kraft.version 1 begins with the voters that are given here: the metadata directory
gets them as the snapshot 0-0 (KIP-853), and a voter's directory the id that they name. Kafka has
written the bootstrap records into that snapshot, too, and no other file, since 4.4 (KIP-1170).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from metadata.features import SUPPORTED, describe_level, unmet
from metadata.image import METADATA_VERSION
from metadata.records import FeatureLevelRecord, Record, decode, encode
from raft.config import DIRECTORY
from raft.metadata_log import make_place
from raft.snapshots import BOOTSTRAP, file_name
from raft.voters import MAX_KRAFT_VERSION, VoterSet, record_of
from storage.leftovers import make_directory
from wire import meta_properties
from wire.batch import build_batch, decode_records, iter_headers
from wire.control import (
    encode_kraft_version,
    encode_snapshot_footer,
    encode_snapshot_header,
    encode_voters,
)
from wire.errors import BadHeader, DamagedFile, DecodeError, ErrorCode, FatalError, KafkaError
from wire.exits import EXIT_BAD_DIRECTORY
from wire.meta_properties import MetaProperties
from world.env import Absent, DiskError, Env

META_PROPERTIES = "meta.properties"
BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
BOOTSTRAP_SNAPSHOT = f"{DIRECTORY}/{file_name(BOOTSTRAP)}"


def bootstrap_records(levels: Mapping[str, int]) -> list[FeatureLevelRecord]:
    """One record a feature above level 0, metadata.version first.

    Raises KafkaError for a feature or level that this version doesn't support, or that needs
    another feature at a higher level.
    """
    for name in sorted(levels):
        low, high = SUPPORTED.get(name, (0, 0))
        if not low <= levels[name] <= high:
            raise KafkaError(
                ErrorCode.invalid_update_version,
                f"feature {name} at level {describe_level(name, levels[name])}: "
                f"{describe_level(name, low)} to {describe_level(name, high)} are supported",
            )
        needed = unmet(name, levels[name], levels)
        if needed is not None:
            raise KafkaError(
                ErrorCode.invalid_update_version,
                f"feature {name} at level {describe_level(name, levels[name])}: that needs "
                f"{needed[0]} at {describe_level(*needed)} or higher",
            )
    others = sorted(name for name in levels if name != METADATA_VERSION and levels[name] > 0)
    return [
        FeatureLevelRecord(name=name, feature_level=levels[name])
        for name in (METADATA_VERSION, *others)
    ]


def encode_bootstrap(records: Sequence[Record], wall_ms: int) -> bytes:
    """The file: a header batch, one data batch, a footer batch, in epoch 0 from offset 0."""
    header = encode_snapshot_header(0)
    footer = encode_snapshot_footer()
    values = [(wall_ms, None, encode(record), ()) for record in records]
    return b"".join(
        (
            build_batch([(wall_ms, *header, ())], leader_epoch=0, control=True),
            build_batch(values, base_offset=1, leader_epoch=0),
            build_batch(
                [(wall_ms, *footer, ())], base_offset=1 + len(values), leader_epoch=0, control=True
            ),
        )
    )


def encode_voters_snapshot(voters: VoterSet, wall_ms: int) -> bytes:
    """The snapshot 0-0: header, kraft.version and voters in one batch, then the footer."""
    head = (
        encode_snapshot_header(wall_ms),
        encode_kraft_version(MAX_KRAFT_VERSION),
        encode_voters(record_of(voters)),
    )
    footer = encode_snapshot_footer()
    return b"".join(
        (
            build_batch([(wall_ms, *one, ()) for one in head], leader_epoch=0, control=True),
            build_batch(
                [(wall_ms, *footer, ())], base_offset=len(head), leader_epoch=0, control=True
            ),
        )
    )


def read_bootstrap(env: Env, directory: str) -> list[Record]:
    """The bootstrap records that the metadata log's directory was formatted with; none where
    there are none.

    FatalError where their file is damaged: a log begun without them would be another cluster's.
    """
    for name in (BOOTSTRAP_CHECKPOINT, BOOTSTRAP_SNAPSHOT):
        path = f"{directory}/{name}"
        try:
            data = env.disk.read_bytes(path)
        except Absent:
            continue
        return _records_in(data, path)
    return []


def _records_in(data: bytes, path: str) -> list[Record]:
    records: list[Record] = []
    position = 0
    try:
        for position, header in iter_headers(data):
            if header.is_control:
                continue
            for entry in decode_records(data, position, header):
                decoded = decode(entry.value or b"")
                assert isinstance(decoded.record, Record), decoded
                records.append(decoded.record)
    except BadHeader as error:
        raise FatalError(EXIT_BAD_DIRECTORY, f"{path}: {error}") from error
    except (DecodeError, AssertionError) as error:
        raise FatalError(EXIT_BAD_DIRECTORY, f"{path}: byte {position}: {error}") from error
    return records


async def format_directories(
    env: Env,
    directories: Sequence[str],
    *,
    node_id: int,
    cluster_id: str,
    levels: Mapping[str, int],
    metadata_directory: str | None = None,
    voters: VoterSet | None = None,
) -> None:
    """Formats every directory, or none: KafkaError if one holds a node already. DiskError where one
    can't be made or written; its notes name what was formatted all the same, if any was.

    `voters` begin a quorum with kraft.version 1; `metadata_directory` is where its log will be. A
    place is made for it there, so that a start that finds none knows that it was lost.
    """
    records = bootstrap_records(levels)
    for directory in directories:
        if env.disk.exists(f"{directory}/{META_PROPERTIES}"):
            raise KafkaError(
                ErrorCode.invalid_request,
                f"{directory} is formatted already ({_whose(env, directory)}); nothing was changed",
            )
    for directory in directories:
        await make_directory(env.disk, directory)
    identities: dict[str, MetaProperties] = {}
    for directory in directories:
        wall_ms = env.clock.wall_ms()
        await env.disk.replace(
            f"{directory}/{BOOTSTRAP_CHECKPOINT}", encode_bootstrap(records, wall_ms)
        )
        directory_id = env.ids.uuid()
        if directory == metadata_directory:
            await make_place(env.disk, f"{directory}/{DIRECTORY}")
            await env.disk.sync_dir(directory)
        if voters is not None and directory == metadata_directory:
            await _write_voters(env, directory, voters, wall_ms)
            voter = voters.get(node_id)
            if voter is not None and voter.key.directory_id is not None:
                directory_id = voter.key.directory_id
        identities[directory] = MetaProperties(cluster_id, node_id, directory_id)
    await _write_identities(env, identities)


async def _write_identities(env: Env, identities: Mapping[str, MetaProperties]) -> None:
    """Last, when all directories have been written to: one with this file counts as formatted."""
    written = []
    try:
        for directory, identity in identities.items():
            path = f"{directory}/{META_PROPERTIES}"
            written.append(path)
            await env.disk.replace(path, meta_properties.encode(identity))
    except DiskError as error:
        left = [path for path in written if env.disk.exists(path)]
        if left:
            error.add_note(f"remove {', '.join(left)} before another try")
        raise


def _whose(env: Env, directory: str) -> str:
    """What a directory's meta.properties says, or that it says nothing."""
    path = f"{directory}/{META_PROPERTIES}"
    try:
        meta = meta_properties.decode(env.disk.read_bytes(path), path)
    except DamagedFile as damage:
        return str(damage)
    return f"cluster.id {meta.cluster_id}, node.id {meta.node_id} in its {META_PROPERTIES}"


async def _write_voters(env: Env, directory: str, voters: VoterSet, wall_ms: int) -> None:
    data = encode_voters_snapshot(voters, wall_ms)
    await env.disk.replace(f"{directory}/{BOOTSTRAP_SNAPSHOT}", data)
