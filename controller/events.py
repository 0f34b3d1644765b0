"""What the controller core is told, and what it asks its shell to do. All frozen values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from metadata.image import MetadataImage
from metadata.records import Record
from wire.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks: the authenticated name, e.g. `User:ANONYMOUS`, and the address it came from."""

    kind: str = "User"
    name: str = "ANONYMOUS"
    host: str = ""


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A decoded Kafka request. `token` comes back in the Reply and means nothing to the core.

    `timeout_ms` is how long the caller waits for the commit; None takes the core's own limit.
    """

    token: int
    api_key: int
    api_version: int
    entity: Any
    principal: Principal = field(default_factory=Principal)
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class BecameLeader:
    """This node leads the quorum and has applied everything before its epoch.

    `image` is the committed state outside any open transaction; `next_offset` is where the next
    record goes; `bootstrap` is what `bootstrap.checkpoint` holds, used if the log has no records.
    """

    epoch: int
    image: MetadataImage
    next_offset: int
    bootstrap: Sequence[Record] = ()
    open_transaction: bool = False


@dataclass(frozen=True, slots=True)
class LostLeadership:
    """Another node leads, or none is known."""


@dataclass(frozen=True, slots=True)
class Committed:
    """All offsets below `high_watermark` are committed."""

    high_watermark: int


@dataclass(frozen=True, slots=True)
class LogEndMoved:
    """The quorum itself appended control records: the next record goes to `next_offset`, and
    kraft.version is what those records say."""

    next_offset: int
    kraft_version: int = 0


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; see `Controller.next_deadline_ms`."""


@dataclass(frozen=True, slots=True)
class KraftVersionUpgraded:
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


@dataclass(frozen=True, slots=True)
class AppendRecords:
    """Append `values` as one atomic batch in `epoch`; its first record must get `base_offset`."""

    values: tuple[bytes, ...]
    epoch: int
    base_offset: int


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the request of `token` with this response entity.

    `refused` is set where the whole request got this one error.
    """

    token: int
    entity: Any
    refused: ErrorCode | None = None


@dataclass(frozen=True, slots=True)
class UpgradeKraftVersion:
    """Have the quorum raise its own feature, or say whether it could (`validate_only`); answered
    by the event KraftVersionUpgraded once that is committed."""

    token: int
    level: int
    validate_only: bool


@dataclass(frozen=True, slots=True)
class Log:
    """Something an operator should know: `event` is a fixed text, `fields` its particulars."""

    event: str
    fields: tuple[tuple[str, object], ...] = ()


Effect = AppendRecords | Reply | UpgradeKraftVersion | Log
