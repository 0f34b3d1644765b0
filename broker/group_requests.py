"""What the handlers of the group APIs share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from broker.group_coordinator import GroupCoordinators
from broker.groups.events import Event
from metadata.features import GROUP_VERSION
from metadata.image import MetadataImage
from net.handlers import CloseConnection, Later, Request

# Without an authorizer everything is allowed: the bits of all operations on a group.
ALL_GROUP_OPERATIONS = 0b1101_0100_1000
NOT_ASKED = -(1 << 31)

# Where a group belongs takes a hash of its id: so many characters take some tenths of a second.
_MAX_IDS_LENGTH = 2 << 20
_MILLISECOND = timedelta(milliseconds=1)


def ask(
    groups: GroupCoordinators,
    group_id: str,
    make: Callable[[int], Event],
    answer: Callable[[Any], Any],
    *,
    waits: bool = False,
) -> Later:
    """The reply that `answer` makes of the outcome of a request to the group's coordinator: the
    core's value, or an ErrorCode where no core answers. See `GroupCoordinators.ask`."""
    later = Later()
    groups.ask(group_id, make, replying(later, answer), waits=waits)
    return later


def replying(later: Later, answer: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Gives `later` the reply that `answer` makes of an outcome, or the error that it raises."""

    def done(outcome: Any) -> None:
        try:
            reply = answer(outcome)
        except Exception as error:  # noqa: BLE001 - the connection ends with it, as for any handler
            later.fail(error)
            return
        later.set(reply)

    return done


def bounded(group_ids: Sequence[str]) -> Sequence[str]:
    """The ids that a request names, if it holds up nobody to look for all of these groups; the
    connection ends otherwise."""
    length = sum(map(len, group_ids))
    if length > _MAX_IDS_LENGTH:
        raise CloseConnection(
            f"group ids of {length} characters in one request, {_MAX_IDS_LENGTH} are allowed"
        )
    return group_ids


def client_of(request: Request) -> tuple[str, str]:
    """A member's client id and host, as groups show them."""
    peer = request.connection.peer
    return request.client_id or "", f"/{peer[0]}" if peer else "/"


def speaks_consumer_protocol(image: MetadataImage) -> bool:
    """Whether the cluster has turned on the consumer protocol (KIP-848)."""
    return image.features.get(GROUP_VERSION, 0) >= 1


def milliseconds(duration: timedelta) -> int:
    """As groups count time; kio has durations."""
    return duration // _MILLISECOND
