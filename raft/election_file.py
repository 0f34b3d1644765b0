"""The `quorum-state` file: what a member must not forget of elections."""

from __future__ import annotations

import structlog

from raft.effects import ElectionState
from raft.voters import ReplicaKey, VoterSet
from wire import quorum_state
from wire.errors import DamagedFile, FatalError
from wire.exits import EXIT_LOG_DAMAGED
from wire.uuids import ZERO
from world.env import Disk

logger = structlog.get_logger("raft")


class ElectionFile:
    """Reads both versions; writes 0 for static voters, 1 where kraft.version is 1."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/quorum-state"

    def load(self, *, votes: bool = True) -> ElectionState:
        """What was stored, or the state of one who has seen nothing.

        FatalError if the file makes no sense: a forgotten vote could be given twice. Who never
        `votes` has nothing in it that others wouldn't tell again.
        """
        if not self._disk.exists(self._path):
            return ElectionState()
        try:
            stored = quorum_state.decode(self._disk.read_bytes(self._path), self._path)
        except DamagedFile as error:
            if not votes:
                logger.warning("quorum_state_damaged", reason=str(error))
                return ElectionState()
            # Who the voters are is in the log, and that isn't open yet.
            advice = (
                "if there are other voters, a forgotten vote could be given twice, so don't remove "
                "the file: the node has to be replaced as one that lost its disk. If it is the "
                "only voter, don't replace it, which would lose all metadata: remove the file"
            )
            raise FatalError(EXIT_LOG_DAMAGED, f"{error}; {advice}") from error
        voted = None
        if stored.voted_id is not None:
            directory_id = stored.voted_directory_id
            voted = ReplicaKey(stored.voted_id, None if directory_id == ZERO else directory_id)
        leader_id = -1 if stored.leader_id is None else stored.leader_id
        return ElectionState(max(stored.leader_epoch, 0), leader_id, voted)

    async def save(self, state: ElectionState, voters: VoterSet, kraft_version: int) -> None:
        """Durable on return."""
        voted = state.voted
        document = quorum_state.QuorumState(
            leader_epoch=state.epoch,
            leader_id=None if state.leader_id < 0 else state.leader_id,
            voted_id=None if voted is None else voted.node_id,
            voted_directory_id=ZERO if voted is None else voted.directory_id or ZERO,
            voters=voters.ids,
            version=min(kraft_version, 1),
        )
        await self._disk.replace(self._path, quorum_state.encode(document))
