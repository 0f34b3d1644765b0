"""Soft state about brokers' heartbeats: who was heard from when, and how far each has read.

Nothing here is in the log: a new active controller starts with everyone's clock afresh
(KIP-631). A session belongs to a broker id and epoch; a fenced broker that goes on
sending heartbeats has one too, which is what tells two processes of one id apart.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from sortedcontainers import SortedList


class BrokerState(enum.Enum):
    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shut down now"

    @property
    def fenced(self) -> bool:
        return self in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW)


@dataclass(slots=True)
class _Contact:
    epoch: int
    fenced: bool
    metadata_offset: int = -1
    controlled_shutdown_offset: int = -1
    last_ms: int | None = None

    @property
    def active(self) -> bool:
        return not self.fenced and self.controlled_shutdown_offset < 0


class Heartbeats:
    """Sessions of all registered brokers. Times are monotonic milliseconds."""

    def __init__(self, session_timeout_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._contacts: dict[int, _Contact] = {}
        self._sessions: SortedList = SortedList()  # (last_ms, broker id)
        self._next_expiry_ms: int | None = None

    def register(self, broker_id: int, epoch: int, *, fenced: bool, now_ms: int) -> None:
        """A broker as the image has it. Its clock starts now."""
        self.remove(broker_id)
        self._contacts[broker_id] = _Contact(epoch, fenced)
        self._set_time(broker_id, now_ms)

    def remove(self, broker_id: int) -> None:
        contact = self._contacts.pop(broker_id, None)
        if contact is not None and contact.last_ms is not None:
            self._sessions.remove((contact.last_ms, broker_id))
            self._sessions_changed()

    def touch(self, broker_id: int, now_ms: int, *, fenced: bool, metadata_offset: int) -> None:
        """A heartbeat was processed and leaves the broker in this state."""
        contact = self._contacts[broker_id]
        contact.fenced = fenced
        contact.metadata_offset = metadata_offset
        if fenced:
            contact.controlled_shutdown_offset = -1
        self._set_time(broker_id, now_ms)

    def fence(self, broker_id: int) -> None:
        """Ends the session: the broker is fenced until its next heartbeat."""
        contact = self._contacts[broker_id]
        contact.fenced = True
        contact.controlled_shutdown_offset = -1
        self._set_time(broker_id, None)

    def set_controlled_shutdown_offset(self, broker_id: int, offset: int) -> None:
        """Others must have read up to `offset` before the broker may stop. The first one counts."""
        contact = self._contacts[broker_id]
        if contact.controlled_shutdown_offset < 0:
            contact.controlled_shutdown_offset = offset

    def has_session(self, broker_id: int, epoch: int, now_ms: int) -> bool:
        contact = self._contacts.get(broker_id)
        return (
            contact is not None
            and contact.epoch == epoch
            and contact.last_ms is not None
            and now_ms - contact.last_ms <= self._session_timeout_ms
        )

    def next_expiry_ms(self) -> int | None:
        """When the oldest session ends if nothing is heard before."""
        return self._next_expiry_ms

    def expired(self, now_ms: int) -> list[int]:
        """Brokers whose session is over, the longest silent first."""
        ids: list[int] = []
        for last_ms, broker_id in self._sessions:
            if now_ms - last_ms <= self._session_timeout_ms:
                break
            ids.append(broker_id)
        return ids

    def end_session(self, broker_id: int) -> None:
        self._set_time(broker_id, None)

    def lowest_active_offset(self) -> int | None:
        """The lowest metadata offset that an active broker has applied; None without any."""
        offsets = [c.metadata_offset for c in self._contacts.values() if c.active]
        return min(offsets) if offsets else None

    def next_state(
        self,
        broker_id: int,
        *,
        want_fence: bool,
        want_shut_down: bool,
        caught_up: bool,
        leads_any: Callable[[], bool],
    ) -> tuple[BrokerState, BrokerState]:
        """(current, next) state of a broker that sends this heartbeat: the table of 4.5."""
        contact = self._contacts[broker_id]
        if contact.fenced:
            if want_shut_down:
                return BrokerState.FENCED, BrokerState.SHUTDOWN_NOW
            if not want_fence and caught_up:
                return BrokerState.FENCED, BrokerState.UNFENCED
            return BrokerState.FENCED, BrokerState.FENCED
        if contact.controlled_shutdown_offset >= 0:
            current = BrokerState.CONTROLLED_SHUTDOWN
            if leads_any():
                return current, current
            lowest = self.lowest_active_offset()
            if lowest is not None and contact.controlled_shutdown_offset > lowest:
                return current, current
            return current, BrokerState.SHUTDOWN_NOW
        current = BrokerState.UNFENCED
        if want_fence:
            return current, BrokerState.SHUTDOWN_NOW if want_shut_down else BrokerState.FENCED
        if want_shut_down:
            later = BrokerState.CONTROLLED_SHUTDOWN if leads_any() else BrokerState.SHUTDOWN_NOW
            return current, later
        return current, current

    def _set_time(self, broker_id: int, now_ms: int | None) -> None:
        contact = self._contacts[broker_id]
        if contact.last_ms is not None:
            self._sessions.remove((contact.last_ms, broker_id))
        contact.last_ms = now_ms
        if now_ms is not None:
            self._sessions.add((now_ms, broker_id))
        self._sessions_changed()

    def _sessions_changed(self) -> None:
        """The next expiry is asked for after each request, and seldom another one."""
        self._next_expiry_ms = None
        if self._sessions:
            self._next_expiry_ms = self._sessions[0][0] + self._session_timeout_ms + 1
