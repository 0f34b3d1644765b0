"""What everything in one simulated world shares: its seed, its time, its trace and its story."""

from __future__ import annotations

import random
from collections.abc import Callable

from simulation.loop import Scheduler, Trace


class World:
    """One run. All chance in it comes from `seed`, a stream of its own for each purpose, so that
    one more draw in one place shifts nothing in another.

    `coverage` counts what happened. `story` is a list of lines in words while somebody wants it
    told, else None. A line ends with the number of the earlier line that it follows from: what
    was under way when that was told, through callbacks, timers and messages.
    """

    def __init__(self, seed: int, *, telling: bool = False, dump: list[str] | None = None) -> None:
        self.seed = seed
        self.trace = Trace(dump)
        self.scheduler = Scheduler(self.trace)
        self.coverage: dict[str, int] = {}
        self.story: list[str] | None = [] if telling else None

    def chance(self, purpose: str) -> random.Random:
        """The random source for one purpose."""
        return random.Random(f"{self.seed}/{purpose}")

    def count(self, event: str, by: int = 1) -> None:
        """Counts something that happened, for the coverage."""
        self.coverage[event] = self.coverage.get(event, 0) + by

    def tell(self, who: str, what: str | Callable[[], str]) -> None:
        """Adds a line to the story: at this moment, `who` did or was done `what`."""
        story = self.story
        if story is None:
            return
        text = what if isinstance(what, str) else what()
        cause = self.scheduler.cause
        number = len(story) + 1
        because = f"  (after {cause})" if cause else ""
        story.append(f"{number:>5} {self.scheduler.now_us / 1e6:>11.6f} s  {who}: {text}{because}")
        self.scheduler.cause = number
