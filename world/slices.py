"""Long blocking work in slices, so that whoever is told to stop needn't wait until it is over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from world.env import Env

Result = TypeVar("Result")

Work = Generator[None, None, Result]
"""Blocking work that yields now and then, at least every 100 ms or so, and returns its result."""


async def run_in_slices(
    env: Env, work: Work[Result], between: Callable[[], Awaitable[None]] | None = None
) -> Result:
    """Runs `work` to its end off the loop; each part of it, from one `yield` to the next, is a call
    of `env.run_blocking`. `between` is awaited on the loop after each part; what it raises ends it.

    A cancelled caller is gone at once, and leaves no thread at work for longer than one part.
    """
    while True:
        ended, result = await env.run_blocking(_go_on, work)
        if ended:
            return result  # type: ignore[no-any-return]
        if between is not None:
            await between()


def run_at_once(work: Work[Result]) -> Result:
    """Runs `work` to its end here and now."""
    while True:
        ended, result = _go_on(work)
        if ended:
            return result  # type: ignore[no-any-return]


def _go_on(work: Work[Any]) -> tuple[bool, Any]:
    """Whether `work` has ended, and its result if it has."""
    try:
        next(work)
    except StopIteration as end:
        return True, end.value
    return False, None
