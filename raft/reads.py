"""Linearizable reads: many callers share one question to the quorum."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from raft.events import ConfirmLeadership
from wire.errors import ErrorCode, KafkaError


class NotLeader(KafkaError):
    """This node doesn't lead the epoch in question."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.not_leader_or_follower, message)


class Reads:
    """Callers that come while a question is under way share the next one."""

    def __init__(self, ask: Callable[[ConfirmLeadership], None]) -> None:
        self._ask = ask
        self._asked: list[asyncio.Future[int]] = []
        self._waiting: list[asyncio.Future[int]] = []
        self._token = 0

    async def confirm(self) -> int:
        """See RaftNode.confirm_leadership."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._next()
        return await future

    def _next(self) -> None:
        if not self._asked and self._waiting:
            self._asked, self._waiting = self._waiting, []
            self._token += 1
            self._ask(ConfirmLeadership(self._token))

    def confirmed(self, token: int, offset: int) -> None:
        asked, self._asked = self._asked, []
        for future in asked:
            if not future.done():
                future.set_result(offset)
        self._next()

    def refused(self, token: int) -> None:
        asked, self._asked = self._asked, []
        for future in asked:
            if not future.done():
                future.set_exception(NotLeader("this node doesn't lead the quorum"))
        self._next()

    def close(self) -> None:
        self._asked += self._waiting
        self._waiting = []
        self.refused(self._token)
