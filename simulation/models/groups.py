"""What the members of groups were told: who owns what, what was committed, what was consumed.

A member consumes from what its group has committed and commits what it has consumed. So a committed
offset covers only what some member has consumed, an acknowledged one is never read as if it had not
been, and in the end all is consumed. `Consumed` judges as it happens, `judge` the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from simulation.checks import Violation, require
from simulation.history import Call, History, Outcome
from simulation.models.records import Place

SYNC, COMMIT, COMMITTED = "sync group", "commit offsets", "fetch offsets"
NOTHING = -1
"""The committed offset where there is none."""


@dataclass(slots=True)
class Consumed:
    """What all members of a group together have consumed, place by place."""

    group: str
    values: dict[Place, dict[int, bytes]] = field(default_factory=dict)
    upto: dict[Place, int] = field(default_factory=dict)  # all below

    def add(self, place: Place, records: Iterable[tuple[int, bytes]]) -> None:
        """A member has got these (offset, value)."""
        values = self.values.setdefault(place, {})
        for offset, value in records:
            known = values.setdefault(offset, value)
            require(
                known == value,
                "what a consumer saw stays",
                f"{self.group}, {place} @{offset}: {known!r}, then {value!r}",
            )
        end = self.upto.get(place, 0)
        while end in values:
            end += 1
        self.upto[place] = end

    def begins(self, member: str, place: Place, offset: int) -> None:
        """A member is told to go on at a committed offset."""
        end = self.upto.get(place, 0)
        require(
            offset <= end,
            "a committed offset covers only what was consumed",
            f"{member} of {self.group} begins {place} at {offset}, consumed is all below {end}",
        )


def judge(history: History, group: str) -> None:
    """Violation if a generation had two owners of a place, or if an acknowledged commit of the
    group was lost or went back."""
    calls = [call for call in history.calls if call.args.get("group") == group]
    _judge_owners([call for call in calls if call.kind == SYNC and call.outcome is Outcome.OK])
    commits = [call for call in calls if call.kind == COMMIT and call.outcome is not Outcome.FAILED]
    # A coordinator that was replaced, and doesn't know it yet, answers by what it knew.
    reads = [
        call
        for call in calls
        if call.kind == COMMITTED and call.outcome is Outcome.OK and "led" in call.args
    ]
    for place in dict.fromkeys(place for call in reads for place in call.result):
        _judge_offsets(
            place,
            [call for call in commits if place in call.args["offsets"]],
            [call for call in reads if place in call.result],
        )


def _judge_owners(syncs: Sequence[Call]) -> None:
    owners: dict[tuple[int, Place], Call] = {}
    for call in syncs:
        for place in call.result:
            first = owners.setdefault((call.args["generation"], place), call)
            require(
                first.args["member"] == call.args["member"],
                "one owner of a partition in a generation",
                f"{place}: {first}, and {call}",
            )


def _judge_offsets(place: Place, commits: Sequence[Call], reads: Sequence[Call]) -> None:
    """A register whose writes are ordered by when they were asked for and acknowledged: a read must
    not give what was overwritten before it began, nor what nobody had asked for yet."""
    acknowledged = sorted(
        (call for call in commits if call.outcome is Outcome.OK), key=lambda call: call.invoked
    )
    for read in reads:
        assert read.returned is not None
        value = read.result[place]
        # Everything that was over before the last acknowledged commit before the read began.
        after = max(
            (call.invoked for call in acknowledged if (call.returned or 0) < read.invoked),
            default=0,
        )
        possible = [
            call
            for call in commits
            if call.invoked < read.returned
            and (call.outcome is not Outcome.OK or (call.returned or 0) > after)
        ]
        values = [call.args["offsets"][place] for call in possible]
        if not after:
            values.append(NOTHING)
        if value not in values:
            newest = [call for call in acknowledged if call.invoked == after]
            raise Violation(
                "an acknowledged commit is neither lost nor goes back",
                f"{place}: {read}, possible were {sorted(set(values))[-5:]}, {newest[:1]}",
            )


def judge_consumed(
    consumed: Consumed, final: Mapping[Place, Sequence[tuple[int, bytes]]], places: Sequence[Place]
) -> None:
    """Violation unless everything that is there in the end was consumed, and nothing else."""
    for place in places:
        there = dict(final[place])
        require(
            consumed.values.get(place, {}) == there,
            "a group consumes everything",
            f"{consumed.group}, {place}: {len(consumed.values.get(place, {}))} records consumed, "
            f"{len(there)} are there",
        )
