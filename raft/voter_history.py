"""Which voters were in force from which offset on (KIP-853).

The set in force is the latest one in the log, committed or not; a set that is cut off the log
has never been. Where neither log nor snapshot holds one, the configured voters are in force.
"""

from __future__ import annotations

from collections.abc import Iterable

from raft.voters import MembershipRecord, ReplicaKey, VoterSet

BOOTSTRAP_OFFSET = -1
"""Where the set of the snapshot 0-0 counts from: before all that the log can hold."""


class VoterHistory:
    """Voter sets and levels of kraft.version by the offset of their record, rising.

    What a snapshot holds counts as of the last offset that it covers.
    """

    def __init__(self, static: VoterSet, records: Iterable[MembershipRecord] = ()) -> None:
        """`static`: the configured voters. `records`: from the newest snapshot and the log."""
        self.static = static
        self._voters: list[tuple[int, VoterSet]] = []
        self._versions: list[tuple[int, int]] = []
        self._dropped: dict[ReplicaKey, None] = {}
        for record in records:
            self.add(record)

    @property
    def voters(self) -> VoterSet:
        """The set in force."""
        return self._voters[-1][1] if self._voters else self.static

    @property
    def voters_offset(self) -> int | None:
        """The offset of the record of the set in force; None for the configured set."""
        return self._voters[-1][0] if self._voters else None

    @property
    def kraft_version(self) -> int:
        """The latest level in the log."""
        return self._versions[-1][1] if self._versions else 0

    def voters_before(self, offset: int) -> VoterSet:
        """The set in force for one whose log ends at `offset`."""
        return next((voters for at, voters in reversed(self._voters) if at < offset), self.static)

    def kraft_version_before(self, offset: int) -> int:
        """The level for one whose log ends at `offset`."""
        return next((level for at, level in reversed(self._versions) if at < offset), 0)

    def has_named(self, key: ReplicaKey) -> bool:
        """Whether a set that is not the configured one had this voter, as far as is known here."""
        return key in self._dropped or any(
            voter.key == key for _, voters in self._voters for voter in voters
        )

    def add(self, record: MembershipRecord) -> None:
        """Note a record of the log; offsets rise."""
        if record.voters is not None:
            assert not self._voters or self._voters[-1][0] < record.offset, (self, record)
            self._voters.append((record.offset, record.voters))
        if record.kraft_version is not None:
            assert not self._versions or self._versions[-1][0] < record.offset, (self, record)
            self._versions.append((record.offset, record.kraft_version))

    def remember(self, voters: VoterSet) -> None:
        """Note the voters of a set that came before all that is known here."""
        for voter in voters:
            self._dropped[voter.key] = None

    def truncate(self, offset: int) -> None:
        """The log was cut at `offset`."""
        self._voters = [entry for entry in self._voters if entry[0] < offset]
        self._versions = [entry for entry in self._versions if entry[0] < offset]

    def trim(self, start: int) -> None:
        """The log begins at `start` now: what was in force there stays, what came before goes."""
        while len(self._voters) > 1 and self._voters[1][0] < start:
            self.remember(self._voters.pop(0)[1])
        while len(self._versions) > 1 and self._versions[1][0] < start:
            self._versions.pop(0)

    def restart(self, snapshot: MembershipRecord) -> None:
        """The log goes on behind a snapshot, which says what is in force."""
        for _, voters in self._voters:
            self.remember(voters)
        self._voters, self._versions = [], []
        self.add(snapshot)

    def __repr__(self) -> str:
        return f"VoterHistory({self._voters!r}, {self._versions!r})"
