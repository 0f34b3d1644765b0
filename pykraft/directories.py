"""A node's log directories, opened and checked against its configuration before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from pykraft.node_config import NodeConfig
from pykraft.storage_format import META_PROPERTIES
from storage.log_dir import LogDirectory
from wire import meta_properties, uuids
from wire.errors import DamagedFile, FatalError
from wire.exits import EXIT_BAD_DIRECTORY
from world.env import Absent, AlreadyLocked, DiskError, Env


@dataclass(slots=True)
class NodeDirectories:
    """The open directories: those for partitions, and that of the metadata log. `failed`: why
    others could not be opened, by path."""

    log_directories: Sequence[LogDirectory]
    metadata: LogDirectory
    cluster_id: str
    metadata_directory_id: UUID
    failed: Mapping[str, str]

    def release(self, *, taken_by_broker: bool) -> None:
        """Gives up the locks of what no broker has closed."""
        for directory in dict.fromkeys((*self.log_directories, self.metadata)):
            if not (taken_by_broker and directory in self.log_directories):
                directory.release()


async def open_all(env: Env, config: NodeConfig) -> NodeDirectories:
    """Opens and locks every directory of the node.

    One that the disk refuses, or whose meta.properties makes no sense, is left out (KIP-112). Not
    that of the metadata log, nor a broker's last: FatalError then, and where one is not formatted,
    in use, or another node's or cluster's.
    """
    opened: dict[str, LogDirectory] = {}
    identities: dict[str, tuple[str, UUID]] = {}
    failed: dict[str, str] = {}
    try:
        for path in dict.fromkeys((*config.log_dirs, config.metadata_log_dir)):
            try:
                opened[path] = await _open(env, path, identities)
                identities[path] = await _identity(env, opened[path], config)
            except (DamagedFile, DiskError) as error:
                failed[path] = str(error)
                if path in opened:
                    opened.pop(path).release()
        _check_left(config, failed)
        _check_agreement(identities)
    except BaseException:
        for directory in opened.values():
            directory.release()
        raise
    metadata = opened[config.metadata_log_dir]
    cluster_id, directory_id = identities[config.metadata_log_dir]
    return NodeDirectories(
        [opened[path] for path in config.log_dirs if path in opened],
        metadata,
        cluster_id,
        directory_id,
        failed,
    )


def _check_left(config: NodeConfig, failed: Mapping[str, str]) -> None:
    if config.metadata_log_dir in failed:
        raise FatalError(
            EXIT_BAD_DIRECTORY,
            f"{config.metadata_log_dir} can't be used: {failed[config.metadata_log_dir]}; a node "
            "can start without others of log.dirs, not without the one that holds its metadata log",
        )
    if config.is_broker and all(path in failed for path in config.log_dirs):
        reasons = "; ".join(failed[path] for path in config.log_dirs)
        raise FatalError(
            EXIT_BAD_DIRECTORY, f"none of log.dirs can be used, a broker needs one: {reasons}"
        )


async def _open(env: Env, path: str, identities: Mapping[str, tuple[str, UUID]]) -> LogDirectory:
    """Raises DiskError or DamagedFile where the directory has failed. `identities`: of those that
    are open."""
    if not env.disk.exists(path):
        raise FatalError(
            EXIT_BAD_DIRECTORY,
            f"{path} does not exist: is its disk mounted? For a new node `pykraft storage format` "
            "makes it",
        )
    try:
        data = env.disk.read_bytes(f"{path}/{META_PROPERTIES}")
    except Absent:
        raise FatalError(
            EXIT_BAD_DIRECTORY,
            f"{path} is not formatted ({META_PROPERTIES} is missing): "
            "`pykraft storage format` does it",
        ) from None
    try:
        return await LogDirectory.open(env, path)
    except AlreadyLocked as error:
        own = meta_properties.decode(data, path).directory_id
        for other, (_, directory_id) in identities.items():
            if directory_id == own:
                raise FatalError(
                    EXIT_BAD_DIRECTORY,
                    f"{path} and {other} are the same directory: log.dirs and metadata.log.dir "
                    "must write it in the same way, and log.dirs once",
                ) from error
        raise FatalError(EXIT_BAD_DIRECTORY, f"{path} is in use by another process") from error


async def _identity(env: Env, directory: LogDirectory, config: NodeConfig) -> tuple[str, UUID]:
    """(cluster id, directory id); a directory of an old release gets its id now (KIP-858)."""
    meta = directory.meta
    assert meta is not None, "only formatted directories are opened"
    if meta.node_id != config.node_id:
        raise FatalError(
            EXIT_BAD_DIRECTORY,
            f"{directory.path} belongs to node {meta.node_id}, this is node {config.node_id}: "
            "node.id or the directory's path is wrong",
        )
    if meta.directory_id is None:
        meta = replace(meta, directory_id=env.ids.uuid())
        await directory.write_meta(meta)
    assert meta.directory_id is not None
    return meta.cluster_id, meta.directory_id


def _check_agreement(identities: dict[str, tuple[str, UUID]]) -> None:
    if len({cluster_id for cluster_id, _ in identities.values()}) > 1:
        of_each = ", ".join(
            f"{path} of {cluster_id}" for path, (cluster_id, _) in identities.items()
        )
        raise FatalError(
            EXIT_BAD_DIRECTORY,
            f"the log directories are of different clusters: {of_each}; a node's have the same "
            f"cluster.id in their {META_PROPERTIES}",
        )
    seen: dict[UUID, str] = {}
    for path, (_, directory_id) in identities.items():
        if directory_id in seen:
            raise FatalError(
                EXIT_BAD_DIRECTORY,
                f"{path} and {seen[directory_id]} have the same directory.id "
                f"{uuids.to_text(directory_id)}: one is a copy",
            )
        seen[directory_id] = path
