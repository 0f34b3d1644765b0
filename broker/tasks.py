"""Background tasks whose end nobody awaits: none of them ends unseen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from wire.errors import FatalError
from wire.exits import EXIT_BROKER_TASK_FAILED

OnFatal = Callable[[FatalError], None]
Work = Callable[[], Coroutine[Any, Any, None]]


def spawn(name: str, work: Work, on_fatal: OnFatal) -> asyncio.Task[None]:
    """Runs `work()`; an error that leaves it goes to `on_fatal`, wrapped unless it is fatal."""

    async def guarded() -> None:
        try:
            await work()
        except FatalError as error:
            on_fatal(error)
        except Exception as error:  # noqa: BLE001 - reported, and the broker ends
            structlog.get_logger("broker.tasks").exception("task_failed", task=name)
            on_fatal(FatalError(EXIT_BROKER_TASK_FAILED, f"{name}: {error!r}"))

    return asyncio.get_running_loop().create_task(guarded(), name=name)
