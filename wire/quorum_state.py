"""The `quorum-state` file: a voter's memory of its vote and leader (KIP-595, KIP-853).

One JSON object. Version 0 belongs to kraft.version 0 and has no directory id of the voted-for
candidate; version 1 belongs to kraft.version 1.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from wire.errors import DamagedFile, DecodeError
from wire.uuids import ZERO, from_text, to_text


@dataclass(frozen=True, slots=True)
class QuorumState:
    """None stands for no leader, no vote. `voters` is kept in version 0 only, for its readers."""

    leader_epoch: int = 0
    leader_id: int | None = None
    voted_id: int | None = None
    voted_directory_id: UUID = ZERO
    voters: tuple[int, ...] | None = None
    version: int = 0


def encode(state: QuorumState) -> bytes:
    """The file in the state's version; version 0 drops `voted_directory_id`."""
    leader_id = -1 if state.leader_id is None else state.leader_id
    voted_id = -1 if state.voted_id is None else state.voted_id
    document: dict[str, Any]
    if state.version == 0:
        voters = state.voters
        document = {
            "clusterId": "",
            "leaderId": leader_id,
            "leaderEpoch": state.leader_epoch,
            "votedId": voted_id,
            "appliedOffset": 0,
            "currentVoters": None if voters is None else [{"voterId": v} for v in voters],
        }
    else:
        assert state.version == 1, state.version
        document = {
            "leaderId": leader_id,
            "leaderEpoch": state.leader_epoch,
            "votedId": voted_id,
            "votedDirectoryId": to_text(state.voted_directory_id),
        }
    document["data_version"] = state.version
    return json.dumps(document, separators=(",", ":")).encode()


def decode(data: bytes, path: str) -> QuorumState:
    """The state; DamagedFile if it isn't one or its version is unknown."""
    try:
        document = json.loads(data)
    except ValueError as error:
        raise DamagedFile(path, getattr(error, "pos", 0), "not a JSON document") from error
    except RecursionError as error:
        raise DamagedFile(path, 0, "not a quorum state") from error
    if not isinstance(document, dict) or "data_version" not in document:
        raise DamagedFile(path, 0, "no data_version")
    version = document["data_version"]
    if version not in (0, 1) or isinstance(version, (bool, float)):
        raise DamagedFile(path, 0, f"data_version {version!r}, only 0 and 1 are supported")

    def number(name: str) -> int:
        value = document.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value < 1 << 31:
            raise DamagedFile(path, 0, f"{name} is {value!r}")
        return value

    leader_id, voted_id, epoch = number("leaderId"), number("votedId"), number("leaderEpoch")
    directory_id = ZERO
    voters = None
    if version == 1:
        try:
            directory_id = from_text(str(document.get("votedDirectoryId")))
        except DecodeError as error:
            raise DamagedFile(path, 0, f"votedDirectoryId: {error}") from error
    else:
        voters = _voters(document.get("currentVoters"), path)
    return QuorumState(
        leader_epoch=epoch,
        leader_id=None if leader_id < 0 else leader_id,
        voted_id=None if voted_id < 0 else voted_id,
        voted_directory_id=directory_id,
        voters=voters,
        version=version,
    )


def _voters(listed: Any, path: str) -> tuple[int, ...] | None:
    if listed is None:
        return None
    if not isinstance(listed, list):
        raise DamagedFile(path, 0, "currentVoters is no list")
    ids = [voter.get("voterId") if isinstance(voter, dict) else None for voter in listed]
    if not all(isinstance(v, int) and not isinstance(v, bool) for v in ids):
        raise DamagedFile(path, 0, f"currentVoters holds {listed!r}")
    return tuple(int(v) for v in ids if v is not None)
