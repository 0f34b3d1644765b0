"""Who votes: replica keys and the voter set, read in one place by everybody else.

A replica is named by its node id and the id of its metadata directory (KIP-853). With static
voters (`kraft.version` 0) directory ids are unknown, and an id alone names a voter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from wire import control
from wire.numbers import whole_number

MAX_KRAFT_VERSION = 1
_NOTHING_COMMITTED = "the leader has committed nothing of its epoch {} yet"


class ReplicaKey(NamedTuple):
    """A replica: node id, and directory id where it is known."""

    node_id: int
    directory_id: UUID | None = None


class OffsetAndEpoch(NamedTuple):
    """An end offset (exclusive) and an epoch: a snapshot's id, or the end of an epoch."""

    offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Voter:
    """One voter: its key, its endpoint by listener name, the kraft.version range it supports."""

    key: ReplicaKey
    endpoints: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    min_kraft_version: int = 0
    max_kraft_version: int = 0


def nothing_committed(epoch: int) -> str:
    """Why a leader that has just been elected changes no voters: nothing was begun."""
    return _NOTHING_COMMITTED.format(epoch)


def says_nothing_committed(message: str) -> bool:
    """Whether it is `nothing_committed` of some epoch, and nothing else."""
    before, after = _NOTHING_COMMITTED.split("{}")
    epoch = message.removeprefix(before).removesuffix(after)
    return whole_number(epoch) is not None and message == f"{before}{epoch}{after}"


class VoterSet:
    """The voters in order of their id. A value: never changed once made."""

    __slots__ = ("_voters", "ids", "majority")

    def __init__(self, voters: Iterable[Voter]) -> None:
        self._voters = {voter.key.node_id: voter for voter in sorted(voters, key=_node_id)}
        self.ids: tuple[int, ...] = tuple(self._voters)
        self.majority = len(self.ids) // 2 + 1

    @classmethod
    def static(cls, addresses: Mapping[int, tuple[str, int]], listener: str) -> VoterSet:
        """The voters of `controller.quorum.voters`: ids and addresses, no directory ids."""
        return cls(
            Voter(ReplicaKey(node_id), {listener: address})
            for node_id, address in addresses.items()
        )

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self._voters.values())

    def __repr__(self) -> str:
        return f"VoterSet({list(self._voters.values())!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._voters == other._voters

    def __hash__(self) -> int:
        return hash(self.ids)

    def get(self, node_id: int) -> Voter | None:
        return self._voters.get(node_id)

    def contains(self, key: ReplicaKey) -> bool:
        """Whether `key` votes: its id is known, and its directory id matches where one is set."""
        voter = self._voters.get(key.node_id)
        if voter is None:
            return False
        expected = voter.key.directory_id
        return expected is None or expected == key.directory_id

    def with_voter(self, voter: Voter) -> VoterSet:
        """This set and `voter`, in place of the one of its id if there is one."""
        return VoterSet({**self._voters, voter.key.node_id: voter}.values())

    def without(self, key: ReplicaKey) -> VoterSet:
        """This set less the voter of exactly this key."""
        return VoterSet(voter for voter in self if voter.key != key)

    def key_of(self, node_id: int) -> ReplicaKey:
        voter = self._voters.get(node_id)
        return voter.key if voter is not None else ReplicaKey(node_id)

    def address(self, node_id: int, listener: str) -> tuple[str, int] | None:
        voter = self._voters.get(node_id)
        return None if voter is None else voter.endpoints.get(listener)

    def others(self, node_id: int) -> list[ReplicaKey]:
        """The keys of all voters but `node_id`, by id."""
        return [voter.key for voter in self._voters.values() if voter.key.node_id != node_id]


def _node_id(voter: Voter) -> int:
    return voter.key.node_id


class MembershipRecord(NamedTuple):
    """What the log, or a snapshot, says of membership at an offset; None where it says nothing."""

    offset: int
    kraft_version: int | None = None
    voters: VoterSet | None = None


def membership_of(offset: int, record: control.Control) -> MembershipRecord | None:
    """The control record at `offset` as far as it is about membership."""
    if record.type == control.ControlType.KRAFT_VERSION:
        return MembershipRecord(offset, kraft_version=record.entity.k_raft_version)
    if record.type == control.ControlType.KRAFT_VOTERS:
        return MembershipRecord(offset, voters=voter_set_of(control.voters_of(record.entity)))
    return None


def voter_set_of(voters: Iterable[control.Voter]) -> VoterSet:
    """The set that a VotersRecord holds."""
    return VoterSet(
        Voter(
            ReplicaKey(voter.voter_id, voter.directory_id),
            {end.name: (end.host, end.port) for end in voter.endpoints},
            voter.min_kraft_version,
            voter.max_kraft_version,
        )
        for voter in voters
    )


def record_of(voters: VoterSet) -> list[control.Voter]:
    """The voters as a VotersRecord holds them."""
    return [
        control.Voter(
            voter.key.node_id,
            voter.key.directory_id,
            tuple(control.Endpoint(name, *place) for name, place in voter.endpoints.items()),
            voter.min_kraft_version,
            voter.max_kraft_version,
        )
        for voter in voters
    ]
