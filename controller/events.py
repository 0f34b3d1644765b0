"""What the controller core is told, and what it asks its shell to do. All frozen values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from metadata.image import MetadataImage
from metadata.records import Record
from wire.errors import ErrorCode


class Principal(NamedTuple):
    """Who asks: the authenticated name, e.g. `User:ANONYMOUS`, and the address it came from."""

    kind: str = "User"
    name: str = "ANONYMOUS"
    host: str = ""


class ApiRequest(NamedTuple):
    """A decoded Kafka request. `token` comes back in the Reply and means nothing to the core.

    `timeout_ms` is how long the caller waits for the commit; None takes the core's own limit.
    """

    token: int
    api_key: int
    api_version: int
    entity: Any
    principal: Principal = Principal()
    timeout_ms: int | None = None


class BecameLeader(NamedTuple):
    """This node leads the quorum and has applied everything before its epoch.

    `image` is the committed state outside any open transaction; `next_offset` is where the next
    record goes; `bootstrap` is what `bootstrap.checkpoint` holds, used if the log has no records.
    """

    epoch: int
    image: MetadataImage
    next_offset: int
    bootstrap: Sequence[Record] = ()
    open_transaction: bool = False


class LostLeadership(NamedTuple):
    """Another node leads, or none is known."""


class Committed(NamedTuple):
    """All offsets below `high_watermark` are committed."""

    high_watermark: int


class LogEndMoved(NamedTuple):
    """The quorum itself appended control records: the next record goes to `next_offset`, and
    kraft.version is what those records say."""

    next_offset: int
    kraft_version: int = 0


class Tick(NamedTuple):
    """Time has passed; see `Controller.next_deadline_ms`."""


class KraftVersionUpgraded(NamedTuple):
    """What the effect UpgradeKraftVersion of this token came to; `error` none if it was done."""

    token: int
    error: ErrorCode
    message: str = ""


Event = (
    ApiRequest
    | BecameLeader
    | LostLeadership
    | Committed
    | LogEndMoved
    | KraftVersionUpgraded
    | Tick
)


class AppendRecords(NamedTuple):
    """Append `values` as one atomic batch in `epoch`; its first record must get `base_offset`."""

    values: tuple[bytes, ...]
    epoch: int
    base_offset: int


class Reply(NamedTuple):
    """Answer the request of `token` with this response entity.

    `refused` is set where the whole request got this one error.
    """

    token: int
    entity: Any
    refused: ErrorCode | None = None


class UpgradeKraftVersion(NamedTuple):
    """Have the quorum raise its own feature, or say whether it could (`validate_only`); answered
    by the event KraftVersionUpgraded once that is committed."""

    token: int
    level: int
    validate_only: bool


class Log(NamedTuple):
    """Something an operator should know: `event` is a fixed text, `fields` its particulars."""

    event: str
    fields: tuple[tuple[str, object], ...] = ()


Effect = AppendRecords | Reply | UpgradeKraftVersion | Log
