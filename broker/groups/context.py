"""What the parts of a coordinator share: groups, clocks, timers, and the way to the shell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from broker.groups.effects import Answer, Append, Effect, Log, Producer, StoredRecord
from broker.groups.events import Request, Topic
from broker.groups.group import Group
from broker.groups.refusals import failed_append
from broker.groups.settings import GroupOverrides, GroupSettings
from broker.groups.speculation import Outcome, Speculation, Versioned
from broker.groups.timers import Timers
from wire.errors import ErrorCode
from wire.group_records import GroupKey, GroupValue, encode_key, encode_value

_NO_OVERRIDES = GroupOverrides()


def stored(key: GroupKey, value: GroupValue | None) -> StoredRecord:
    """A record as bytes; a tombstone where the value is None."""
    return StoredRecord(encode_key(key), None if value is None else encode_value(value))


def tombstones(group: Group) -> list[StoredRecord]:
    """What deletes all of a group but its offsets."""
    keys = group.keys()
    return [stored(key, None) for key in keys]


class Context:
    """One coordinator's shared state. The times are those of the event that is being handled.

    A change of the log's state is made in a `Versioned` map (`groups`, or one made with
    `speculation`) and bound by the `append` that follows. Whoever answers chooses: `answer` waits
    until everything appended so far is committed, `answer_now` doesn't.
    """

    __slots__ = (
        "effects",
        "groups",
        "new_uuid",
        "now_ms",
        "overrides",
        "settings",
        "speculation",
        "timers",
        "topics",
        "wall_ms",
    )

    def __init__(self, settings: GroupSettings, new_uuid: Callable[[], UUID]) -> None:
        self.settings = settings
        self.new_uuid = new_uuid
        self.timers = Timers()
        self.speculation = Speculation()
        self.groups: Versioned[str, Group] = Versioned(self.speculation)
        # The topics of the newest metadata image, by name, once they are told.
        self.topics: Mapping[str, Topic] | None = None
        self.overrides: Mapping[str, GroupOverrides] = {}
        self.now_ms = 0
        self.wall_ms = 0
        self.effects: list[Effect] = []

    def session_timeout_ms(self, group_id: str) -> int:
        """Of the members of a consumer group."""
        own = self.overrides.get(group_id, _NO_OVERRIDES).session_timeout_ms
        return self.settings.group_consumer_session_timeout_ms if own is None else own

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """What the members of a consumer group are told."""
        own = self.overrides.get(group_id, _NO_OVERRIDES).heartbeat_interval_ms
        return self.settings.group_consumer_heartbeat_interval_ms if own is None else own

    def assignment_interval_ms(self, group_id: str) -> int:
        """Between two targets of a consumer group, at least."""
        own = self.overrides.get(group_id, _NO_OVERRIDES).assignment_interval_ms
        return self.settings.group_consumer_assignment_interval_ms if own is None else own

    def append(self, records: Sequence[StoredRecord], producer: Producer | None = None) -> None:
        """Have the records appended as one batch; what was changed since the last append stands
        and falls with it."""
        token = self.speculation.append()
        self.effects.append(Append(token, tuple(records), producer))

    def when_settled(
        self, done: Callable[[], None], failed: Callable[[ErrorCode], None] = lambda error: None
    ) -> None:
        """Call one of the two when the append just made is committed or has failed."""
        self.speculation.wait(Outcome(done, failed))

    def answer(self, request: Request, value: object) -> None:
        """Answer when all that was appended so far is committed; a failure is told instead."""
        if self.speculation.is_empty:
            self.answer_now(request.caller, value)
            return
        self.speculation.wait(
            Outcome(
                lambda: self.answer_now(request.caller, value),
                lambda error: self.answer_now(request.caller, failed_append(request, error)),
            )
        )

    def answer_now(self, caller: int, value: object) -> None:
        """Answer whatever is uncommitted."""
        self.effects.append(Answer(caller, value))

    def log(self, event: str, **fields: object) -> None:
        """Tell the operator."""
        self.effects.append(Log(event, tuple(fields.items())))
